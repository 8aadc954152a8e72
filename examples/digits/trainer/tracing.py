"""The span of this replica in the trace of its job; needs OpenTelemetry with its OTLP exporter.

Muster gives each replica ``TRACEPARENT``, the span of its launch: spans that continue it appear in ``muster trace``.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator


@contextmanager
def traced(name: str, environ: Mapping[str, str]) -> Generator[None]:
    """Record the block as a span; the receiver is that of every OpenTelemetry program, ``OTEL_EXPORTER_OTLP_ENDPOINT``."""
    resource = Resource.create({"service.name": environ.get("OTEL_SERVICE_NAME", "digits")})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    parent = TraceContextTextMapPropagator().extract({"traceparent": environ.get("TRACEPARENT", "")})
    try:
        with provider.get_tracer("digits").start_as_current_span(name, context=parent):
            yield
    finally:
        provider.shutdown()
