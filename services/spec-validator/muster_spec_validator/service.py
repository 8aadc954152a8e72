"""The only place that constructs spec-validator's adapters."""

from __future__ import annotations

import time

from muster_core.facts import JobRejected, JobValidated, Stamped
from muster_events.catalogue import JOBS_STREAM, SPEC_VALIDATOR
from muster_events.codec import job_message
from muster_events.view import stamp
from muster_rpc.v1 import internal_service_pb2_grpc
from muster_runtime.app import Context
from muster_runtime.bus import Bus, Incoming, Queue
from muster_runtime.metrics import Metrics
from muster_runtime.service_bus import connect_bus
from muster_runtime.telemetry import Telemetry
from muster_runtime.trace_context import extract
from muster_spec_validator.handlers import SpecServicer, SubmissionHandler
from muster_spec_validator.settings import SpecValidatorSettings

_NS_PER_US = 1000


class BusVerdicts:
    """Verdicts on the bus, each with its span in the job's trace."""

    def __init__(self, *, bus: Bus, telemetry: Telemetry, metrics: Metrics) -> None:
        self._bus = bus
        self._verdicts = metrics.counter("muster_verdicts", "submissions judged", ("verdict",))
        self._telemetry = telemetry

    async def publish(self, submission: Stamped, verdict: JobValidated | JobRejected) -> None:
        """See ``Verdicts``."""
        message = job_message(
            submission.job_id,
            verdict,
            source=SPEC_VALIDATOR,
            traceparent=submission.traceparent,
            expected_last=0,
        )
        await self._bus.publish_once(message)
        self._verdicts.labels(type(verdict).__name__).inc()
        parent = extract({"traceparent": submission.traceparent})
        if parent is not None:
            rejected = isinstance(verdict, JobRejected)
            self._telemetry.record(
                "validate",
                parent=parent,
                key="validate",
                start_ns=submission.at * _NS_PER_US,
                end_ns=time.time_ns(),
                attributes={"muster.job_id": submission.job_id, "muster.verdict": type(verdict).__name__},
                status_error=f"{len(verdict.problems)} problems" if rejected else None,
            )


async def build(settings: SpecValidatorSettings, ctx: Context) -> None:
    """Construct the service."""
    bus = await connect_bus(settings, ctx)
    handler = SubmissionHandler(verdicts=BusVerdicts(bus=bus, telemetry=ctx.telemetry, metrics=ctx.metrics))

    async def handle(incoming: Incoming) -> None:
        await handler.handle(stamp(incoming))

    queue = Queue(
        bus,
        stream=JOBS_STREAM,
        durable=SPEC_VALIDATOR,
        handler=handle,
        concurrency=settings.concurrency,
    )
    ctx.add_part("submissions", queue.run)
    ctx.add_grpc(internal_service_pb2_grpc.add_SpecServiceServicer_to_server, SpecServicer())
