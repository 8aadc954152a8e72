"""Recorded spans in memory, for recorders that are tested without a receiver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from unittest.mock import create_autospec

import msgspec

from muster_service.trace_context import SpanRef, span_ref, trace_ref
from muster_service.tracing import SpanEvent, SpanLink, Telemetry


class RecordedSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded span, with ``by``, the instance that recorded it."""

    by: str
    name: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    role: str = "internal"
    attributes: Mapping[str, object] = {}
    error: str | None = None
    events: Sequence[SpanEvent] = ()
    links: Sequence[SpanLink] = ()


class SpanLog:
    """The spans of several instances, in the order in which they were recorded."""

    def __init__(self) -> None:
        self.spans: list[RecordedSpan] = []

    def named(self, name: str) -> RecordedSpan:
        """Return the only span of that name."""
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def telemetry(self, instance: str = "") -> Telemetry:
        """Return a telemetry whose recorded spans are kept here."""

        def record(
            name: str,
            *,
            parent: SpanRef | None,
            key: str,
            start_ns: int,
            end_ns: int,
            attributes: Mapping[str, object] | None = None,
            role: str = "internal",
            status_error: str | None = None,
            events: Sequence[SpanEvent] = (),
            links: Sequence[SpanLink] = (),
        ) -> SpanRef:
            ref = span_ref(parent, key) if parent else trace_ref(key)
            self.spans.append(
                RecordedSpan(
                    by=instance,
                    name=name,
                    span_id=ref.span_id,
                    parent_id=parent.span_id if parent else "",
                    start_ns=start_ns,
                    end_ns=end_ns,
                    role=role,
                    attributes=attributes or {},
                    error=status_error,
                    events=events,
                    links=links,
                )
            )
            return ref

        telemetry = create_autospec(Telemetry, instance=True)
        telemetry.is_exporting = True
        telemetry.record.side_effect = record
        return telemetry
