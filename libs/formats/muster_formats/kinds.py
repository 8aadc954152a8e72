"""What a field may hold: each kind reads a value, says what is wrong with it, and describes itself as JSON Schema.

Reader and schema come from the same object, so that an editor's completion never promises what the parser refuses.
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
from muster_formats.names import Rule, Schema
from muster_formats.problems import shown
from muster_formats.yaml_builder import Json

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
E = TypeVar("E", bound=enum.StrEnum)


class Kind(Protocol[T_co]):
    """A kind of value."""

    def read(self, cursor: Cursor) -> T_co | None:
        """The value, or ``None`` after saying what is wrong with it."""
        ...

    def schema(self) -> Schema:
        """The JSON Schema of what ``read`` accepts."""
        ...


@dataclass(frozen=True)
class Text:
    """A text, by ``rule`` where there is one."""

    rule: Rule | None = None

    def read(self, cursor: Cursor) -> str | None:
        """See ``Kind``."""
        value = cursor.node.value
        if not isinstance(value, str):
            quoted = isinstance(value, bool | int | float)
            cursor.wrong_type("a text", f'put it in quotes: "{shown(cursor.node.text)}"' if quoted else "")
            return None
        if self.rule and not self.rule.allows(value):
            cursor.error(
                Code.BAD_NAME, self.rule.message(value), allowed=self.rule.words, fix=self.rule.remedy(value)
            )
            return None
        return value

    def schema(self) -> Schema:
        """See ``Kind``."""
        return {"type": "string", **(self.rule.schema() if self.rule else {})}


@dataclass(frozen=True)
class Loose:
    """A text that need not be quoted: numbers and booleans count as they are written."""

    def read(self, cursor: Cursor) -> str | None:
        """See ``Kind``."""
        if isinstance(cursor.node.value, list | dict):
            cursor.wrong_type("a text")
            return None
        return cursor.node.text if cursor.node.value is not None else ""

    def schema(self) -> Schema:
        """See ``Kind``."""
        return {"type": ["string", "number", "boolean", "null"]}


@dataclass(frozen=True)
class Whole:
    """A whole number within bounds."""

    low: int = 0
    high: int = MAX_AMOUNT

    def read(self, cursor: Cursor) -> int | None:
        """See ``Kind``."""
        value = cursor.node.value
        if isinstance(value, bool) or not isinstance(value, int):
            unquoted = isinstance(value, str) and value.isdecimal() and (value == "0" or value[0] != "0")
            cursor.wrong_type("a whole number", f"write {shown(value)} without quotes" if unquoted else "")
            return None
        if not self.low <= value <= self.high:
            words = f"{cursor.path.rsplit('.', 1)[-1]} is {shown(value)}"
            bound = f"the least is {self.low}" if value < self.low else f"the most is {self.high}"
            cursor.error(Code.OUT_OF_RANGE, f"{words}; {bound}", allowed=f"{self.low} to {self.high}")
            return None
        return value

    def schema(self) -> Schema:
        """See ``Kind``."""
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True)
class Truth:
    """A boolean."""

    def read(self, cursor: Cursor) -> bool | None:
        """See ``Kind``."""
        value = cursor.node.value
        if isinstance(value, bool):
            return value
        meant = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}
        word = meant.get(value.lower()) if isinstance(value, str) else None
        cursor.wrong_type("true or false", f"write {word}" if word else "")
        return None

    def schema(self) -> Schema:
        """See ``Kind``."""
        return {"type": "boolean"}


@dataclass(frozen=True)
class Choice(Generic[E]):
    """One of an enumeration's values."""

    values: type[E]

    def read(self, cursor: Cursor) -> E | None:
        """See ``Kind``."""
        names = [member.value for member in self.values]
        value = cursor.node.value
        if isinstance(value, str) and value in names:
            return self.values(value)
        near = nearest(value, names) if isinstance(value, str) else ""
        cursor.error(
            Code.NOT_ALLOWED,
            f"{cursor.path.rsplit('.', 1)[-1]} is one of {', '.join(names)}",
            allowed=", ".join(names),
            fix=f"did you mean {near}?" if near else "",
        )
        return None

    def schema(self) -> Schema:
        """See ``Kind``."""
        return {"enum": [member.value for member in self.values]}


@dataclass(frozen=True)
class Duration:
    """A duration in seconds: a whole number, or a text such as ``1h30m``."""

    def read(self, cursor: Cursor) -> int | None:
        """See ``Kind``."""
        try:
            return parse_duration(cursor.node.value)
        except QuantityError as error:
            cursor.error(
                Code.BAD_DURATION,
                str(error),
                allowed="seconds, or 30s, 5m, 1h30m",
                fix="write it like 90s or 5m",
            )
            return None

    def schema(self) -> Schema:
        """See ``Kind``."""
        text: Schema = {"type": "string", "pattern": "^(?=.)([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$"}
        return {"anyOf": [{"type": "integer", "minimum": 0, "maximum": MAX_SECONDS}, text]}


@dataclass(frozen=True)
class Amount:
    """An amount of a resource, as ``parse`` reads it; ``examples`` stand in messages."""

    parse: Callable[[object], int]
    examples: str

    def read(self, cursor: Cursor) -> int | None:
        """See ``Kind``."""
        try:
            return self.parse(cursor.node.value)
        except QuantityError as error:
            value = cursor.node.value
            suffixed = isinstance(value, str) and value[-1:] in ("b", "B") and value[-2:-1].isalpha()
            fix = f"write {shown(value)[:-1]}" if suffixed else f"write it like {self.examples}"
            cursor.error(Code.BAD_QUANTITY, str(error), allowed=self.examples, fix=fix)
            return None

    def schema(self) -> Schema:
        """See ``Kind``."""
        return {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": _QUANTITY_PATTERN}]}


_QUANTITY_PATTERN = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$"


@dataclass(frozen=True)
class ListOf(Generic[T]):
    """A list of one kind."""

    kind: Kind[T]

    def read(self, cursor: Cursor) -> list[T] | None:
        """See ``Kind``. Elements that are refused are left out."""
        if not isinstance(cursor.node.value, list):
            cursor.wrong_type("a list", "put a hyphen before each element, or use [ ]")
            return None
        read = [self.kind.read(element) for element in cursor.elements()]
        return [value for value in read if value is not None]

    def schema(self) -> Schema:
        """See ``Kind``."""
        return {"type": "array", "items": self.kind.schema()}


@dataclass(frozen=True)
class Words:
    """A list of texts that are a command."""

    def read(self, cursor: Cursor) -> list[str] | None:
        """See ``Kind``."""
        value = cursor.node.value
        if isinstance(value, str):
            try:
                words = ", ".join(f'"{shown(word)}"' for word in shlex.split(value))
            except ValueError:
                words = '"sh", "-c", ...'
            cursor.wrong_type("a list of texts", f"write [{words}]")
            return None
        return ListOf(Text()).read(cursor)

    def schema(self) -> Schema:
        """See ``Kind``."""
        return ListOf(Text()).schema()


@dataclass(frozen=True)
class MapOf(Generic[T]):
    """A mapping of names, by ``rule``, to one kind; ``most`` bounds how many."""

    rule: Rule | None
    kind: Kind[T]
    most: int | None = None

    def read(self, cursor: Cursor) -> dict[str, T] | None:
        """See ``Kind``. Values that are refused are left out."""
        if not isinstance(cursor.node.value, dict):
            cursor.wrong_type("a mapping")
            return None
        elements = cursor.items()
        if self.most is not None and len(elements) > self.most:
            words = f"{cursor.path.rsplit('.', 1)[-1]} has {len(elements)} keys, which is too many"
            cursor.error(Code.OUT_OF_RANGE, words, found=str(len(elements)), allowed=f"at most {self.most}")
            return None
        read: dict[str, T] = {}
        for key, element in elements.items():
            if self.rule and not self.rule.allows(key):
                cursor.problems.add(
                    Code.BAD_NAME,
                    cursor.key_spot(key),
                    self.rule.message(key),
                    found=shown(key),
                    allowed=self.rule.words,
                    fix=self.rule.remedy(key),
                )
                continue
            value = self.kind.read(element)
            if value is not None:
                read[key] = value
        return read

    def schema(self) -> Schema:
        """See ``Kind``."""
        names: Schema = {"propertyNames": self.rule.schema()} if self.rule else {}
        if self.most is not None:
            names["maxProperties"] = self.most
        return {"type": "object", **names, "additionalProperties": self.kind.schema()}


@dataclass(frozen=True)
class Raw:
    """A mapping that is kept as it is."""

    def read(self, cursor: Cursor) -> dict[str, Json] | None:
        """See ``Kind``."""
        if not isinstance(cursor.node.value, dict):
            cursor.wrong_type("a mapping")
            return None
        return {key: element.node.plain() for key, element in cursor.items().items()}

    def schema(self) -> Schema:
        """See ``Kind``."""
        return {"type": "object"}


@dataclass(frozen=True)
class Ignored:
    """Anything: known, and read by nobody."""

    def read(self, cursor: Cursor) -> Json:
        """See ``Kind``."""
        return cursor.node.plain()

    def schema(self) -> Schema:
        """See ``Kind``."""
        return {}
