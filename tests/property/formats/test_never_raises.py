"""Reading any input gives jobs or problems and never raises."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import yaml
from hypothesis import given, settings, strategies as st

from muster_core.models import Severity
from muster_formats import parse, render_problems

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*/*.yaml"))
NO_JOBS = {"queues", "webhooks"}
DOCUMENTS = [
    path.read_text() for path in EXAMPLES if path.name != "not-yaml.yaml" and path.parent.name not in NO_JOBS
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["500m", "1Gi", "Never", "-1", "x" * 70]),
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


def answered(document: str | bytes) -> None:
    parsed = parse(document)
    errors = [problem for problem in parsed.problems if problem.severity is Severity.ERROR]
    assert bool(parsed.jobs) is not bool(errors)
    rendered = render_problems(
        parsed.problems, document if isinstance(document, str) else "", "fuzz.yaml", colour=False
    )
    assert all(line.isprintable() for line in rendered.split("\n"))


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_read(document: str) -> None:
    answered(document)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read(document: bytes) -> None:
    answered(document)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="ab:-[]{},&*!|>'\"%@`#?~<= \n\t01.", max_size=80))
def test_any_yaml_like_text_is_read(document: str) -> None:
    answered(document)


@settings(max_examples=100, deadline=None)
@given(TREES)
def test_any_json_tree_is_read(tree: Any) -> None:
    answered(yaml.safe_dump(tree))


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(DOCUMENTS),
    TREES,
    st.integers(0, 10_000),
    st.sampled_from(["replace", "add", "remove", "rename"]),
)
def test_a_valid_document_with_any_value_in_it_is_read(
    document: str, tree: Any, where: int, how: str
) -> None:
    root = yaml.safe_load(document)
    places = list(_places(root))
    parent, key = places[where % len(places)]
    if how == "replace":
        parent[key] = tree
    elif how == "remove":
        del parent[key]
    elif isinstance(parent, list):
        cast("list[Any]", parent).append(tree)
    elif how == "add":
        parent["extra"] = tree
    else:
        parent[f"{key}x"] = parent.pop(key)
    answered(yaml.safe_dump(root))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(DOCUMENTS), st.integers(0, 2**32))
def test_a_valid_document_with_shuffled_characters_is_read(document: str, seed: int) -> None:
    rng = random.Random(seed)
    characters = list(document)
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(len(characters))
        characters[at : at + rng.randint(0, 3)] = rng.choices(
            list(":-[]{}&*'\" \n\t#%x0"), k=rng.randint(0, 3)
        )
    answered("".join(characters))


def _places(node: object) -> Iterator[tuple[Any, Any]]:
    children: list[tuple[Any, object]] = []
    if isinstance(node, dict):
        children = list(cast("dict[str, object]", node).items())
    elif isinstance(node, list):
        children = list(enumerate(cast("list[object]", node)))
    for key, child in children:
        yield node, key
        yield from _places(child)
