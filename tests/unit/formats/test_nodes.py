"""YAML is read as JSON values with source locations."""

import json

import pytest

from muster_formats.problems import Problems
from muster_formats.source import Source, read_source


def read(text: str) -> Source:
    problems = Problems()
    source = read_source(text, problems)
    assert problems.items == []
    return source


def plain(text: str) -> object:
    (part,) = read(text).parts
    return part.plain()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True), ("False", False), ("null", None), ("~", None), ("", None), ("yes", "yes"), ("no", "no"), ("on", "on"), ("12", 12),
        ("-3", -3), ("+3", 3), ("0", 0), ("010", "010"), ("0x10", "0x10"), ("0o10", "0o10"), ("1_000", "1_000"), ("1:30", "1:30"),
        ("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("1.2.3", "1.2.3"), ("2024-01-01", "2024-01-01"), ("'12'", "12"), ('"true"', "true"),
        ("! 12", "12"), ("!!str 12", "12"), ("=", "="), ("٣", "٣"),
    ],
)  # fmt: skip
def test_a_scalar_has_its_json_value(text: str, value: object) -> None:
    assert plain(f"a: {text}") == {"a": value}


def test_json_is_read_as_json() -> None:
    value: dict[str, object] = {"a": [1, 2.5, True, None, "x\ny"], "b": {"c": {}}, "d": []}
    assert plain(json.dumps(value)) == value
    assert plain(json.dumps(value, indent=2)) == value


def test_every_key_and_value_has_a_line_and_column() -> None:
    (root,) = read("a: 1\nb:\n  - x\n  - {c: d}\n").parts
    assert isinstance(root.value, dict)
    b = root.value["b"]
    assert (b.line, b.column) == (2, 1)
    assert isinstance(b.node.value, list)
    assert [(node.line, node.column) for node in b.node.value] == [(3, 5), (4, 5)]
    inner = b.node.value[1].value
    assert isinstance(inner, dict)
    assert (inner["c"].column, inner["c"].node.column) == (6, 9)


def test_aliases_and_merges_are_expanded() -> None:
    text = "base: &b {x: 1, y: 2}\none: {<<: *b, y: 3}\ntwo: {<<: [{y: 4}, *b]}\nthree: *b\n"
    assert plain(text) == {
        "base": {"x": 1, "y": 2},
        "one": {"x": 1, "y": 3},
        "two": {"x": 1, "y": 4},
        "three": {"x": 1, "y": 2},
    }


def test_anchors_end_with_their_part() -> None:
    problems = Problems()
    read_source("a: &a 1\n---\nb: *a\n", problems)
    assert [problem.code for problem in problems.items] == ["BadAlias"]


def test_empty_parts_are_left_out() -> None:
    assert [part.plain() for part in read("---\na: 1\n---\n# nothing\n---\nb: 2\n...\n").parts] == [
        {"a": 1},
        {"b": 2},
    ]


def test_an_alias_may_be_a_key() -> None:
    assert plain("a: &k name\n*k : 1\n") == {"a": "name", "name": 1}
