"""Construction of spec-validator."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from muster_bus import (
    Bus,
    Duplicate,
    GroupCommit,
    Incoming,
    KeyValueStore,
    Outgoing,
    WorkQueue,
    WrongSequence,
)
from muster_bus.service_bus import connect_bus, keep_catalogue, probe_writes
from muster_core.events import JobRejected, JobSubmitted, JobValidated, StoredEvent
from muster_core.models import Problem, Severity
from muster_events import messaging, spans
from muster_events.catalogue import (
    DEAD_STREAM,
    DEFAULTS_BUCKET,
    JOBS_STREAM,
    SPEC_VALIDATOR,
    consumers_of,
    probes_of,
)
from muster_events.codec import job_message
from muster_events.subjects import UNSTORED, job_id_in, job_in, job_subject, part_job_id
from muster_events.view import stamp
from muster_formats import kubernetes_limits
from muster_formats.registry import all_formats
from muster_rpc.internal.v1 import queries_pb2_grpc
from muster_service.app import Context
from muster_service.metrics import Metrics
from muster_service.trace_context import extract
from muster_service.tracing import SpanEvent, Telemetry, failure_event
from muster_spec_validator.defaults import DefaultsBucket
from muster_spec_validator.queries import SpecServicer
from muster_spec_validator.settings import SpecValidatorSettings
from muster_spec_validator.validation import PartExists, Rules, SubmissionHandler

_NS_PER_US = 1000
_MOST_REJECTIONS = 16
_PROCESSED = messaging.processed(JobSubmitted) | {"messaging.consumer.group.name": SPEC_VALIDATOR}


class BusPublisher:
    """Implements ``Publisher``, with a span in the trace of each job."""

    def __init__(self, *, bus: Bus, telemetry: Telemetry, metrics: Metrics) -> None:
        self._bus = bus
        self._commits = GroupCommit(bus)
        self._validations = metrics.counter(
            "muster_validations", "submissions validated, by result", ("result",)
        )
        for event in (JobValidated, JobRejected):
            self._validations.labels(event.__name__)
        self._telemetry = telemetry

    async def publish(self, submission: StoredEvent, jobs: Sequence[JobValidated]) -> bool:
        """Publish the jobs of a submission, all or none, once."""
        messages = [_message(part_job_id(submission.job_id, event.part), event, submission) for event in jobs]
        first = await self._commit(messages, submission) if len(messages) > 1 else await self._once(*messages)
        for event in jobs:
            self._record_span(part_job_id(submission.job_id, event.part), event.job.name, submission)
        return first

    async def reject(self, submission: StoredEvent, rejected: JobRejected) -> bool:
        """Publish the rejection of a submission, once."""
        first = await self._once(_message(submission.job_id, rejected, submission))
        self._record_span(submission.job_id, rejected.name, submission, rejected=rejected)
        return first

    async def _once(self, message: Outgoing) -> bool:
        try:
            published = await self._commits.publish(message, lambda: self._bus.publish_once(message))
        except WrongSequence:
            # The submission has a result already.
            return False
        if not published.duplicate:
            self._count(message)
        return not published.duplicate

    async def _commit(self, messages: Sequence[Outgoing], submission: StoredEvent) -> bool:
        # The broker checks message ids and subjects: it rejects the whole batch if one of its messages is already stored.
        with suppress(WrongSequence, Duplicate):
            if not (await self._bus.commit(messages, fence=None)).duplicate:
                self._count(messages[0])
                return True
        rejected = job_subject(submission.job_id, JobRejected.__name__)
        stored = [await self._bus.last(JOBS_STREAM, message.subject) for message in messages]
        if stored[0] is not None or await self._bus.last(JOBS_STREAM, rejected) is not None:
            return False
        # The first job of an earlier submission was deleted, another one was not.
        existing = (job_id_in(one.subject) for one in stored if one is not None)
        raise PartExists(next(existing, submission.job_id))

    def _count(self, message: Outgoing) -> None:
        self._validations.labels(job_in(message.subject)[1]).inc()

    def _record_span(
        self, job_id: str, name: str, submission: StoredEvent, *, rejected: JobRejected | None = None
    ) -> None:
        parent = extract({"traceparent": submission.traceparent})
        if parent is None or not self._telemetry.is_exporting:
            return
        now_ns = time.time_ns()
        self._telemetry.record(
            "validate",
            parent=parent,
            key=spans.validate(job_id),
            start_ns=submission.at * _NS_PER_US,
            end_ns=now_ns,
            role="consumer",
            attributes=_PROCESSED
            | {
                "messaging.message.id": f"{submission.job_id}/submitted",
                "muster.job": name,
                "muster.job_id": job_id,
                "muster.outcome": (JobRejected if rejected else JobValidated).__name__,
            },
            status_error=f"{len(rejected.problems)} problems" if rejected else None,
            events=_rejections(rejected, now_ns) if rejected else (),
        )


def _rejections(rejected: JobRejected, at_ns: int) -> list[SpanEvent]:
    """Return an event for each of the first errors of a document."""
    errors = [one for one in rejected.problems if one.severity is Severity.ERROR]
    return [_rejection(problem, at_ns) for problem in errors[:_MOST_REJECTIONS]]


def _rejection(problem: Problem, at_ns: int) -> SpanEvent:
    return failure_event(
        "rejected",
        at_ns,
        kind=problem.code,
        message=problem.message,
        **{"muster.path": problem.path, "muster.line": problem.line or "", "muster.fix": problem.fix},
    )


def _message(job_id: str, event: JobValidated | JobRejected, submission: StoredEvent) -> Outgoing:
    return job_message(
        job_id, event, source=SPEC_VALIDATOR, traceparent=submission.traceparent, expected_last=0
    )


async def build(settings: SpecValidatorSettings, ctx: Context) -> None:
    """Construct the service."""
    ctx.set_ready("defaults", False)
    all_formats()  # Import them now, so that no submission waits for the imports.
    bus = await connect_bus(settings, ctx)
    probe_writes(bus, ctx, settings, subjects=probes_of(SPEC_VALIDATOR), hint=UNSTORED)
    keep_catalogue(
        bus,
        ctx,
        streams=[JOBS_STREAM, DEAD_STREAM],
        buckets=[DEFAULTS_BUCKET],
        consumers=consumers_of(SPEC_VALIDATOR),
    )
    defaults = DefaultsBucket(KeyValueStore(bus, DEFAULTS_BUCKET))
    version = ctx.metrics.gauge("muster_defaults_version", "current version of the platform defaults")
    version.set_function(lambda: defaults.newest_version)
    publisher = BusPublisher(bus=bus, telemetry=ctx.telemetry, metrics=ctx.metrics)
    rules = Rules()
    if settings.runtime == "kubernetes":
        limits = partial(kubernetes_limits, gpu_shares=settings.gpu_shares)
        rules = Rules(limits=limits, gpu_shares=settings.gpu_shares)
    handler = SubmissionHandler(publisher=publisher, defaults=defaults, rules=rules)

    async def handle(incoming: Incoming) -> None:
        await handler.handle(stamp(incoming))

    queue = WorkQueue(
        bus, stream=JOBS_STREAM, consumer=SPEC_VALIDATOR, handler=handle, concurrency=settings.concurrency
    )

    async def validate() -> None:
        await defaults.current()
        ctx.set_ready("defaults", True)
        await queue.run()

    ctx.add_part("defaults", defaults.run)
    ctx.add_part("submissions", validate)
    ctx.add_grpc(
        queries_pb2_grpc.add_SpecServiceServicer_to_server, SpecServicer(defaults=defaults, rules=rules)
    )
