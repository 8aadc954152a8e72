"""Traces: live spans, and spans recorded at their end with their true start and a derived id.

Much of a job's trace is longer than a process lives. Such a span is written once, at its end, by the service that
observes it; if the writer is killed and repeats it, the span has the same id and the store keeps one. Everything uses the
OpenTelemetry SDK, so resources and export are the usual ones. Sampling is Muster's own decision, by the trace id alone: every
service decides alike, and the flag in a client's `traceparent` hides no job.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import Literal

import msgspec
from opentelemetry.context import Context, attach, detach
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    get_current_span,
    set_span_in_context,
)

from muster_service.span_export import OnDropped, OtlpProcessor, ignore_dropped
from muster_service.trace_context import (
    SpanRef,
    as_remote_parent,
    extract,
    from_span_context,
    inject,
    span_ref,
    to_span_context,
    trace_ref,
)
from muster_service.trace_resource import resource_attributes
from muster_service.version import VERSION

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


class SpanLink(msgspec.Struct, frozen=True):
    """A link to a span of the same or another trace."""

    ref: SpanRef
    attributes: Mapping[str, str | bool | int | float] = {}


def failure_event(name: str, at_ns: int, *, kind: str, message: str, **attributes: str | int) -> SpanEvent:
    """Return an event that reports a failure, with the attributes of OpenTelemetry's exceptions."""
    present = {name: value for name, value in attributes.items() if value != ""}
    return SpanEvent(name, at_ns, {"exception.type": kind, "exception.message": message, **present})


def link_current(ref: SpanRef, attributes: Attributes | None = None) -> None:
    """Link the current span to another one."""
    get_current_span().add_link(to_span_context(ref), attributes)


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


class OpenSpan(LiveSpan):
    """A span that is open until `end`, and never current."""

    def end(self, at_ns: int | None = None) -> None:
        """End the span, at a time in nanoseconds since 1970 or now."""
        self._span.end(at_ns)


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

    def __init__(
        self, *, provider: TracerProvider, ids: _DerivedIds, processor: OtlpProcessor | None
    ) -> None:
        self._provider = provider
        self._ids = ids
        self._processor = processor
        self._tracer = provider.get_tracer("muster", VERSION)

    @classmethod
    def start(
        cls,
        service: str,
        instance: str,
        endpoint: str | None = None,
        *,
        sample: float = 1.0,
        environment: str = "",
        on_dropped: OnDropped = ignore_dropped,
    ) -> Telemetry:
        """Start exporting spans to the OTLP gRPC receiver at `endpoint`, a URL or host:port.

        Without an endpoint no span leaves the process; trace context is still propagated. An unavailable receiver costs
        spans, never time: they wait in a bounded queue for a thread.

        Args:
            service: the name of the service.
            instance: the name of the instance.
            endpoint: the receiver.
            sample: the share of traces to record, 0 to 1, chosen by their ids.
            environment: the deployment environment.
            on_dropped: counts the spans that are lost.
        """
        ids = _DerivedIds()
        attributes = resource_attributes(service, instance, environment=environment)
        provider = TracerProvider(
            resource=Resource.create(attributes) if endpoint else Resource(attributes),
            id_generator=ids,
            sampler=TraceIdRatioBased(sample),
            shutdown_on_exit=False,
            span_limits=SpanLimits(max_events=1024),
        )
        processor = OtlpProcessor(endpoint, on_dropped) if endpoint else None
        if processor is not None:
            provider.add_span_processor(processor)
        return cls(provider=provider, ids=ids, processor=processor)

    @property
    def is_exporting(self) -> bool:
        """Whether spans leave the process."""
        return self._processor is not None

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
        span, ref = self._start(name, parent, attributes, role)
        return _Block(LiveSpan(span, ref), span, note_exceptions=note_exceptions)

    def begin(
        self,
        name: str,
        *,
        parent: SpanRef | None = None,
        attributes: Attributes | None = None,
        role: SpanRole = "internal",
    ) -> OpenSpan:
        """Begin a span that the caller ends; its parent is that of `span`."""
        return OpenSpan(*self._start(name, parent, attributes, role))

    def _start(
        self, name: str, parent: SpanRef | None, attributes: Attributes | None, role: SpanRole
    ) -> tuple[Span, SpanRef]:
        span = self._tracer.start_span(
            name,
            context=as_remote_parent(parent) if parent else None,
            kind=_KINDS[role],
            attributes=_present(attributes),
        )
        # With OTEL_SDK_DISABLED the SDK starts no spans, yet callers still need a reference.
        return span, from_span_context(span.get_span_context()) or parent or _unsampled(self._ids)

    def record(
        self,
        name: str,
        *,
        parent: SpanRef | None,
        key: str,
        start_ns: int,
        end_ns: int,
        attributes: Attributes | None = None,
        role: SpanRole = "internal",
        status_error: str | None = None,
        events: Sequence[SpanEvent] = (),
        links: Sequence[SpanLink] = (),
    ) -> SpanRef:
        """Record a span that has ended, and return it.

        Args:
            name: its name.
            parent: its parent; None makes it the root of the trace that `key` names.
            key: names the effect, unique in its trace. The same key gives the same span id: `span_ref(parent, key)`,
                or `trace_ref(key)` for a root.
            start_ns: its start in nanoseconds since 1970.
            end_ns: its end; not before the start.
            attributes: its attributes; empty texts are left out.
            role: its kind.
            status_error: why it failed, if it did.
            events: its events.
            links: its links.
        """
        ref = span_ref(parent, key) if parent else trace_ref(key)
        if self._processor is None:
            return ref
        token = self._ids.given.set(ref)
        try:
            span = self._tracer.start_span(
                name,
                context=as_remote_parent(parent) if parent else _NOWHERE,
                kind=_KINDS[role],
                attributes=_present(attributes),
                links=[Link(to_span_context(link.ref), link.attributes) for link in links],
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


def _present(attributes: Attributes | None) -> Attributes:
    """Return the attributes that have a value."""
    return {name: value for name, value in (attributes or {}).items() if value != ""}


def _unsampled(ids: RandomIdGenerator) -> SpanRef:
    return SpanRef(f"{ids.generate_trace_id():032x}", f"{ids.generate_span_id():016x}", sampled=False)
