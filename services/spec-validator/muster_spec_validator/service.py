"""The only place that constructs spec-validator's adapters."""

from __future__ import annotations

import time

from muster_bus import Bus, GroupCommit, Incoming, Queue, Records
from muster_bus.service_bus import connect_bus
from muster_core.events import JobRejected, JobValidated, StoredEvent
from muster_events import spans
from muster_events.catalogue import DEFAULTS_BUCKET, JOBS_STREAM, SPEC_VALIDATOR
from muster_events.codec import job_message
from muster_events.view import stamp
from muster_formats.capabilities import limits_of
from muster_formats.pod_limits import limits_in_pods
from muster_formats.registry import all_formats
from muster_rpc.v1 import internal_service_pb2_grpc
from muster_service.app import Context
from muster_service.metrics import Metrics
from muster_service.telemetry import Telemetry
from muster_service.trace_context import extract
from muster_spec_validator.bucket import DefaultsBucket
from muster_spec_validator.handlers import SpecServicer, SubmissionHandler
from muster_spec_validator.settings import SpecValidatorSettings

_NS_PER_US = 1000


class BusVerdicts:
    """Verdicts on the bus, each with its span in the job's trace."""

    def __init__(self, *, bus: Bus, telemetry: Telemetry, metrics: Metrics) -> None:
        self._bus = bus
        self._commits = GroupCommit(bus)
        self._verdicts = metrics.counter("muster_verdicts", "submissions judged", ("verdict",))
        self._telemetry = telemetry

    async def publish(self, submission: StoredEvent, verdict: JobValidated | JobRejected) -> bool:
        """See ``Verdicts``."""
        message = job_message(
            submission.job_id,
            verdict,
            source=SPEC_VALIDATOR,
            traceparent=submission.traceparent,
            expected_last=0,
        )
        published = await self._commits.publish(message, lambda: self._bus.publish_once(message))
        if not published.duplicate:
            self._verdicts.labels(type(verdict).__name__).inc()
        parent = extract({"traceparent": submission.traceparent})
        if parent is not None:
            rejected = isinstance(verdict, JobRejected)
            self._telemetry.record(
                "validate",
                parent=parent,
                key=spans.validate(submission.job_id),
                start_ns=submission.at * _NS_PER_US,
                end_ns=time.time_ns(),
                attributes={
                    "muster.job": verdict.name if rejected else verdict.job.name,
                    "muster.job_id": submission.job_id,
                    "muster.verdict": type(verdict).__name__,
                },
                status_error=f"{len(verdict.problems)} problems" if rejected else None,
            )
        return not published.duplicate


async def build(settings: SpecValidatorSettings, ctx: Context) -> None:
    """Construct the service."""
    ctx.set_ready("defaults", False)
    all_formats()  # Now and not at the first document of each kind, whose submitter would wait for the imports.
    bus = await connect_bus(settings, ctx)
    defaults = DefaultsBucket(Records(bus, DEFAULTS_BUCKET))
    in_force = ctx.metrics.gauge(
        "muster_defaults_version", "version of the platform's defaults in force here"
    )
    in_force.set_function(lambda: defaults.heard)
    verdicts = BusVerdicts(bus=bus, telemetry=ctx.telemetry, metrics=ctx.metrics)
    limits = limits_in_pods if settings.runtime == "kubernetes" else limits_of
    handler = SubmissionHandler(verdicts=verdicts, defaults=defaults, limits=limits)

    async def handle(incoming: Incoming) -> None:
        await handler.handle(stamp(incoming))

    queue = Queue(
        bus,
        stream=JOBS_STREAM,
        durable=SPEC_VALIDATOR,
        handler=handle,
        concurrency=settings.concurrency,
    )

    async def judge() -> None:
        await defaults.in_force()
        ctx.set_ready("defaults", True)
        await queue.run()

    ctx.add_part("defaults", defaults.run)
    ctx.add_part("submissions", judge)
    ctx.add_grpc(
        internal_service_pb2_grpc.add_SpecServiceServicer_to_server,
        SpecServicer(defaults=defaults, limits=limits),
    )
