"""Spans in OTLP's JSON, as Jaeger's query API writes them: ids in hexadecimal, enums and times as numbers and strings.

Protobuf's own JSON would write ids in base64; OTLP departs from it there, and there only.
"""

import base64
from collections.abc import Iterator
from typing import cast

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

_IDS = ("traceId", "spanId", "parentSpanId")

Json = dict[str, object]


def traces_to_json(traces: TracesData) -> Json:
    """Return `{"resourceSpans": [...]}`."""
    document: Json = MessageToDict(traces, use_integers_for_enums=True)
    for resource in _items(document, "resourceSpans"):
        for scope in _items(resource, "scopeSpans"):
            for span in _items(scope, "spans"):
                for owner in (span, *_items(span, "links")):
                    _write_ids_in_hex(owner)
    return document


def _items(owner: Json, name: str) -> Iterator[Json]:
    yield from cast("list[Json]", owner.get(name, []))


def _write_ids_in_hex(owner: Json) -> None:
    for name in _IDS:
        if name in owner:
            owner[name] = base64.b64decode(cast("str", owner[name])).hex()
