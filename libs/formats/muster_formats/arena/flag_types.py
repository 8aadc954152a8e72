"""Field types of Arena's flags: every value is text, and most combine two values (``key=value``, ``claim:path``)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Generic, TypeVar

import msgspec

from muster_core.models import Toleration
from muster_core.models.problem_codes import Code
from muster_core.quantities import MAX_SECONDS
from muster_formats.cursor import Cursor
from muster_formats.field_types import Boolean, Duration, FieldType, Integer, Quantity
from muster_formats.names import DNS_1123, JsonObject, NameRule
from muster_formats.nodes import YamlEntry, YamlNode
from muster_formats.pods import TolerationFields, read_tolerations
from muster_formats.problems import shown
from muster_formats.schema import Field, Section

T = TypeVar("T")

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_GO_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(h|ms|m|s|us|µs|ns)")
_GO_DURATION = re.compile(rf"(?:{_GO_PART.pattern})+")
_GO_NANOSECONDS = {
    "h": 3600 * 10**9,
    "m": 60 * 10**9,
    "s": 10**9,
    "ms": 10**6,
    "us": 10**3,
    "µs": 10**3,
    "ns": 1,
}
_MAX_TEXT = 64
_EXISTS = "Exists"
_CLAIM = replace(DNS_1123, noun="the name of a volume claim", max_length=253)


@dataclass(frozen=True)
class Flag(Field[T], Generic[T]):
    """A flag: ``older`` lists other spellings, ``short`` its letter; ``many`` allows repetition."""

    older: tuple[str, ...] = ()
    short: str = ""
    many: bool = False

    @property
    def takes_value(self) -> bool:
        """Whether the next word is its value."""
        return not isinstance(self.type, Switch)

    @property
    def names(self) -> tuple[str, ...]:
        """Return every spelling."""
        return (self.key, *self.older, *((self.short,) if self.short else ()))


@dataclass(frozen=True)
class Switch:
    """A switch: given alone, or ``=true``, ``=false``."""

    title = "boolean"
    _meant: ClassVar[dict[str, bool]] = {
        **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
        **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
    }

    def read(self, cursor: Cursor) -> bool | None:
        """Read the value; see ``FieldType``."""
        value = cursor.node.value
        if isinstance(value, str) and value in self._meant:
            return self._meant[value]
        return Boolean().read(cursor)

    def schema(self) -> JsonObject:
        """Return the JSON Schema; see ``FieldType``."""
        return Boolean().schema()


@dataclass(frozen=True)
class Count(Integer):
    """An integer."""

    def read(self, cursor: Cursor) -> int | None:
        """Read the value; see ``FieldType``."""
        text = cursor.node.text
        if not _INTEGER.fullmatch(text):
            cursor.wrong_type("a whole number")
            return None
        return super().read(replace(cursor, node=replace(cursor.node, value=int(text))))


@dataclass(frozen=True)
class GoDuration:
    """A duration as Arena writes it (``2h22m``, ``1.5h``, ``90s``), in whole seconds, rounded up; a bare number is seconds."""

    title = "duration"

    def read(self, cursor: Cursor) -> int | None:
        """Read the value; see ``FieldType``."""
        text = cursor.node.text
        if len(text) <= _MAX_TEXT and _GO_DURATION.fullmatch(text):
            parts = _GO_PART.findall(text)
            exact = sum(Fraction(f"0{number}") * _GO_NANOSECONDS[unit] for number, unit in parts)
            if (seconds := math.ceil(exact / 10**9)) <= MAX_SECONDS:
                return seconds
        bare = len(text) <= _MAX_TEXT and text.isascii() and text.isdecimal()
        node = replace(cursor.node, value=int(text)) if bare else cursor.node
        return Duration().read(replace(cursor, node=node))

    def schema(self) -> JsonObject:
        """Read the value; see ``FieldType``."""
        return Duration().schema()


@dataclass(frozen=True)
class OneOf:
    """One of several texts, or what ``also`` reads."""

    texts: tuple[str, ...]
    also: FieldType[int] | None = None

    @property
    def title(self) -> str:
        """See ``FieldType``."""
        return " | ".join((*self.texts, *(("integer",) if self.also else ())))

    def read(self, cursor: Cursor) -> str | None:
        """Read the value; see ``FieldType``."""
        text = cursor.node.text
        if text in self.texts:
            return text
        if self.also and _INTEGER.fullmatch(text):
            number = self.also.read(cursor)
            return None if number is None else str(number)
        allowed = ", ".join((*self.texts, *(("a whole number",) if self.also else ())))
        cursor.error(Code.NOT_ALLOWED, f"{cursor.path} must be one of {allowed}", allowed=allowed)
        return None

    def schema(self) -> JsonObject:
        """Return the JSON Schema; see ``FieldType``."""
        return {"enum": list(self.texts)} if self.also is None else {"type": "string"}


@dataclass(frozen=True)
class Pair(Generic[T]):
    """``key=value``: a key that matches ``rule``, and a value that ``kind`` reads."""

    title = "key=value"
    rule: NameRule
    kind: FieldType[T]

    def read(self, cursor: Cursor) -> tuple[str, T] | None:
        """Read the value; see ``FieldType``."""
        key, sign, value = cursor.node.text.partition("=")
        if not sign:
            cursor.error(
                Code.NOT_ALLOWED,
                f"{cursor.path} must be key=value, not {shown(cursor.node.text)}",
                allowed="key=value",
                fix=f"write {cursor.path} {shown(key)}=...",
            )
            return None
        if not self.rule.allows(key):
            cursor.error(
                Code.BAD_NAME,
                self.rule.message(key),
                found=shown(key),
                allowed=self.rule.description,
                fix=self.rule.fix(key),
            )
            return None
        read = self.kind.read(replace(cursor, node=replace(cursor.node, value=value, text=value)))
        return None if read is None else (key, read)

    def schema(self) -> JsonObject:
        """Return the JSON Schema; see ``FieldType``."""
        return {"type": "string", "pattern": "^[^=]+="}


class Mount(msgspec.Struct, frozen=True):
    """A volume claim, or a folder of the node, mounted at ``path``."""

    source: str
    path: str


@dataclass(frozen=True)
class ClaimMount:
    """``claim:/path``."""

    title = "claim:path"

    def read(self, cursor: Cursor) -> Mount | None:
        """Read the value; see ``FieldType``."""
        claim, _, path = cursor.node.text.partition(":")
        if not path.startswith("/"):
            words = f"{cursor.path} must be claim:/path, not {shown(cursor.node.text)}"
            cursor.error(
                Code.NOT_ALLOWED, words, allowed="the name of a volume claim, a colon, and the mount path"
            )
            return None
        if not _CLAIM.allows(claim) and not all(DNS_1123.allows(part) for part in claim.split(".")):
            cursor.error(
                Code.BAD_NAME,
                _CLAIM.message(claim),
                found=shown(claim),
                allowed=_CLAIM.description,
                fix=_CLAIM.fix(claim),
            )
            return None
        return Mount(claim, path)

    def schema(self) -> JsonObject:
        """Return the JSON Schema; see ``FieldType``."""
        return {"type": "string", "pattern": "^[^:]+:/"}


@dataclass(frozen=True)
class FolderMount:
    """``/folder:/path``, or ``/folder`` for both."""

    title = "folder[:path]"

    def read(self, cursor: Cursor) -> Mount | None:
        """Read the value; see ``FieldType``."""
        folder, sign, path = cursor.node.text.partition(":")
        if folder.startswith("/") and (path.startswith("/") or not sign):
            return Mount(folder, path or folder)
        words = f"{cursor.path} must be /folder or /folder:/path, not {shown(cursor.node.text)}"
        cursor.error(Code.NOT_ALLOWED, words, allowed="absolute paths: on the node, and in the container")
        return None

    def schema(self) -> JsonObject:
        """Return the JSON Schema; see ``FieldType``."""
        return {"type": "string", "pattern": "^/"}


@dataclass(frozen=True)
class Tolerated:
    """``all``, or ``key``, ``key=value``, each optionally with ``:effect`` and ``,operator``."""

    title = "toleration"

    def read(self, cursor: Cursor) -> Toleration | None:
        """Read the value; see ``FieldType``."""
        text = cursor.node.text
        if text == "all":
            return Toleration(operator=_EXISTS)
        text, _, operator = text.partition(",")
        text, _, effect = text.partition(":")
        key, _, value = text.partition("=")
        given = {
            "key": key,
            "value": value,
            "effect": effect,
            "operator": operator or ("Equal" if value else _EXISTS),
        }
        args, column = cursor.node.line, cursor.node.column
        entries = {
            name: YamlEntry(args, column, YamlNode(word, args, column, text=word))
            for name, word in given.items()
            if word
        }
        before = len(cursor.problems.items)
        section = Section(replace(cursor, node=YamlNode(entries, args, column)), TolerationFields)
        (toleration,) = read_tolerations([section])
        return toleration if len(cursor.problems.items) == before else None

    def schema(self) -> JsonObject:
        """Return the JSON Schema; see ``FieldType``."""
        return {"type": "string"}


@dataclass(frozen=True)
class Priority:
    """A number. A priority class name, which Arena takes, is accepted without effect."""

    title = "integer"

    def read(self, cursor: Cursor) -> int | None:
        """Read the value; see ``FieldType``."""
        if _INTEGER.fullmatch(cursor.node.text):
            return Count(-(2**31), 2**31 - 1).read(cursor)
        why = f"{shown(cursor.node.text)} is a priority class of a cluster; here a priority is a number"
        cursor.warn_ignored(cursor.path, why, fix="write a number; higher goes first, default 0")
        return None

    def schema(self) -> JsonObject:
        """Return the JSON Schema; see ``FieldType``."""
        return {"type": ["integer", "string"]}


@dataclass(frozen=True)
class QuantityText:
    """A quantity that keeps its spelling after ``parse`` has accepted it."""

    title = "quantity"
    amount: Quantity

    def read(self, cursor: Cursor) -> str | None:
        """Read the value; see ``FieldType``."""
        return None if self.amount.read(cursor) is None else cursor.node.text

    def schema(self) -> JsonObject:
        """Return the JSON Schema; see ``FieldType``."""
        return self.amount.schema()
