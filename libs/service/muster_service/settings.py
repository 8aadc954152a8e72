"""Settings: one frozen struct for each service, filled from environment variables.

Everything is read at once: every invalid variable is reported together, and a variable that resembles a setting gets a
warning.

For the field `bus_url` of the service `scheduler`, `MUSTER_SCHEDULER_BUS_URL` is read first, then `MUSTER_BUS_URL`, so
that services can share an environment. An empty variable counts as unset.
"""

from __future__ import annotations

import difflib
import enum
import math
import os
import re
import socket
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

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

    def __new__(cls, text: str) -> Address:
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


PREFIX = "MUSTER_"
_ALIKE = 0.9
_CONSTRAINED = frozenset({"text", "integer", "number", "duration"})
_ALIKE_IN_OWN_NAMESPACE = 0.6

S = TypeVar("S", bound=msgspec.Struct)


class SettingsError(ValueError):
    """Invalid settings; `problems` has one sentence for each variable."""

    def __init__(self, problems: list[str]) -> None:
        count = "1 setting" if len(problems) == 1 else f"{len(problems)} settings"
        super().__init__(f"{count} cannot be used:\n" + "\n".join(f"  {problem}" for problem in problems))
        self.problems = problems


class SettingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table of settings: `default` is None for a required variable."""

    variable: str
    kind: str
    allowed: str
    default: str | None
    help: str


def _this_instance() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of every service; a service's own settings derive from it."""

    bus_url: Annotated[str, Meta(description="NATS servers, separated by commas")] = "nats://127.0.0.1:4222"
    bus_user: Annotated[str | None, Meta(description="user on the bus")] = None
    bus_password: Annotated[Secret | None, Meta(description="password of that user")] = None
    bus_store: Annotated[
        Path | None,
        Meta(description="folder of the broker's store, if it is on this machine: its free space is checked"),
    ] = None
    grpc_address: Annotated[Address, Meta(description="address of the gRPC server")] = Address("127.0.0.1:0")
    grpc_connection_seconds: Annotated[
        float,
        Meta(
            description="how long a client keeps a gRPC connection, so that its calls reach new instances too; calls go on",
            ge=1,
        ),
    ] = 300.0
    metrics_address: Annotated[Address, Meta(description="address of /metrics, /healthz and /readyz")] = (
        Address("127.0.0.1:0")
    )
    otlp_endpoint: Annotated[
        str | None,
        Meta(
            description="OTLP gRPC receiver of spans; without it none are exported",
            extra={"fallback": "OTEL_EXPORTER_OTLP_ENDPOINT"},
        ),
    ] = None
    trace_sample: Annotated[
        float, Meta(description="share of traces to record; set it alike for all services", ge=0, le=1)
    ] = 1.0
    environment: Annotated[
        str, Meta(description="deployment environment that spans name, such as production")
    ] = ""
    log_format: Annotated[Literal["json", "text"], Meta(description="json for machines, text for people")] = (
        "json"
    )
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="least severe level to log")
    ] = "info"
    instance: Annotated[str, Meta(description="unique name of this instance")] = msgspec.field(
        default_factory=_this_instance
    )
    drain_seconds: Annotated[float, Meta(description="longest drain after SIGTERM", ge=0)] = 10.0


class LeaseSettings(ServiceSettings, frozen=True, kw_only=True):
    """Settings of a service whose instances elect a leader or share partitions."""

    lease_seconds: Annotated[
        int,
        Meta(
            description="how long (s) an instance may be silent before others take over; up to five times as long while "
            "the broker answers slowly",
            ge=1,
            le=60,
        ),
    ] = 3


class _Field(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    tell: tuple[str, ...]
    kind: Kind
    hint: object
    required: bool
    default: object
    help: str


def load_settings(
    cls: type[S],
    environ: Mapping[str, str] | None = None,
    *,
    prefix: str = PREFIX,
    service: str | None = None,
) -> S:
    """Fill `cls` from environment variables (default `os.environ`).

    Args:
        cls: the struct to fill. Its fields may be str, int, float, bool, Path, Secret, Address, an Enum, a Literal,
            tuple[str, ...], or any of them or None. A float whose name ends in `_s` or `_seconds` is a duration.
            Constraints and help are given by `Annotated[..., Meta(...)]`.
        environ: the variables.
        prefix: the prefix of every variable.
        service: the service whose own variables (`MUSTER_<SERVICE>_<FIELD>`) override the common ones.

    Raises:
        SettingsError: naming every missing or invalid variable, its value (except a secret's), and what it may be.
    """
    values = os.environ if environ is None else environ
    given: dict[str, object] = {}
    problems: list[str] = []
    for field in _fields(cls, prefix, service):
        variable = next((name for name in field.tell if values.get(name, "").strip()), None)
        if variable is None:
            if field.required:
                problems.append(
                    f"{field.tell[-1]} is not set: it must be {field.kind.allowed} ({field.help})"
                )
            continue
        text = values[variable].strip()
        try:
            given[field.name] = _checked(field, field.kind.parse(text))
        except _UnfitError as unfit:
            problems.append(f"{variable}={_shown(field, text)}: {unfit}")
        except ValueError:
            problems.append(f"{variable}={_shown(field, text)}: must be {field.kind.allowed}")
    if problems:
        raise SettingsError(problems)
    try:
        return cls(**given)
    except ValueError as refused:
        raise SettingsError([str(refused)]) from refused


def misspelt_variables(
    cls: type[msgspec.Struct],
    environ: Mapping[str, str] | None = None,
    *,
    prefix: str = PREFIX,
    service: str | None = None,
) -> list[str]:
    """Return a sentence for each unused variable that resembles one of the settings of `cls`."""
    known = [name for field in _fields(cls, prefix, service) for name in field.tell]
    own = _namespace(prefix, service) if service else None
    sentences: list[str] = []
    for name in sorted(os.environ if environ is None else environ):
        if not name.startswith(prefix) or name in known:
            continue
        cutoff = _ALIKE_IN_OWN_NAMESPACE if own and name.startswith(own) else _ALIKE
        if near := difflib.get_close_matches(name, known, n=1, cutoff=cutoff):
            sentences.append(f"{name} is not a setting and was ignored; did you mean {near[0]}?")
    return sentences


def describe_settings(
    cls: type[msgspec.Struct], *, prefix: str = PREFIX, service: str | None = None
) -> list[SettingRow]:
    """Return one row per setting of `cls`, in field order, for help texts and pages."""
    return [
        SettingRow(
            variable=field.tell[0],
            kind=field.kind.name,
            allowed=field.kind.allowed,
            default=None if field.required else _default_text(field),
            help=field.help,
        )
        for field in _fields(cls, prefix, service)
    ]


class _UnfitError(ValueError):
    """A value of the right type that violates a constraint."""


def _fields(cls: type[msgspec.Struct], prefix: str, service: str | None) -> Iterator[_Field]:
    hints = get_type_hints(cls, include_extras=True)
    for info in msgspec.structs.fields(cls):
        hint = hints[info.name]
        notes = metas(hint)
        tell = [_namespace(prefix, service) + info.name.upper()] if service else []
        tell.append(prefix + info.name.upper())
        tell += [str(note.extra["fallback"]) for note in notes if note.extra and "fallback" in note.extra]
        yield _Field(
            name=info.name,
            tell=tuple(tell),
            kind=kind_of(info.name, hint),
            hint=hint,
            required=info.required,
            default=info.default,
            help=next(
                (note.description for note in reversed(notes) if note.description),
                info.name.replace("_", " "),
            ),
        )


def _namespace(prefix: str, service: str | None) -> str:
    return prefix + (service or "").upper().replace("-", "_") + "_"


def _checked(field: _Field, value: object) -> object:
    if field.kind.name not in _CONSTRAINED:
        return value
    try:
        return msgspec.convert(value, field.hint)
    except msgspec.ValidationError as refused:
        raise _UnfitError(str(refused).replace("Expected", "must be").replace("`", "")) from refused


def _shown(field: _Field, text: str) -> str:
    return "***" if bare(field.hint) is Secret else repr(text)


def _default_text(field: _Field) -> str:
    if field.default is msgspec.NODEFAULT:
        return "(derived)"
    if field.default is None:
        return ""
    if field.kind.name == "list":
        return ",".join(cast("tuple[str, ...]", field.default))
    return str(field.default.value if isinstance(field.default, enum.Enum) else field.default)
