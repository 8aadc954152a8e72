"""OTLP's TraceService in front of the store."""

import asyncio
from concurrent.futures import Executor

from grpc import aio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceServicer

from muster_local.sink.store import TraceStore

Context = aio.ServicerContext[ExportTraceServiceRequest, ExportTraceServiceResponse]


class Receiver(TraceServiceServicer):
    """Keeps what is exported; answers once it is in the store.

    Args:
        store: is only used in `executor`.
        executor: of one thread.
    """

    def __init__(self, *, store: TraceStore, executor: Executor) -> None:
        self._store = store
        self._executor = executor

    async def Export(
        self, request: ExportTraceServiceRequest, context: Context
    ) -> ExportTraceServiceResponse:
        """Keep the spans; those that the store refuses are counted as rejected."""
        rejected = await asyncio.get_running_loop().run_in_executor(
            self._executor, self._store.add, request.resource_spans
        )
        if not rejected:
            return ExportTraceServiceResponse()
        reason = "their ids are not valid, or their trace takes half of the space already"
        return ExportTraceServiceResponse(
            partial_success=ExportTracePartialSuccess(rejected_spans=rejected, error_message=reason)
        )
