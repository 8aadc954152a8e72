"""Field types of Polyaxon 1.x only: one or many, short and full parameters, a run by its kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor, nearest
from muster_formats.field_types import (
    FieldType,
    ListOf,
)
from muster_formats.names import JsonObject
from muster_formats.problems import shown
from muster_formats.schema import Nested, Section

T = TypeVar("T")


@dataclass(frozen=True)
class OneOrMany(Generic[T]):
    """A list of one type, or a single value of it."""

    kind: FieldType[T]

    @property
    def title(self) -> str:
        """See ``FieldType``."""
        return f"{self.kind.title} | []{self.kind.title}"

    def read(self, cursor: Cursor) -> list[T] | None:
        """Read the value; see ``FieldType``."""
        if isinstance(cursor.node.value, list):
            return ListOf(self.kind).read(cursor)
        one = self.kind.read(cursor)
        return None if one is None else [one]

    def schema(self) -> JsonObject:
        """Return the JSON Schema; see ``FieldType``."""
        return {"anyOf": [self.kind.schema(), ListOf(self.kind).schema()]}


@dataclass(frozen=True)
class V1Param:
    """One parameter: a bare value, or a mapping with at least one key of the ``full`` form."""

    title = "any"
    full: Nested

    def read(self, cursor: Cursor) -> Section | Cursor | None:
        """Read the full form as a section, a bare value as its location."""
        keys = cursor.items()
        if isinstance(cursor.node.value, dict) and (
            not keys or any(self.full.table.allows(key) for key in keys)
        ):
            return self.full.read(cursor)
        return cursor

    def schema(self) -> JsonObject:
        """Return the JSON Schema: anything, since a bare value may be anything."""
        return {}


@dataclass(frozen=True)
class ByKind:
    """A mapping whose ``kind`` selects one of the ``tables``; kinds in ``refused`` are rejected with their reason."""

    title = "object"
    tables: Mapping[str, Nested]
    refused: Mapping[str, str]

    def read(self, cursor: Cursor) -> Section | None:
        """Return the mapping by the table of its kind, or ``None`` after reporting a problem."""
        if not isinstance(cursor.node.value, dict):
            cursor.wrong_type("a mapping")
            return None
        kind = cursor.items().get("kind")
        names = ", ".join(self.tables)
        if kind is None or kind.is_null:
            cursor.missing("kind", "kind is missing", f"add kind: one of {names}")
            return None
        word = kind.node.text
        if nested := self.tables.get(word):
            return nested.read(cursor)
        if why := self.refused.get(word):
            kind.error(Code.UNSUPPORTED, f"runs of kind {word} are not supported: {why}", allowed=names)
            return None
        near = nearest(word, self.tables)
        kind.error(
            Code.NOT_ALLOWED,
            f"{shown(word)} is not a kind of run",
            allowed=names,
            fix=f"did you mean {near}?" if near else "",
        )
        return None

    def schema(self) -> JsonObject:
        """Return the JSON Schema: one of the tables, with its kind."""
        shapes: list[JsonObject] = []
        for word, nested in self.tables.items():
            shape = nested.schema()
            properties = shape["properties"]
            if isinstance(properties, dict):
                shape["properties"] = {**properties, "kind": {"const": word}}
            shapes.append(shape)
        return {"anyOf": [*shapes]}
