"""Tables of fields: one class per mapping of a format, which says all that may stand in it.

A table is both how the mapping is read and how it is described, so a key that is in it is known everywhere and one that is not is
refused everywhere.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar, cast

from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor, warn_idle
from muster_formats.kinds import Kind
from muster_formats.names import Rule, Schema

T = TypeVar("T")


class Effect(enum.StrEnum):
    """What becomes of a field that is given."""

    ACTED_UPON = "acted upon"
    PARTLY = "acted upon in part"
    KUBERNETES = "kept for Kubernetes"
    WARNED = "accepted with a warning"
    REFUSED = "refused"


@dataclass(frozen=True)
class Field(Generic[T]):
    """One key of a mapping: what it may hold, and what it is for.

    ``idle`` says why it is accepted without effect (every use is a warning), ``refused`` why it is not taken (every use is an error) and
    ``fix`` what to do instead, where there is something to do; ``partly`` says which of its values are not followed, which a rule tells;
    ``kubernetes`` marks what has an effect on Kubernetes only.
    """

    key: str
    kind: Kind[T]
    doc: str = ""
    idle: str = ""
    refused: str = ""
    fix: str = ""
    partly: str = ""
    kubernetes: bool = False

    @property
    def effect(self) -> Effect:
        """What becomes of it."""
        if self.refused:
            return Effect.REFUSED
        if self.idle:
            return Effect.WARNED
        if self.partly:
            return Effect.PARTLY
        return Effect.KUBERNETES if self.kubernetes else Effect.ACTED_UPON


class Table:
    """A base for tables: class attributes that are fields.

    ``required`` keys, and ``one_of`` which one must be given, are for the schema only, since what to say when one is missing is the
    reader's to know. ``kept`` keys are known and
    not read, because the mapping is kept as it is. Keys that follow the rule
    of ``others`` are known too, and hold its kind.
    """

    required: ClassVar[tuple[str, ...]] = ()
    one_of: ClassVar[tuple[str, ...]] = ()
    kept: ClassVar[frozenset[str]] = frozenset()
    others: ClassVar[tuple[Rule, Kind[object]] | None] = None

    @classmethod
    def fields(cls) -> Mapping[str, Field[object]]:
        """The fields by key, in the order in which they are written."""
        return _fields(cls)

    @classmethod
    def knows(cls, key: str) -> bool:
        """Whether a key may stand here."""
        return (
            key in _fields(cls) or key in cls.kept or (cls.others is not None and cls.others[0].allows(key))
        )


@functools.cache
def _fields(table: type[Table]) -> Mapping[str, Field[object]]:
    found: dict[str, Field[object]] = {}
    for base in reversed(table.__mro__):
        for value in cast("dict[str, object]", dict(vars(base))).values():
            if isinstance(value, Field):
                field = cast("Field[object]", value)
                found[field.key] = field
    return found


class Section:
    """A mapping that is read by a table: unknown keys are told once, fields are read where they are needed."""

    def __init__(self, cursor: Cursor, table: type[Table]) -> None:
        self.cursor = cursor
        self.table = table
        self._cursors = cursor.items()
        fields = table.fields()
        for key, value in self._cursors.items():
            if not table.knows(key):
                cursor.unknown(key, {*(name for name, one in fields.items() if not one.refused), *table.kept})
            elif (field := fields.get(key)) and not value.absent:
                _tell(field, value, cursor)

    def get(self, field: Field[T]) -> T | None:
        """The value of a field; ``None`` if it is not given or was refused."""
        cursor = self.at(field.key)
        return field.kind.read(cursor) if cursor else None

    def at(self, key: str) -> Cursor | None:
        """The place of a key that is given; null counts as not given."""
        cursor = self._cursors.get(key)
        return cursor if cursor and not cursor.absent else None

    def given(self, field: Field[T]) -> bool:
        """Whether a field is given."""
        return self.at(field.key) is not None

    def extras(self) -> dict[str, Cursor]:
        """What is given under keys that are not in the table."""
        known = self.table.fields()
        return {
            key: cursor for key, cursor in self._cursors.items() if key not in known and not cursor.absent
        }

    def given_keys(self) -> list[str]:
        """The keys that are given."""
        return [key for key, cursor in self._cursors.items() if not cursor.absent]


def _tell(field: Field[object], value: Cursor, parent: Cursor) -> None:
    if field.refused:
        words = f"{field.key} is not taken: {field.refused}"
        value.problems.add(Code.NOT_TAKEN, parent.key_spot(field.key), words, fix=field.fix)
    elif field.idle:
        warn_idle(value, field.key, field.idle)


@dataclass(frozen=True)
class Nested:
    """A mapping with a table of its own."""

    table: type[Table]

    def read(self, cursor: Cursor) -> Section | None:
        """The mapping, or ``None`` after saying that it is none."""
        if not isinstance(cursor.node.value, dict):
            cursor.wrong_type("a mapping")
            return None
        return Section(cursor, self.table)

    def schema(self) -> Schema:
        """The JSON Schema of the table."""
        properties: Schema = {}
        for key, field in self.table.fields().items():
            properties[key] = {**field.kind.schema(), **({"description": field.doc} if field.doc else {})}
        schema: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
        if self.table.others:
            rule, kind = self.table.others
            schema["patternProperties"] = {f"^{rule.pattern}$": kind.schema()}
        if self.table.required:
            schema["required"] = list(self.table.required)
        if self.table.one_of:
            schema["anyOf"] = [{"required": [key]} for key in self.table.one_of]
        return schema
