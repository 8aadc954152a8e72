"""Types of field values: each type reads a value, reports what is wrong with it, and describes itself as JSON Schema.

Reader and schema come from the same object, so an editor's completion agrees with the parser.
"""

from __future__ import annotations

import enum
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from muster_core.models.problem_codes import Code
from muster_core.quantities import MAX_AMOUNT, MAX_SECONDS, QuantityError, parse_duration
from muster_formats.cursor import Cursor, nearest
from muster_formats.names import NameRule
from muster_formats.nodes import Json, JsonObject
from muster_formats.problems import shown

MAX_INT32 = 2**31 - 1
"""The largest value of many Kubernetes fields."""

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
E = TypeVar("E", bound=enum.StrEnum)


class FieldType(Protocol[T_co]):
    """A type of value. ``title`` is what ``muster fields`` shows, in the manner of ``kubectl explain``."""

    @property
    def title(self) -> str:
        """The type's name."""
        ...

    def read(self, cursor: Cursor) -> T_co | None:
        """Return the value, or ``None`` after reporting what is wrong with it."""
        ...

    def schema(self) -> JsonObject:
        """Return the JSON Schema of what ``read`` accepts."""
        ...


@dataclass(frozen=True)
class String:
    """A string, which must follow ``rule`` if there is one."""

    rule: NameRule | None = None
    title = "string"

    def read(self, cursor: Cursor) -> str | None:
        """See ``FieldType``."""
        value = cursor.node.value
        if not isinstance(value, str):
            unquoted = isinstance(value, bool | int | float)
            cursor.wrong_type(
                "a string", f'put it in quotes: "{shown(cursor.node.text)}"' if unquoted else ""
            )
            return None
        rule = self.rule
        if rule and not rule.allows(value):
            cursor.error(Code.BAD_NAME, rule.message(value), allowed=rule.description, fix=rule.fix(value))
            return None
        return value

    def schema(self) -> JsonObject:
        """See ``FieldType``."""
        return {"type": "string", **(self.rule.schema() if self.rule else {})}


@dataclass(frozen=True)
class LooseString:
    """A string that need not be quoted: numbers and booleans count as they are written."""

    title = "string"

    def read(self, cursor: Cursor) -> str | None:
        """See ``FieldType``."""
        if isinstance(cursor.node.value, list | dict):
            cursor.wrong_type("a string")
            return None
        return cursor.node.text if cursor.node.value is not None else ""

    def schema(self) -> JsonObject:
        """See ``FieldType``."""
        return {"type": ["string", "number", "boolean", "null"]}


@dataclass(frozen=True)
class Integer:
    """A whole number from ``low`` to ``high``."""

    low: int = 0
    high: int = MAX_AMOUNT
    title = "integer"

    def read(self, cursor: Cursor) -> int | None:
        """See ``FieldType``."""
        value = cursor.node.value
        if isinstance(value, bool) or not isinstance(value, int):
            quoted = isinstance(value, str) and value.isdecimal() and (value == "0" or value[0] != "0")
            cursor.wrong_type("a whole number", f"write {shown(value)} without quotes" if quoted else "")
            return None
        if not self.low <= value <= self.high:
            bound = f"at least {self.low}" if value < self.low else f"at most {self.high}"
            message = f"{cursor.path.rsplit('.', 1)[-1]} is {shown(value)}; it must be {bound}"
            cursor.error(Code.OUT_OF_RANGE, message, allowed=f"{self.low} to {self.high}")
            return None
        return value

    def schema(self) -> JsonObject:
        """See ``FieldType``."""
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True)
class Boolean:
    """A boolean."""

    title = "boolean"

    def read(self, cursor: Cursor) -> bool | None:
        """See ``FieldType``."""
        value = cursor.node.value
        if isinstance(value, bool):
            return value
        meant = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}
        correction = meant.get(value.lower()) if isinstance(value, str) else None
        cursor.wrong_type("true or false", f"write {correction}" if correction else "")
        return None

    def schema(self) -> JsonObject:
        """See ``FieldType``."""
        return {"type": "boolean"}


@dataclass(frozen=True)
class Choice(Generic[E]):
    """A value of an enumeration."""

    values: type[E]

    @property
    def title(self) -> str:
        """See ``FieldType``."""
        return " | ".join(member.value for member in self.values if member.value)

    def read(self, cursor: Cursor) -> E | None:
        """See ``FieldType``."""
        names = [member.value for member in self.values]
        value = cursor.node.value
        if isinstance(value, str) and value in names:
            return self.values(value)
        near = nearest(value, names) if isinstance(value, str) else ""
        allowed = ", ".join(names)
        cursor.error(
            Code.NOT_ALLOWED,
            f"{cursor.path.rsplit('.', 1)[-1]} must be one of {allowed}",
            allowed=allowed,
            fix=f"did you mean {near}?" if near else f"write one of {allowed}",
        )
        return None

    def schema(self) -> JsonObject:
        """See ``FieldType``."""
        return {"enum": [member.value for member in self.values]}


@dataclass(frozen=True)
class Duration:
    """A duration in seconds: a whole number, or a string such as ``1h30m``."""

    title = "duration"

    def read(self, cursor: Cursor) -> int | None:
        """See ``FieldType``."""
        try:
            return parse_duration(cursor.node.value)
        except QuantityError as error:
            allowed = "seconds, or 30s, 5m, 1h30m"
            cursor.error(Code.BAD_DURATION, str(error), allowed=allowed, fix="write it like 90s or 5m")
            return None

    def schema(self) -> JsonObject:
        """See ``FieldType``."""
        text: JsonObject = {"type": "string", "pattern": "^(?=.)([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$"}
        return {"anyOf": [{"type": "integer", "minimum": 0, "maximum": MAX_SECONDS}, text]}


@dataclass(frozen=True)
class Quantity:
    """An amount of a resource that ``parse`` reads; ``examples`` are for messages."""

    parse: Callable[[object], int]
    examples: str
    title = "quantity"

    def read(self, cursor: Cursor) -> int | None:
        """See ``FieldType``."""
        try:
            return self.parse(cursor.node.value)
        except QuantityError as error:
            value = cursor.node.value
            suffixed = isinstance(value, str) and value[-1:] in ("b", "B") and value[-2:-1].isalpha()
            fix = f"write {shown(value)[:-1]}" if suffixed else f"write it like {self.examples}"
            cursor.error(Code.BAD_QUANTITY, str(error), allowed=self.examples, fix=fix)
            return None

    def schema(self) -> JsonObject:
        """See ``FieldType``."""
        return {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": _QUANTITY_PATTERN}]}


_QUANTITY_PATTERN = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$"


@dataclass(frozen=True)
class ListOf(Generic[T]):
    """A list with elements of one type."""

    element: FieldType[T]

    @property
    def title(self) -> str:
        """See ``FieldType``."""
        return f"[]{self.element.title}"

    def read(self, cursor: Cursor) -> list[T] | None:
        """See ``FieldType``. Elements with errors are left out."""
        if not isinstance(cursor.node.value, list):
            cursor.wrong_type("a list", "put a hyphen before each element, or use [ ]")
            return None
        read = [self.element.read(element) for element in cursor.elements()]
        return [value for value in read if value is not None]

    def schema(self) -> JsonObject:
        """See ``FieldType``."""
        return {"type": "array", "items": self.element.schema()}


@dataclass(frozen=True)
class ArgumentList:
    """A command or its arguments, as a list of strings."""

    title = "[]string"

    def read(self, cursor: Cursor) -> list[str] | None:
        """See ``FieldType``."""
        value = cursor.node.value
        if isinstance(value, str):
            try:
                arguments = ", ".join(f'"{shown(word)}"' for word in shlex.split(value))
            except ValueError:
                arguments = '"sh", "-c", ...'
            cursor.wrong_type("a list of strings", f"write [{arguments}]")
            return None
        return ListOf(String()).read(cursor)

    def schema(self) -> JsonObject:
        """See ``FieldType``."""
        return ListOf(String()).schema()


@dataclass(frozen=True)
class MapOf(Generic[T]):
    """A mapping of names, which follow ``rule``, to values of one type; ``max_size`` bounds how many."""

    rule: NameRule | None
    value: FieldType[T]
    max_size: int | None = None

    @property
    def title(self) -> str:
        """See ``FieldType``."""
        return f"map[string]{self.value.title}"

    def read(self, cursor: Cursor) -> dict[str, T] | None:
        """See ``FieldType``. Values with errors are left out."""
        if not isinstance(cursor.node.value, dict):
            cursor.wrong_type("a mapping")
            return None
        elements = cursor.items()
        count = len(elements)
        if self.max_size is not None and count > self.max_size:
            message = f"{cursor.path.rsplit('.', 1)[-1]} has {count} keys, which is too many"
            cursor.error(Code.OUT_OF_RANGE, message, found=str(count), allowed=f"at most {self.max_size}")
            return None
        read: dict[str, T] = {}
        for key, element in elements.items():
            if self.rule and not self.rule.allows(key):
                cursor.problems.add(
                    Code.BAD_NAME,
                    cursor.key_location(key),
                    self.rule.message(key),
                    found=shown(key),
                    allowed=self.rule.description,
                    fix=self.rule.fix(key),
                )
                continue
            value = self.value.read(element)
            if value is not None:
                read[key] = value
        return read

    def schema(self) -> JsonObject:
        """See ``FieldType``."""
        names: JsonObject = {"propertyNames": self.rule.schema()} if self.rule else {}
        if self.max_size is not None:
            names["maxProperties"] = self.max_size
        return {"type": "object", **names, "additionalProperties": self.value.schema()}


@dataclass(frozen=True)
class RawMapping:
    """A mapping that is kept as it is."""

    title = "object"

    def read(self, cursor: Cursor) -> JsonObject | None:
        """See ``FieldType``."""
        if not isinstance(cursor.node.value, dict):
            cursor.wrong_type("a mapping")
            return None
        return {key: element.node.plain() for key, element in cursor.items().items()}

    def schema(self) -> JsonObject:
        """See ``FieldType``."""
        return {"type": "object"}


@dataclass(frozen=True)
class AnyValue:
    """Any value: for fields that Muster knows and does not read."""

    title = "any"

    def read(self, cursor: Cursor) -> Json:
        """See ``FieldType``."""
        return cursor.node.plain()

    def schema(self) -> JsonObject:
        """See ``FieldType``."""
        return {}
