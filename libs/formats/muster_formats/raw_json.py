"""JSON that is kept as it is (templates, affinities, parameters): what of it would not mean the same to everyone who reads it later.

Many readers keep numbers as doubles, the API's own message among them; and a job that is written in the native form is read under the
bounds of every document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from muster_core.models.problem_codes import Code
from muster_formats.yaml_builder import Entry, Json, Node

EXACT = 2**53
"""Up to here a double keeps every whole number."""

MAX_LEVELS = 30
"""How deep it may be nested; what stands around it in a document comes to that."""


def flaw_of(value: object) -> tuple[Code, str, str] | None:
    """The first thing that some readers would not keep, as a code, words and a remedy; ``None`` where there is none."""
    return _flaw(value, MAX_LEVELS)


def node_of(value: Json) -> Node:
    """A value as a node that stands nowhere, for readers of documents."""
    match value:
        case dict():
            return Node({key: Entry(0, 0, node_of(inner)) for key, inner in value.items()}, 0, 0)
        case list():
            return Node([node_of(inner) for inner in value], 0, 0)
        case None:
            return Node(None, 0, 0)
        case bool():
            return Node(value, 0, 0, text="true" if value else "false")
        case _:
            return Node(value, 0, 0, text=str(value))


def _flaw(value: object, levels: int) -> tuple[Code, str, str] | None:
    match value:
        case bool() | str():
            return None
        case int():
            if abs(value) <= EXACT:
                return None
            words = f"a number above {EXACT} is not the same to every reader of JSON"
            return Code.BAD_NUMBER, words, "put it in quotes"
        case Mapping():
            inner = cast("Mapping[str, object]", value).values()
        case Sequence():
            inner = cast("Sequence[object]", value)
        case _:
            return None
    if levels == 0:
        return Code.TOO_DEEP, f"it is nested deeper than {MAX_LEVELS} levels", "make it flatter"
    return next((flaw for one in inner if (flaw := _flaw(one, levels - 1))), None)
