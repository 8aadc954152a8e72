"""Raw Kubernetes JSON (a NodeAffinity, a PodTemplateSpec) as ``google.protobuf.Struct``.

A Struct knows doubles only. Whole numbers come back as integers, because Kubernetes refuses ``containerPort: 2222.0``.
"""

from __future__ import annotations

import math

from google.protobuf import struct_pb2

from muster_rpc.convert.findings import Findings

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

_EXACT = 2**53


def struct_to_proto(raw: dict[str, Json]) -> struct_pb2.Struct | None:
    """The JSON object as a Struct; None (absent) when it is empty. Integers beyond 2^53 lose their last digits."""
    if not raw:
        return None
    return struct_pb2.Struct(fields={key: _value(item) for key, item in raw.items()})


def struct_from_proto(message: struct_pb2.Struct, findings: Findings, path: str) -> dict[str, Json]:
    """The JSON object of a Struct; numbers that JSON cannot say are reported."""
    return {key: _plain(value, findings, f"{path}.{key}") for key, value in message.fields.items()}


def _value(item: Json) -> struct_pb2.Value:
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
            return struct_pb2.Value(list_value=struct_pb2.ListValue(values=[_value(inner) for inner in item]))
        case dict():
            fields = {key: _value(inner) for key, inner in item.items()}
            return struct_pb2.Value(struct_value=struct_pb2.Struct(fields=fields))


def _plain(value: struct_pb2.Value, findings: Findings, path: str) -> Json:
    match value.WhichOneof("kind"):
        case "bool_value":
            return value.bool_value
        case "number_value":
            return _number(value.number_value, findings, path)
        case "string_value":
            return value.string_value
        case "list_value":
            items = value.list_value.values
            return [_plain(item, findings, f"{path}[{index}]") for index, item in enumerate(items)]
        case "struct_value":
            return struct_from_proto(value.struct_value, findings, path)
        case _:
            return None


def _number(number: float, findings: Findings, path: str) -> int | float:
    if not math.isfinite(number):
        findings.report(
            "BadNumber", path, "not a number that JSON can say", found=str(number), allowed="finite numbers"
        )
        return 0
    return int(number) if number.is_integer() and abs(number) <= _EXACT else number
