"""An OTLP receiver in the test's process, for real spans over a real connection."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
from types import TracebackType
from typing import cast

import grpc
import msgspec
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


class ReceivedLink(msgspec.Struct, frozen=True):
    """A link of a received span, with hexadecimal ids."""

    trace_id: str
    span_id: str
    attributes: Mapping[str, object]


class ReceivedSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A received span. Ids are hexadecimal, times are in nanoseconds since 1970, `parent_id` is "" for a root."""

    name: str
    service: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, object]
    events: tuple[str, ...]
    error: str | None
    event_attributes: tuple[Mapping[str, object], ...] = ()
    links: tuple[ReceivedLink, ...] = ()
    resource: Mapping[str, object] = {}
    scope: tuple[str, str] = ("", "")


class OtlpReceiver:
    """Receives spans on a free loopback port, as an async context manager."""

    def __init__(self) -> None:
        self._spans: list[ReceivedSpan] = []
        self._lock = threading.Lock()
        self._arrived = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        # Its own threads allow a test to block the event loop while spans are flushed.
        self._server = grpc.server(futures.ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(_Servicer(self._receive), self._server)  # pyright: ignore[reportUnknownMemberType]  # generated without types
        self._port = self._server.add_insecure_port("127.0.0.1:0")

    @property
    def endpoint(self) -> str:
        """The URL for the exporter."""
        return f"http://127.0.0.1:{self._port}"

    def spans(self, name: str | None = None) -> list[ReceivedSpan]:
        """Return the received spans in order of arrival, optionally only those called `name`."""
        with self._lock:
            return [span for span in self._spans if name is None or span.name == name]

    async def wait_for(
        self, predicate: Callable[[list[ReceivedSpan]], bool], timeout_s: float = 10.0
    ) -> list[ReceivedSpan]:
        """Return all spans once they satisfy `predicate`.

        Raises:
            TimeoutError: they do not within `timeout_s`; the message lists the received spans.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not predicate(spans := self.spans()):
                    self._arrived.clear()
                    await self._arrived.wait()
                return spans
        except TimeoutError:
            names = [span.name for span in self.spans()]
            raise TimeoutError(f"spans received in {timeout_s} s: {names}") from None

    async def __aenter__(self) -> "OtlpReceiver":
        self._loop = asyncio.get_running_loop()
        self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._server.stop(0).wait, 5)

    def _receive(self, request: trace_service_pb2.ExportTraceServiceRequest) -> None:
        spans = [
            _received(
                span, _attributes(resource.resource.attributes), (scope.scope.name, scope.scope.version)
            )
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        with self._lock:
            self._spans += spans
        if self._loop and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._arrived.set)


class _Servicer(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, receive: Callable[[trace_service_pb2.ExportTraceServiceRequest], None]) -> None:
        self._receive = receive

    def Export(
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        self._receive(request)
        return trace_service_pb2.ExportTraceServiceResponse()


def _received(span: Span, resource: Mapping[str, object], scope: tuple[str, str]) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        service=str(resource.get("service.name", "")),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes=_attributes(span.attributes),
        events=tuple(event.name for event in span.events),
        error=span.status.message if span.status.code == Status.STATUS_CODE_ERROR else None,
        event_attributes=tuple(_attributes(event.attributes) for event in span.events),
        links=tuple(
            ReceivedLink(link.trace_id.hex(), link.span_id.hex(), _attributes(link.attributes))
            for link in span.links
        ),
        resource=resource,
        scope=scope,
    )


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, object]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return cast("object", getattr(value, kind)) if kind else None
