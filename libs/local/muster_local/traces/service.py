"""The trace sink's servers: an OTLP receiver, and the part of Jaeger's query API v3 that returns one trace by its id."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, cast

from google.protobuf.json_format import MessageToDict
from grpc import aio
from msgspec import Meta
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceServicer
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from muster_local.traces.store import TraceStore
from muster_service.app import Context
from muster_service.http_server import HttpServer, Request, Response, json_response
from muster_service.settings import Address, ServiceSettings


class SinkSettings(ServiceSettings, frozen=True, kw_only=True):
    """The addresses for spans (`grpc_address`) and for queries, and the size of the store."""

    directory: Annotated[Path, Meta(description="directory of the database; created if missing")]
    http_address: Annotated[Address, Meta(description="address of the query API")] = Address("127.0.0.1:0")
    max_mib: Annotated[
        int, Meta(description="mebibytes of spans to store; above it, the oldest traces are removed", ge=1)
    ] = 256


class SpanReceiver(TraceServiceServicer):
    """Stores exported spans, and answers after the commit; only `executor`, with one thread, uses `store`."""

    def __init__(self, *, store: TraceStore, executor: Executor) -> None:
        self._store = store
        self._executor = executor

    async def Export(
        self,
        request: ExportTraceServiceRequest,
        context: aio.ServicerContext[ExportTraceServiceRequest, ExportTraceServiceResponse],
    ) -> ExportTraceServiceResponse:
        """Store the spans; invalid ones are counted as rejected."""
        rejected = await asyncio.get_running_loop().run_in_executor(
            self._executor, self._store.add, request.resource_spans
        )
        if not rejected:
            return ExportTraceServiceResponse()
        reason = "invalid span or trace id, or the trace takes half of the store"
        return ExportTraceServiceResponse(
            partial_success=ExportTracePartialSuccess(rejected_spans=rejected, error_message=reason)
        )


_IDS = ("traceId", "spanId", "parentSpanId")

Json = dict[str, object]


def traces_to_json(traces: TracesData) -> Json:
    """Return `{"resourceSpans": [...]}` in OTLP's JSON, with ids in hexadecimal where protobuf's own JSON uses base64."""
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


_TRACE = re.compile(r"/api/v3/traces/([^/]+)")
_TRACE_ID = re.compile(r"[0-9a-fA-F]{1,32}")


class QueryApi:
    """Handles `GET /api/v3/traces/{trace_id}`, with Jaeger's formats of results and errors; only `executor` uses `store`."""

    def __init__(self, *, store: TraceStore, executor: Executor) -> None:
        self._store = store
        self._executor = executor

    async def __call__(self, request: Request) -> Response:
        """Handle a request: 200 with the trace, 400 for an invalid id, 404 for an unknown trace or path."""
        matched = _TRACE.fullmatch(request.path)
        if matched is None:
            return _refusal(404, "unknown path; use /api/v3/traces/{trace_id}")
        if not _TRACE_ID.fullmatch(matched[1]):
            return _refusal(400, "malformed parameter trace_id: expected up to 32 hexadecimal digits")
        trace_id = bytes.fromhex(matched[1].zfill(32))
        found = await asyncio.get_running_loop().run_in_executor(self._executor, self._json_of, trace_id)
        return found or _refusal(404, "No traces found")

    def _json_of(self, trace_id: bytes) -> Response | None:
        traces = self._store.trace(trace_id)
        return json_response(200, {"result": traces_to_json(traces)}) if traces else None


def _refusal(status: int, message: str) -> Response:
    return json_response(status, {"error": {"httpCode": status, "message": message}})


async def build(settings: SinkSettings, ctx: Context) -> None:
    """Open the store and start both servers."""
    store = TraceStore(directory=settings.directory, max_bytes=settings.max_mib * 1024 * 1024)
    # SQLite blocks: it runs in one thread of its own, which keeps the event loop free.
    executor = ThreadPoolExecutor(1, thread_name_prefix="store")
    pages = HttpServer(
        host=settings.http_address.host,
        port=settings.http_address.port,
        handler=QueryApi(store=store, executor=executor),
    )

    async def close() -> None:
        executor.shutdown(wait=True)
        store.close()

    ctx.on_close(close)
    ctx.on_close(pages.stop)
    await pages.start()
    ctx.addresses["http"] = f"{settings.http_address.rpartition(':')[0]}:{pages.port}"
    receiver = SpanReceiver(store=store, executor=executor)
    ctx.add_grpc(trace_service_pb2_grpc.add_TraceServiceServicer_to_server, receiver)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]  # generated without types
