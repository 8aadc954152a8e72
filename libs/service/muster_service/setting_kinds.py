"""Setting types, and how each is read from text.

Each type defines three things: how to parse a text, its name in a table, and a description of allowed values.
"""

import enum
import math
import re
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, Union, cast, get_args, get_origin

import msgspec

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_DURATION_SUFFIXES = ("_s", "_seconds")
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})
_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:\s\[\]]+):(?P<port>\d{1,5})")


class Secret(str):
    """A text that is never shown: printing or formatting it gives `***`."""

    __slots__ = ()

    def reveal(self) -> str:
        """Return the text itself."""
        return str.__str__(self)

    def __str__(self) -> str:
        return "***"

    def __repr__(self) -> str:
        return "Secret('***')"

    def __format__(self, format_spec: str) -> str:
        return "***"


class Address(str):
    """A `host:port` to bind or to dial; an IPv6 host is in brackets; port 0 means a free port.

    Raises:
        ValueError: the text is not of that form.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> "Address":
        """Validate `text` and return it as an address."""
        matched = _ADDRESS.fullmatch(text)
        if matched is None or int(matched["port"]) > 65535:
            raise ValueError(f"{text!r} is not host:port")
        return super().__new__(cls, text)

    @property
    def host(self) -> str:
        """The host, without brackets."""
        return self.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port, 0 to 65535."""
        return int(self.rpartition(":")[2])


class Kind(msgspec.Struct, frozen=True):
    """How one type of setting is read.

    `parse` raises ValueError on an invalid text; `allowed` completes the sentence "must be ...".
    """

    name: str
    allowed: str
    parse: Callable[[str], object]


def parse_duration(text: str) -> float:
    """Parse `250ms`, `30s`, `5m`, `2h`, `1d`, a sum such as `1h30m`, or a bare number of seconds; return seconds.

    Raises:
        ValueError: the text is none of these.
    """
    compact = text.strip().lower()
    parts = list(_DURATION.finditer(compact))
    if not parts or "".join(part[0] for part in parts) != compact:
        raise ValueError(f"{text!r} is not a duration")
    if len(parts) > 1 and not all(part[2] for part in parts):
        raise ValueError(f"{text!r} lacks a unit")
    return sum(float(part[1]) * _UNITS[part[2] or "s"] for part in parts)


def kind_of(name: str, hint: object) -> Kind:
    """Return how the field `name`, annotated with `hint`, is read.

    Raises:
        TypeError: this type is not supported.
    """
    base = bare(hint)
    if base is float and name.endswith(_DURATION_SUFFIXES):
        return Kind("duration", "a duration such as 500ms, 30s or 5m", parse_duration)
    if isinstance(base, type) and base in _SIMPLE:
        return _SIMPLE[base]
    if isinstance(base, type) and issubclass(base, enum.Enum):
        return _one_of({str(member.value): member for member in base})
    if get_origin(base) is Literal:
        return _one_of({str(choice): choice for choice in get_args(base)})
    if get_origin(base) is tuple and get_args(base) == (str, ...):
        return Kind("list", "texts separated by commas", _texts)
    raise TypeError(f"setting {name}: {hint!r} cannot be read from the environment")


def bare(hint: object) -> object:
    """Strip `Annotated[...]` and `| None` from an annotation."""
    if get_origin(hint) is Annotated:
        return bare(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        rest = [arm for arm in get_args(hint) if arm is not type(None)]
        return bare(rest[0]) if len(rest) == 1 else hint
    return hint


def metas(hint: object) -> list[msgspec.Meta]:
    """Return the `msgspec.Meta` notes of an annotation, outermost last."""
    if get_origin(hint) is not Annotated:
        return []
    inner, *notes = get_args(hint)
    return metas(inner) + [note for note in notes if isinstance(note, msgspec.Meta)]


def _bool(text: str) -> bool:
    lowered = text.lower()
    if lowered not in _TRUE | _FALSE:
        raise ValueError(text)
    return lowered in _TRUE


def _texts(text: str) -> tuple[str, ...]:
    return tuple(part for part in (part.strip() for part in text.split(",")) if part)


def _one_of(choices: dict[str, object]) -> Kind:
    by_lower = {name.lower(): value for name, value in choices.items()}

    def parse(text: str) -> object:
        if text.lower() not in by_lower:
            raise ValueError(text)
        return by_lower[text.lower()]

    return Kind("choice", "one of " + ", ".join(choices), parse)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


_SIMPLE = cast(
    "dict[type, Kind]",
    {
        str: Kind("text", "a text", str),
        int: Kind("integer", "a whole number", int),
        float: Kind("number", "a number", _finite),
        bool: Kind("boolean", "true or false", _bool),
        Path: Kind("path", "a path", Path),
        Secret: Kind("secret", "a text", Secret),
        Address: Kind("address", "host:port, such as 0.0.0.0:8080", Address),
    },
)
