"""Kinds of value that only Polyaxon's present documents have: one or many, short and full parameters, a run by its kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor, nearest
from muster_formats.kinds import Kind, ListOf
from muster_formats.names import Schema
from muster_formats.problems import shown
from muster_formats.table import Nested, Section

T = TypeVar("T")


@dataclass(frozen=True)
class OneOrMany(Generic[T]):
    """A list of one kind, or one of it."""

    kind: Kind[T]

    def read(self, cursor: Cursor) -> list[T] | None:
        """See ``Kind``."""
        if isinstance(cursor.node.value, list):
            return ListOf(self.kind).read(cursor)
        one = self.kind.read(cursor)
        return None if one is None else [one]

    def schema(self) -> Schema:
        """See ``Kind``."""
        return {"anyOf": [self.kind.schema(), ListOf(self.kind).schema()]}


@dataclass(frozen=True)
class Param:
    """One parameter: a value alone, or a mapping with at least one key of the ``full`` form."""

    full: Nested

    def read(self, cursor: Cursor) -> Section | Cursor | None:
        """The full form as a section, a value alone as its place."""
        keys = cursor.items()
        if isinstance(cursor.node.value, dict) and (
            not keys or any(self.full.table.knows(key) for key in keys)
        ):
            return self.full.read(cursor)
        return cursor

    def schema(self) -> Schema:
        """Anything, since a value alone may be anything."""
        return {}


@dataclass(frozen=True)
class ByKind:
    """A mapping whose ``kind`` says which of the ``tables`` describes it; those of ``refused`` are not taken, and why."""

    tables: Mapping[str, Nested]
    refused: Mapping[str, str]

    def read(self, cursor: Cursor) -> Section | None:
        """The mapping by the table of its kind, or ``None`` after saying what is wrong with the kind."""
        if not isinstance(cursor.node.value, dict):
            cursor.wrong_type("a mapping")
            return None
        kind = cursor.items().get("kind")
        names = ", ".join(self.tables)
        if kind is None or kind.absent:
            cursor.missing("kind", "a run has a kind", f"add kind: one of {names}")
            return None
        word = kind.node.text
        if nested := self.tables.get(word):
            return nested.read(cursor)
        if why := self.refused.get(word):
            kind.error(Code.NOT_TAKEN, f"runs of kind {word} are not taken: {why}", allowed=names)
            return None
        near = nearest(word, self.tables)
        kind.error(
            Code.NOT_ALLOWED,
            f"there is no run of kind {shown(word)}",
            allowed=names,
            fix=f"did you mean {near}?" if near else "",
        )
        return None

    def schema(self) -> Schema:
        """One of the tables, with its kind."""
        shapes: list[Schema] = []
        for word, nested in self.tables.items():
            shape = nested.schema()
            properties = shape["properties"]
            if isinstance(properties, dict):
                shape["properties"] = {**properties, "kind": {"const": word}}
            shapes.append(shape)
        return {"anyOf": [*shapes]}
