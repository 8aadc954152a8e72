"""Converts between structs of the core and messages of the API by reflection.

A field of a struct maps to the field of the same name in the message. The types decide how: an integer of microseconds is a
Timestamp, a field ``grace_s`` is a Duration ``grace``, a dictionary of JSON is a Struct, a nested struct has a codec of its own, members of
an enum map by name. A ``StructMapping`` has the exceptions. All of this is resolved once, when a codec is made; a call loops over the
fields that are set.
"""

from __future__ import annotations

import enum
import math
import types
import typing
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from google.protobuf import duration_pb2, message_factory, struct_pb2, timestamp_pb2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from muster_core.models import Problem

StructT = TypeVar("StructT", bound=msgspec.Struct)
MessageT = TypeVar("MessageT", bound=Message)

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Values = dict[str, Any]
Writer = Callable[[Any], Any]
Reader = Callable[[Any, "SpecProblems", str], Any]

_EXACT = 2**53
_US = 1_000_000


class SpecProblems:
    """Problems of one message, each with the path of its field in the words of the proto (``roles[0].restart_policy``)."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def report(self, code: str, path: str, message: str, *, found: str, allowed: str) -> None:
        """Add a problem; ``code`` is one of ``muster_core.models.problem_codes``."""
        self.found.append(Problem(code=code, path=path, message=message, found=found, allowed=allowed))


class StructMapping(NamedTuple):
    """The exceptions of one struct.

    ``names`` maps fields of the struct to fields of the message, ``omitted`` are fields of the struct that the codec skips. A ``partial``
    message has only some fields of the struct. ``absent`` has values for required fields that a message leaves out. ``written`` completes
    the message's values from the struct, ``read`` the struct's values from the message.
    """

    names: Mapping[str, str] = {}
    omitted: frozenset[str] = frozenset()
    partial: bool = False
    absent: Mapping[str, Any] = {}
    written: Callable[[Any, Values], None] | None = None
    read: Callable[[Any, Values], None] | None = None


class Texts:
    """How the core spells the values of an enum that is text there: ``NoSchedule``, ``max_min``, ``etcd-v2``."""

    @staticmethod
    def camel(name: str) -> str:
        """``NO_SCHEDULE`` as ``NoSchedule``."""
        return "".join(part.capitalize() for part in name.split("_"))

    @staticmethod
    def snake(name: str) -> str:
        """``MAX_MIN`` as ``max_min``."""
        return name.lower()

    @staticmethod
    def kebab(name: str) -> str:
        """``ETCD_V2`` as ``etcd-v2``."""
        return name.lower().replace("_", "-")


class EnumCodec:
    """An enum of the API and its values in the core: members of a ``StrEnum``, or texts."""

    def __init__(self, values: Mapping[int, str]) -> None:
        self.values = values
        self._numbers = {value: number for number, value in values.items()}

    def to_proto(self, value: str | None) -> int:
        """The number of a value; 0 for none and for a text that the API does not have."""
        return self._numbers.get(value, 0) if value is not None else 0

    def from_proto(self, number: int) -> Any:
        """The value of a number; None for 0 and for numbers that this version does not have."""
        return self.values.get(number)

    def read(self, number: int, problems: SpecProblems, path: str) -> Any:
        """As ``from_proto``; a number that this version does not have is a problem."""
        value = self.values.get(number)
        if value is None and number:
            allowed = ", ".join(getattr(one, "name", one) for one in self.values.values())
            message = f"{number} is no value of this enum"
            problems.report("NotAllowed", path, message, found=str(number), allowed=allowed)
        return value


class Codec(Generic[StructT, MessageT]):
    """Converts one struct to one message and back."""

    def __init__(self, struct: type[StructT], message: type[MessageT], codecs: Codecs) -> None:
        table = codecs.tables.get(struct, StructMapping())
        fields: dict[str, Any] = dict(message.DESCRIPTOR.fields_by_name)
        self._struct, self._message = struct, message
        self._written, self._read = table.written, table.read
        self._absent: Values = dict(table.absent)
        # With the struct's default and its message: an unchanged default is converted once.
        self._writers: list[tuple[str, Writer | None, object, Message | None]] = []
        # The field's name in problems follows; empty for readers that report none.
        self._readers: dict[FieldDescriptor, tuple[str, Reader | None, str]] = {}
        attributes: list[str] = []
        for field in msgspec.structs.fields(struct):
            if field.name in table.omitted:
                continue
            name = table.names.get(field.name, field.name)
            if name not in fields and field.name.endswith("_s"):
                name = field.name.removesuffix("_s")
            if name not in fields and table.partial:
                continue
            if name not in fields:
                raise TypeError(f"{message.DESCRIPTOR.full_name} has no field {name} of {struct.__name__}")
            write, read = codecs.field(field.type, fields[name])
            attributes.append(field.name)
            usual = field.default
            written = write(usual) if write is not None and isinstance(usual, msgspec.Struct) else None
            self._writers.append((name, write, usual, written))
            self._readers[fields[name]] = (field.name, read, "" if read in _UNCHECKED else name)
            if field.required and field.name not in self._absent:
                self._absent[field.name] = _zero(field.type)
        get = attrgetter(*attributes)
        self._get: Callable[[StructT], tuple[Any, ...]] = (
            get if len(attributes) > 1 else lambda value: (get(value),)
        )

    def to_proto(self, value: StructT, **more: Any) -> MessageT:
        """The message of a struct; ``more`` are fields of the message that the struct does not have.

        Raises:
            ValueError: A number does not fit in its field.
        """
        values: Values = more
        for (name, write, usual, default), item in zip(self._writers, self._get(value), strict=True):
            if write is None:
                if item:
                    values[name] = item
            elif default is not None and item is usual:
                values[name] = default
            elif (written := write(item)) is not None:
                values[name] = written
        if self._written is not None:
            self._written(value, values)
        return self._message(**values)

    def from_proto(self, message: MessageT, problems: SpecProblems | None = None, path: str = "") -> StructT:
        """The struct of a message; a field that is not set has the struct's default. Invalid values are added to ``problems``."""
        problems = problems or SpecProblems()
        values, readers = self._absent.copy(), self._readers
        for field, item in message.ListFields():
            if (known := readers.get(field)) is None:
                continue
            attribute, read, name = known
            if read is None:
                values[attribute] = item
                continue
            place = f"{path}.{name}" if path and name else name
            if (value := read(item, problems, place)) is not None:
                values[attribute] = value
        if self._read is not None:
            self._read(message, values)
        return self._struct(**values)


class Codecs:
    """Makes codecs. ``tables`` has the exceptions by struct, ``texts`` the spelling of enums that are text in the core."""

    def __init__(
        self, tables: Mapping[type[msgspec.Struct], StructMapping], texts: Mapping[str, Callable[[str], str]]
    ) -> None:
        self.tables = tables
        self.texts = texts
        self._made: dict[tuple[type, str], Codec[Any, Any]] = {}

    def codec(self, struct: type[StructT], message: type[MessageT]) -> Codec[StructT, MessageT]:
        """The codec of a pair; one for each."""
        key = (struct, message.DESCRIPTOR.full_name)
        if key not in self._made:
            self._made[key] = Codec(struct, message, self)
        return self._made[key]

    def enum(self, descriptor: EnumDescriptor, members: type[enum.StrEnum] | None = None) -> EnumCodec:
        """The codec of an enum whose values are ``members``, or texts."""
        text = self.texts.get(descriptor.name, Texts.camel)
        prefix = descriptor.values[0].name.removesuffix("UNSPECIFIED")
        names = {value.number: value.name.removeprefix(prefix) for value in descriptor.values if value.number}
        if members is None:
            return EnumCodec({number: text(name) for number, name in names.items()})
        if missing := set(members.__members__).difference(names.values()):
            raise TypeError(f"{descriptor.full_name} has no {sorted(missing)} of {members.__name__}")
        known = members.__members__
        return EnumCodec({number: known[name] for number, name in names.items() if name in known})

    def field(self, type_: Any, field: FieldDescriptor) -> tuple[Writer | None, Reader | None]:
        """How one field is written and read; None for a value that is the same on both sides, and is left out where it is 0 or empty."""
        optional, type_ = type_, _without_none(type_)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return self._map(type_, field.message_type)
        if field.is_repeated:
            return self._repeated(type_, field)
        write, read = self._single(type_, field)
        if write is None and field.has_presence:
            return _same, None
        if write is not None and field.message_type is not None and type_ is not optional:
            return (lambda value: None if value is None else write(value)), read
        return write, read

    def _single(self, type_: Any, field: FieldDescriptor) -> tuple[Writer | None, Reader | None]:
        if field.enum_type is not None:
            codec = self.enum(field.enum_type, type_ if issubclass(type_, enum.StrEnum) else None)
            return codec.to_proto, codec.read
        if field.message_type is None:
            return None, None
        match field.message_type.full_name:
            case "google.protobuf.Timestamp":
                return timestamp_to_proto, _read_micros
            case "google.protobuf.Duration":
                return duration_to_proto, _read_seconds
            case "google.protobuf.Struct":
                return json_to_proto, json_from_proto
            case _:
                codec = self.codec(type_, _message_class(field.message_type))
                return codec.to_proto, codec.from_proto

    def _repeated(self, type_: Any, field: FieldDescriptor) -> tuple[Writer | None, Reader]:
        write, read = self._single(typing.get_args(type_)[0], field)

        if read is None:
            return None, _read_tuple

        def read_all(values: Any, problems: SpecProblems, path: str) -> tuple[Any, ...]:
            items = (read(value, problems, f"{path}[{index}]") for index, value in enumerate(values))
            return tuple(item for item in items if item is not None)

        if write is None:
            return None, read_all
        return lambda values: [write(value) for value in values], read_all

    def _map(self, type_: Any, entry: Descriptor) -> tuple[Writer | None, Reader]:
        value_field = entry.fields_by_name["value"]
        write, read = self._single(typing.get_args(type_)[1], value_field)
        if write is None or read is None:
            return None, _read_dict
        return (
            lambda values: {key: write(value) for key, value in values.items()},
            lambda values, problems, path: {
                key: read(value, problems, f"{path}[{key}]") for key, value in sorted(values.items())
            },
        )


def timestamp_to_proto(micros: int | None) -> timestamp_pb2.Timestamp | None:
    """The timestamp of an instant in microseconds; None for 0, which means *not yet*."""
    if not micros:
        return None
    return timestamp_pb2.Timestamp(seconds=micros // _US, nanos=micros % _US * 1000)


def micros_from_proto(timestamp: timestamp_pb2.Timestamp) -> int:
    """Microseconds since the epoch; 0 for an absent timestamp."""
    return timestamp.seconds * _US + timestamp.nanos // 1_000


def duration_to_proto(seconds: int | None) -> duration_pb2.Duration | None:
    """The duration of whole seconds; None stays absent."""
    return None if seconds is None else duration_pb2.Duration(seconds=seconds)


def json_to_proto(raw: dict[str, Json]) -> struct_pb2.Struct | None:
    """A JSON object as a Struct; None (absent) when it is empty. Integers beyond 2^53 lose their last digits."""
    if not raw:
        return None
    return struct_pb2.Struct(fields={key: _json_value(item) for key, item in raw.items()})


def json_from_proto(message: struct_pb2.Struct, problems: SpecProblems, path: str) -> dict[str, Json]:
    """The JSON object of a Struct. Whole numbers are integers again: Kubernetes rejects ``containerPort: 2222.0``.

    Numbers that JSON does not have are reported.
    """
    return {key: _plain_value(value, problems, f"{path}.{key}") for key, value in message.fields.items()}


def _read_seconds(duration: duration_pb2.Duration, problems: SpecProblems, path: str) -> int:
    """Whole seconds, a fraction rounded up, so that a deadline is never shorter than asked for."""
    if duration.seconds < 0 or duration.nanos < 0:
        found = f"{duration.seconds + duration.nanos / 1e9:g} s"
        problems.report(
            "BadDuration", path, "a duration cannot be negative", found=found, allowed="0 s or more"
        )
        return 0
    return duration.seconds + (1 if duration.nanos > 0 else 0)


def _json_value(item: Json) -> struct_pb2.Value:
    match item:
        case None:
            return struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)
        case bool():
            return struct_pb2.Value(bool_value=item)
        case int() | float():
            return struct_pb2.Value(number_value=item)
        case str():
            return struct_pb2.Value(string_value=item)
        case list():
            values = [_json_value(inner) for inner in item]
            return struct_pb2.Value(list_value=struct_pb2.ListValue(values=values))
        case dict():
            fields = {key: _json_value(inner) for key, inner in item.items()}
            return struct_pb2.Value(struct_value=struct_pb2.Struct(fields=fields))


def _plain_value(value: struct_pb2.Value, problems: SpecProblems, path: str) -> Json:
    match value.WhichOneof("kind"):
        case "bool_value":
            return value.bool_value
        case "number_value":
            return _number(value.number_value, problems, path)
        case "string_value":
            return value.string_value
        case "list_value":
            items = value.list_value.values
            return [_plain_value(item, problems, f"{path}[{index}]") for index, item in enumerate(items)]
        case "struct_value":
            return json_from_proto(value.struct_value, problems, path)
        case _:
            return None


def _number(number: float, problems: SpecProblems, path: str) -> int | float:
    if not math.isfinite(number):
        problems.report(
            "BadNumber", path, "JSON has no such number", found=str(number), allowed="finite numbers"
        )
        return 0
    return int(number) if number.is_integer() and abs(number) <= _EXACT else number


def _same(value: Any) -> Any:
    return value


def _read_micros(value: timestamp_pb2.Timestamp, _problems: SpecProblems, _path: str) -> int:
    return micros_from_proto(value)


def _read_tuple(values: Any, _problems: SpecProblems, _path: str) -> tuple[Any, ...]:
    return tuple(values)


def _read_dict(values: Any, _problems: SpecProblems, _path: str) -> dict[Any, Any]:
    return dict(values)


_UNCHECKED = (_read_micros, _read_tuple, _read_dict)
"""Readers that report no problems."""


def _without_none(type_: Any) -> Any:
    if typing.get_origin(type_) in (typing.Union, types.UnionType):
        return next(one for one in typing.get_args(type_) if one is not type(None))
    return type_


def _zero(type_: Any) -> Any:
    if _without_none(type_) is not type_:
        return None
    origin = typing.get_origin(type_) or type_
    # What has no zero is given by its table, or is never read.
    has_none = issubclass(origin, enum.Enum) or (
        issubclass(origin, msgspec.Struct) and any(field.required for field in msgspec.structs.fields(origin))
    )
    return None if has_none else origin()


def _message_class(descriptor: Descriptor) -> Any:
    return message_factory.GetMessageClass(descriptor)
