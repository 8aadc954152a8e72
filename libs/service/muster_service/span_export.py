"""Export spans by OTLP, importing the exporter with the first span.

Its imports cost as much as all other telemetry, in every process, just when a service should become ready.
"""

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

_SCHEDULE_DELAY_MS = 1000
"""Each export costs as much as a hundred spans, here and at the receiver."""
_MAX_QUEUE = 16_384
_MAX_BATCH = 512
# Retries within it outlast a restart of the receiver.
_TIMEOUT_S = 10.0


def otlp_processor(endpoint: str) -> SpanProcessor:
    """Return a processor that exports batches to `endpoint`, a URL or host:port, from a thread.

    An unavailable receiver costs spans, never time: they wait in a bounded queue.
    """
    return BatchSpanProcessor(
        _LateExporter(endpoint),
        schedule_delay_millis=_SCHEDULE_DELAY_MS,
        max_queue_size=_MAX_QUEUE,
        max_export_batch_size=_MAX_BATCH,
    )


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
