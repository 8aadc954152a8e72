"""Export of spans by OTLP, in batches from a thread; spans that cannot be sent are counted, and logged once a minute.

The exporter is imported with the first batch: its imports cost as much as all other telemetry, in every process, just when a
service should become ready.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from muster_service.logs import fields

log = logging.getLogger(__name__)

_SCHEDULE_DELAY_MS = 1000
"""Each export costs as much as a hundred spans, here and at the receiver."""
_MAX_QUEUE = 16_384
_MAX_BATCH = 512
# Retries within it outlast a restart of the receiver.
_TIMEOUT_S = 10.0
_LOG_EVERY_S = 60.0
_SDK_LOGGERS = ("opentelemetry.exporter", "opentelemetry.sdk._shared_internal")

OnDropped = Callable[[str, int], None]
"""Called with why spans were dropped (`queue_full` or `export_failed`) and their number, from any thread."""


def ignore_dropped(_reason: str, _spans: int) -> None:
    """Do nothing about dropped spans."""


class DroppedSpans:
    """Counts spans that were dropped, and logs a warning at most once a minute; called from several threads."""

    def __init__(
        self,
        endpoint: str,
        on_dropped: OnDropped = ignore_dropped,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._on_dropped = on_dropped
        self._clock = clock
        self._unlogged = 0
        self._log_at = 0.0
        self.total = 0

    def add(self, reason: str, number: int) -> None:
        """Count dropped spans."""
        self.total += number
        self._unlogged += number
        self._on_dropped(reason, number)
        now = self._clock()
        if now >= self._log_at:
            log.warning(
                "spans cannot be exported and are dropped; work goes on",
                extra=fields(endpoint=self._endpoint, dropped=self._unlogged, in_total=self.total),
            )
            self._unlogged = 0
            self._log_at = now + _LOG_EVERY_S


class OtlpProcessor(SpanProcessor):
    """Exports batches to ``endpoint``, a URL or host:port. An unavailable receiver costs spans, never time.

    Spans are dropped, and counted, before the queue of the SDK would drop them without a count.
    """

    def __init__(
        self,
        endpoint: str,
        on_dropped: OnDropped = ignore_dropped,
        *,
        exporter: SpanExporter | None = None,
        max_queue: int | None = None,
    ) -> None:
        _silence_sdk()
        self.dropped = DroppedSpans(endpoint, on_dropped)
        self._max_queue = max_queue = max_queue or _MAX_QUEUE
        self._exporter = _CountedExporter(exporter or _LateExporter(endpoint), self.dropped)
        self._ended = 0
        self._batches = BatchSpanProcessor(
            self._exporter,
            schedule_delay_millis=_SCHEDULE_DELAY_MS,
            max_queue_size=max_queue,
            max_export_batch_size=min(_MAX_BATCH, max_queue),
        )

    @property
    def queued(self) -> int:
        """The number of spans that wait for their export."""
        return self._ended - self._exporter.taken

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Do nothing."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queue the span, unless the queue is full."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if self.queued >= self._max_queue:
            self.dropped.add("queue_full", 1)
            return
        self._ended += 1
        self._batches.on_end(span)

    def shutdown(self) -> None:
        """Export what is queued; blocks."""
        self._batches.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export what is queued; blocks."""
        return self._batches.force_flush(timeout_millis)


class _CountedExporter(SpanExporter):
    """Counts the spans that an exporter takes, and those that it fails to send."""

    def __init__(self, exporter: SpanExporter, dropped: DroppedSpans) -> None:
        self._exporter = exporter
        self._dropped = dropped
        self.taken = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            if result is not SpanExportResult.SUCCESS:
                self._dropped.add("export_failed", len(spans))
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class _LateExporter(SpanExporter):
    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._exporter: SpanExporter | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self._exporter is None:
            self._exporter = _otlp_exporter(self._endpoint)
        return self._exporter.export(spans)

    def shutdown(self) -> None:
        if self._exporter is not None:
            self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter is None or self._exporter.force_flush(timeout_millis)


def _otlp_exporter(endpoint: str) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

    insecure = None if "://" in endpoint else True
    return OTLPSpanExporter(endpoint=endpoint, insecure=insecure, timeout=_TIMEOUT_S)


def _silence_sdk() -> None:
    """Drop the SDK's own lines, several for each batch that cannot be sent, unless everything is logged."""
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        return
    for name in _SDK_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
