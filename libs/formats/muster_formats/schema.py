"""Tables of fields: one class per mapping of a format, listing every field that it may have.

The reader, the JSON Schema and ``muster fields`` all use the same tables, so a field is known everywhere or nowhere.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar, cast

from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.field_types import AnyValue, FieldType
from muster_formats.names import NameRule
from muster_formats.nodes import JsonObject

T = TypeVar("T")


class Effect(enum.StrEnum):
    """What Muster does with a field."""

    SUPPORTED = "supported"
    PARTLY = "partly supported"
    KUBERNETES = "Kubernetes only"
    IGNORED = "ignored"
    REJECTED = "rejected"


@dataclass(frozen=True)
class Field(Generic[T]):
    """A field of a mapping: its key, its type and its documentation.

    ``ignored`` says why the field has no effect; every use is a warning. ``rejected`` says why it is not supported; every use is an error,
    and ``fix`` says what to do instead. ``partly`` says which values are not supported. ``kubernetes``: it has an effect on Kubernetes
    only.
    """

    key: str
    type: FieldType[T]
    doc: str = ""
    ignored: str = ""
    rejected: str = ""
    fix: str = ""
    partly: str = ""
    kubernetes: bool = False

    @property
    def effect(self) -> Effect:
        """What Muster does with it."""
        if self.rejected:
            return Effect.REJECTED
        if self.ignored:
            return Effect.IGNORED
        if self.partly:
            return Effect.PARTLY
        return Effect.KUBERNETES if self.kubernetes else Effect.SUPPORTED


def ignored(key: str, doc: str, reason: str) -> Field[object]:
    """Return a field without effect, of any value."""
    return Field(key, AnyValue(), doc, ignored=reason)


def rejected(key: str, doc: str, reason: str, *, fix: str = "") -> Field[object]:
    """Return a field that is not supported, of any value."""
    return Field(key, AnyValue(), doc, rejected=reason, fix=fix)


class Table:
    """Base class of tables, whose class attributes are fields.

    ``required`` keys, and the keys of ``one_of``, of which one must be given, are for the JSON Schema only: readers report missing keys
    with messages of their own. ``unread`` keys are allowed and not read. Keys that follow the rule of ``others`` are allowed and hold its
    type.
    """

    required: ClassVar[tuple[str, ...]] = ()
    one_of: ClassVar[tuple[str, ...]] = ()
    unread: ClassVar[frozenset[str]] = frozenset()
    others: ClassVar[tuple[NameRule, FieldType[object]] | None] = None

    @classmethod
    def fields(cls) -> Mapping[str, Field[object]]:
        """The fields by key, in order of declaration."""
        return _fields(cls)

    @classmethod
    def allows(cls, key: str) -> bool:
        """Whether the mapping may have ``key``."""
        others = cls.others
        return key in _fields(cls) or key in cls.unread or (others is not None and others[0].allows(key))


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
    """A mapping of a document read by a table: unknown, ignored and rejected keys are reported once, fields are read on demand."""

    def __init__(self, cursor: Cursor, table: type[Table]) -> None:
        self.cursor = cursor
        self.table = table
        self._cursors = cursor.items()
        fields = table.fields()
        for key, value in self._cursors.items():
            if not table.allows(key):
                usable = {name for name, one in fields.items() if not one.rejected}
                cursor.unknown(key, usable | table.unread)
            elif (field := fields.get(key)) and not value.is_null:
                _report_effect(field, value, cursor)

    def get(self, field: Field[T]) -> T | None:
        """The value of a field; ``None`` if it is not given or has errors."""
        cursor = self.at(field.key)
        return field.type.read(cursor) if cursor else None

    def get_misspelt(self, field: Field[T], *misspelt: Field[T]) -> T | None:
        """The value of a field that published documents also misspell.

        Using a misspelt key is a warning, using two keys is an error.
        """
        given = [one for one in (field, *misspelt) if self.given(one)]
        problems = self.cursor.problems
        for other in given[1:]:
            message = f"{given[0].key} and {other.key} are the same field"
            location = self.cursor.key_location(other.key)
            problems.add(Code.CONFLICT, location, message, fix="remove one of the two")
        if given and given[0] is not field:
            key = given[0].key
            location = self.cursor.key_location(key)
            fix = f"write {field.key}"
            problems.warn(Code.MISSPELT, location, f"{key} is read as {field.key}", found=key, fix=fix)
        return self.get(given[0]) if given else None

    def at(self, key: str) -> Cursor | None:
        """The cursor of a key; ``None`` if it is not given or null."""
        cursor = self._cursors.get(key)
        return cursor if cursor and not cursor.is_null else None

    def given(self, field: Field[T]) -> bool:
        """Whether a field is given."""
        return self.at(field.key) is not None

    def extras(self) -> dict[str, Cursor]:
        """The given keys that are not fields of the table."""
        known = self.table.fields()
        return {key: one for key, one in self._cursors.items() if key not in known and not one.is_null}

    def given_keys(self) -> list[str]:
        """The keys that are given."""
        return [key for key, cursor in self._cursors.items() if not cursor.is_null]


def _report_effect(field: Field[object], value: Cursor, parent: Cursor) -> None:
    if field.rejected:
        message = f"{field.key} is not supported: {field.rejected}"
        value.problems.add(Code.UNSUPPORTED, parent.key_location(field.key), message, fix=field.fix)
    elif field.ignored:
        value.warn_ignored(field.key, field.ignored)


@dataclass(frozen=True)
class Nested:
    """A mapping with a table of its own."""

    table: type[Table]
    title = "object"

    def read(self, cursor: Cursor) -> Section | None:
        """See ``FieldType``."""
        if not isinstance(cursor.node.value, dict):
            cursor.wrong_type("a mapping")
            return None
        return Section(cursor, self.table)

    def schema(self) -> JsonObject:
        """See ``FieldType``."""
        properties: JsonObject = {}
        for key, field in self.table.fields().items():
            properties[key] = {**field.type.schema(), **({"description": field.doc} if field.doc else {})}
        schema: JsonObject = {"type": "object", "additionalProperties": False, "properties": properties}
        if self.table.others:
            rule, value = self.table.others
            schema["patternProperties"] = {f"^{rule.pattern}$": value.schema()}
        if self.table.required:
            schema["required"] = list(self.table.required)
        if self.table.one_of:
            schema["anyOf"] = [{"required": [key]} for key in self.table.one_of]
        return schema
