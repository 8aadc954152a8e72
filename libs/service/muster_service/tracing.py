"""Traces: live spans, and spans recorded at their end with their true start and a derived id.

Much of a job's trace is longer than a process lives. Such a span is written once, at its end, by the service that
observes it; if the writer is killed and repeats it, the span has the same id and the store keeps one. Everything uses the
OpenTelemetry SDK, so resources, sampling and export are the usual ones.

Spans are exported by OTLP. The exporter is imported with the first span: its imports cost as much as all other telemetry,
in every process, just when a service should become ready.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import Literal

import msgspec
from opentelemetry.context import Context, attach, detach
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context

from muster_service.trace_context import (
    SpanRef,
    as_remote_parent,
    extract,
    from_span_context,
    inject,
    span_ref,
    trace_ref,
)

_SCHEDULE_DELAY_MS = 1000
"""Each export costs as much as a hundred spans, here and at the receiver."""
_MAX_QUEUE = 16_384
_MAX_BATCH = 512
# Retries within it outlast a restart of the receiver.
_TIMEOUT_S = 10.0


OnDropped = Callable[[str, int], None]
"""Called with why spans were dropped (`queue_full` or `export_failed`) and their number, from any thread."""


def ignore_dropped(_reason: str, _spans: int) -> None:
    """Do nothing about dropped spans."""


def otlp_processor(endpoint: str, on_dropped: OnDropped = ignore_dropped) -> SpanProcessor:
    """Return a processor that exports batches to `endpoint`, a URL or host:port, from a thread.

    An unavailable receiver costs spans, never time: they wait in a bounded queue.
    """
    return _BoundedProcessor(_LateExporter(endpoint, on_dropped), on_dropped)


class _BoundedProcessor(BatchSpanProcessor):
    """Drops spans, and counts them, before the queue of the SDK would drop them without a count."""

    def __init__(self, exporter: _LateExporter, on_dropped: OnDropped) -> None:
        super().__init__(
            exporter,
            schedule_delay_millis=_SCHEDULE_DELAY_MS,
            max_queue_size=_MAX_QUEUE,
            max_export_batch_size=_MAX_BATCH,
        )
        self._exporter = exporter
        self._on_dropped = on_dropped
        self._queued = 0

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if self._queued - self._exporter.taken >= _MAX_QUEUE:
            self._on_dropped("queue_full", 1)
            return
        self._queued += 1
        super().on_end(span)


class _LateExporter(SpanExporter):
    def __init__(self, endpoint: str, on_dropped: OnDropped) -> None:
        self._endpoint = endpoint
        self._on_dropped = on_dropped
        self._exporter: SpanExporter | None = None
        self.taken = 0
        """The number of spans taken from the queue."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)
        try:
            if self._exporter is None:
                self._exporter = _otlp_exporter(self._endpoint)
            result = self._exporter.export(spans)
        except Exception:
            self._on_dropped("export_failed", len(spans))
            raise
        if result is not SpanExportResult.SUCCESS:
            self._on_dropped("export_failed", len(spans))
        return result

    def shutdown(self) -> None:
        if self._exporter is not None:
            self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter is None or self._exporter.force_flush(timeout_millis)


def _otlp_exporter(endpoint: str) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

    insecure = None if "://" in endpoint else True
    return OTLPSpanExporter(endpoint=endpoint, insecure=insecure, timeout=_TIMEOUT_S)


AttributeValue = str | bool | int | float | Sequence[str] | Sequence[bool] | Sequence[int] | Sequence[float]
Attributes = Mapping[str, AttributeValue]
SpanRole = Literal["internal", "server", "client", "producer", "consumer"]

_NOWHERE = Context()
_KINDS: Mapping[SpanRole, SpanKind] = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
}


class SpanEvent(msgspec.Struct, frozen=True):
    """An event within a recorded span, at `at_ns` nanoseconds since 1970."""

    name: str
    at_ns: int
    attributes: Mapping[str, str | bool | int | float] = {}


class LiveSpan:
    """A span that is open now."""

    def __init__(self, span: Span, ref: SpanRef) -> None:
        self._span = span
        self._ref = ref

    @property
    def ref(self) -> SpanRef:
        """The span as a value, for use as a parent elsewhere."""
        return self._ref

    def set(self, name: str, value: AttributeValue) -> None:
        """Set an attribute."""
        self._span.set_attribute(name, value)

    def event(self, name: str, attributes: Attributes | None = None) -> None:
        """Add an event with the current time."""
        self._span.add_event(name, attributes)

    def fail(self, description: str) -> None:
        """Mark the span as failed, with a description."""
        self._span.set_status(Status(StatusCode.ERROR, description))


class _Block:
    """A span that is current between its entry and its exit."""

    def __init__(self, live: LiveSpan, span: Span, *, note_exceptions: bool) -> None:
        self._live = live
        self._span = span
        self._note_exceptions = note_exceptions

    def __enter__(self) -> LiveSpan:
        self._token = attach(set_span_in_context(self._span))
        return self._live

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        detach(self._token)
        if self._note_exceptions and isinstance(error, Exception):
            self._span.record_exception(error)
            self._live.fail(f"{type(error).__name__}: {error}")
        self._span.end()


class _DerivedIds(RandomIdGenerator):
    """Random ids, except for a span that is being recorded, whose ids the recorder gives."""

    def __init__(self) -> None:
        self.given: ContextVar[SpanRef | None] = ContextVar("given_span_ids", default=None)

    def generate_span_id(self) -> int:
        given = self.given.get()
        return int(given.span_id, 16) if given else super().generate_span_id()

    def generate_trace_id(self) -> int:
        given = self.given.get()
        return int(given.trace_id, 16) if given else super().generate_trace_id()

    def is_trace_id_random(self) -> bool:
        return self.given.get() is None


class Telemetry:
    """The spans of one service; created by `Telemetry.start`."""

    def __init__(self, *, provider: TracerProvider, ids: _DerivedIds, exporting: bool) -> None:
        self._provider = provider
        self._ids = ids
        self._exporting = exporting
        self._tracer = provider.get_tracer("muster")

    @classmethod
    def start(
        cls,
        service: str,
        instance: str,
        endpoint: str | None = None,
        *,
        on_dropped: OnDropped = ignore_dropped,
    ) -> Telemetry:
        """Start exporting spans to the OTLP gRPC receiver at `endpoint`, a URL or host:port.

        Without an endpoint no span leaves the process; trace context is still propagated. An unavailable receiver costs
        spans, never time: they wait in a bounded queue for a thread. `on_dropped` counts those that are lost.
        """
        ids = _DerivedIds()
        named = {"service.name": service, "service.instance.id": instance}
        provider = TracerProvider(
            resource=Resource.create(named) if endpoint else Resource(named),
            id_generator=ids,
            shutdown_on_exit=False,
            span_limits=SpanLimits(max_events=1024),
        )
        if endpoint:
            provider.add_span_processor(otlp_processor(endpoint, on_dropped))
        return cls(provider=provider, ids=ids, exporting=bool(endpoint))

    def shutdown(self, timeout_s: float = 2.0) -> None:
        """Export waiting spans, for `timeout_s` seconds at most; blocks. Later spans are dropped."""
        closing = threading.Thread(target=self._provider.shutdown, name="telemetry-shutdown", daemon=True)
        closing.start()
        closing.join(timeout_s)

    def flush(self) -> None:
        """Export waiting spans; blocks until they are sent or dropped."""
        self._provider.force_flush()

    def inject(self, ref: SpanRef | None = None) -> dict[str, str]:
        """Return the headers that carry `ref`, or the current span."""
        return inject(ref)

    def extract(self, headers: Mapping[str, str]) -> SpanRef | None:
        """Return the span in the headers, if there is a valid one."""
        return extract(headers)

    def span(
        self,
        name: str,
        *,
        parent: SpanRef | None = None,
        attributes: Attributes | None = None,
        role: SpanRole = "internal",
        note_exceptions: bool = True,
    ) -> AbstractContextManager[LiveSpan, None]:
        """Open a span for the block and make it current, so that logs and calls carry its trace.

        Without a parent it is a child of the current span, or a root. An exception propagates, and marks the span as
        failed unless `note_exceptions` is False: not every exception is a failure of the span.
        """
        span = self._tracer.start_span(
            name,
            context=as_remote_parent(parent) if parent else None,
            kind=_KINDS[role],
            attributes=attributes,
        )
        # With OTEL_SDK_DISABLED the SDK starts no spans, yet callers still need a reference.
        ref = from_span_context(span.get_span_context()) or parent or _unsampled(self._ids)
        return _Block(LiveSpan(span, ref), span, note_exceptions=note_exceptions)

    def record(
        self,
        name: str,
        *,
        parent: SpanRef | None,
        key: str,
        start_ns: int,
        end_ns: int,
        attributes: Attributes | None = None,
        status_error: str | None = None,
        events: Sequence[SpanEvent] = (),
    ) -> SpanRef:
        """Record a span that has ended, and return it.

        Args:
            name: its name.
            parent: its parent; None makes it the root of the trace that `key` names.
            key: names the effect, unique in its trace. The same key gives the same span id: `span_ref(parent, key)`,
                or `trace_ref(key)` for a root.
            start_ns: its start in nanoseconds since 1970.
            end_ns: its end; not before the start.
            attributes: its attributes.
            status_error: why it failed, if it did.
            events: its events.
        """
        ref = span_ref(parent, key) if parent else trace_ref(key)
        if not self._exporting:
            return ref
        token = self._ids.given.set(ref)
        try:
            span = self._tracer.start_span(
                name,
                context=as_remote_parent(parent) if parent else _NOWHERE,
                attributes=attributes,
                start_time=start_ns,
            )
        finally:
            self._ids.given.reset(token)
        for event in events:
            span.add_event(event.name, event.attributes, timestamp=event.at_ns)
        if status_error is not None:
            span.set_status(Status(StatusCode.ERROR, status_error))
        span.end(max(start_ns, end_ns))
        return ref


def _unsampled(ids: RandomIdGenerator) -> SpanRef:
    return SpanRef(f"{ids.generate_trace_id():032x}", f"{ids.generate_span_id():016x}", sampled=False)
