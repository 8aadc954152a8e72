"""Placeholders are replaced by values; expressions are not evaluated."""

from typing import Any

import pytest

from muster_formats.cursor import Cursor
from muster_formats.nodes import Json, YamlNode
from muster_formats.polyaxon_v0.parameters import MAX_FILLED, Placeholders
from muster_formats.problems import Problems
from muster_formats.source import read_source

VALUES = """
rate: 0.001
steps: 500
on: true
name: relu
layers: [100, 200, 10]
convolutions: {conv1: {kernels: [32, 32]}}
batch-size: 8
"""


def node(text: str) -> YamlNode:
    return read_source(text, Problems()).parts[0]


def values(text: str = VALUES) -> dict[str, YamlNode]:
    return {key: cursor.node for key, cursor in Cursor(node(text), "", Problems()).items().items()}


def fill(text: str, known: str = VALUES) -> tuple[Json, list[tuple[str, str]]]:
    problems = Problems()
    filled = Placeholders(values(known)).fill(Cursor(node(text), "", problems))
    return filled.node.plain(), [(problem.code, problem.path) for problem in problems.items]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("--rate={{ rate }} --steps={{steps}}", "--rate=0.001 --steps=500"),
        ("l={{ layers[0] }}-{{ layers[2] }}", "l=100-10"),
        ("k={{ convolutions.conv1.kernels }}", "k=[32, 32]"),
        ("b={{ batch-size }}", "b=8"),
        ("is {{ on }}", "is True"),
        ("alone }}", "alone }}"),
        ("'{{ steps }}'", 500),
        ("' {{ rate }} '", 0.001),
        ("'{{ on }}'", True),
        ("'{{ name }}'", "relu"),
        ("'{{ convolutions.conv1 }}'", {"kernels": [32, 32]}),
        ("{a: ['{{ steps }}', 'x{{ name }}'], b: 1}", {"a": [500, "xrelu"], "b": 1}),
    ],
)
def test_a_placeholder_becomes_its_value(text: str, expected: Any) -> None:
    assert fill(text) == (expected, [])


def test_text_without_placeholders_is_unchanged() -> None:
    untouched = node("{a: [1, b], c: {d: null}}")
    assert Placeholders(values()).fill(Cursor(untouched, "", Problems())).node is untouched


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x{{ unknown }}", "NotAllowed"),
        ("x{{ layers[3] }}", "NotAllowed"),
        ("x{{ layers.first }}", "NotAllowed"),
        ("x{{ convolutions.conv2 }}", "NotAllowed"),
        ("x{{ rate * 2 }}", "Unsupported"),
        ("x{{ name | upper }}", "Unsupported"),
        ("x{{ ''.__class__ }}", "Unsupported"),
        ("x{{ }}", "Unsupported"),
        ("x{{ " + "a" * 300 + " }}", "Unsupported"),
        ("x{{ rate", "Unsupported"),
        ("x{% if rate %}y{% endif %}", "Unsupported"),
    ],
)
def test_an_expression_is_an_error_and_its_text_counts_as_missing(text: str, code: str) -> None:
    assert fill(f'{{a: "{text}"}}') == ({"a": None}, [(code, "a")])


def test_an_unknown_name_is_reported_with_the_known_ones() -> None:
    problems = Problems()
    Placeholders(values()).fill(Cursor(node("a{{ batch_size }}"), "", problems))
    (problem,) = problems.items
    assert problem.fix == "did you mean batch-size?"
    assert problem.allowed.startswith("batch-size, convolutions, ")


def test_the_text_that_is_filled_in_is_bounded_as_a_whole() -> None:
    long = "x" * 100_000
    text = " ".join(["{{ long }}"] * (MAX_FILLED // len(long) + 1))
    filled, problems = fill(f"[ok, '{text}']", f"long: {long}")
    assert filled == ["ok", None]
    assert problems == [("TooLarge", "[1]")]


def test_lists_that_are_filled_in_many_times_are_bounded() -> None:
    many = f"many: [{', '.join(['1'] * 10_000)}]"
    named = ", ".join(["'{{ many }}'"] * 60)
    filled, problems = fill(f"[{named}]", many)
    assert isinstance(filled, list)
    assert filled[-1] is None
    assert {code for code, _ in problems} == {"TooLarge"}


def test_unclosed_braces_are_read_in_linear_time() -> None:
    assert fill(f"'{'{' * 200_000}'")[1] == [("Unsupported", "")]
