"""Notifications: a change of a job's phase, as a CloudEvent in JSON."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from muster_core.models import JobRecord, Phase, Reason, ReplicaState

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
_US = 1_000_000


class PhaseChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of phase: the record after the event, the phase before (None: the job is new), and the time of the event (µs)."""

    before: Phase | None
    after: JobRecord
    at: int

    @property
    def sequence(self) -> int:
        """The stream sequence of the event."""
        return self.after.applied_sequence


class ReplicaCounts(msgspec.Struct, frozen=True):
    """Running replicas of the current attempt, and all of them."""

    running: int
    total: int


class JobSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The job after the change. Times are RFC 3339, absent if not set."""

    job_id: str
    name: str
    namespace: str
    phase: Phase
    previous_phase: Phase | None
    sequence: int
    reason: Reason | None
    replicas: ReplicaCounts
    queue: str = ""
    format: str = ""
    submitter: str = ""
    attempt: int = 0
    generation: int = 0
    failures: int = 0
    evictions: int = 0
    submitted_at: str | None = None
    started_at: str | None = None
    running_at: str | None = None
    finished_at: str | None = None


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The envelope. ``sequence`` sorts as text; ``traceparent`` is that of the job's trace."""

    specversion: str
    id: str
    source: str
    type: str
    subject: str
    time: str
    datacontenttype: str
    sequence: str
    data: JobSummary
    traceparent: str = ""


def event_of(change: PhaseChange, *, source: str) -> bytes:
    """Return the CloudEvent as JSON; deterministic, so that a repeated notification has the same bytes."""
    record = change.after
    return msgspec.json.encode(
        CloudEvent(
            specversion="1.0",
            id=f"{record.job_id}/{change.sequence}",
            source=source,
            type=f"muster.v1.job.{record.phase.value.lower()}",
            subject=record.job_id,
            time=_instant(change.at) or "",
            datacontenttype="application/json",
            sequence=f"{change.sequence:020d}",
            data=_summary(change),
            traceparent=record.trace,
        )
    )


def _summary(change: PhaseChange) -> JobSummary:
    record = change.after
    gang = record.gang()
    return JobSummary(
        job_id=record.job_id,
        name=record.name,
        namespace=record.job.namespace if record.job else "default",
        phase=record.phase,
        previous_phase=change.before,
        sequence=change.sequence,
        reason=record.reason,
        replicas=ReplicaCounts(
            running=sum(1 for replica in gang if replica.state is ReplicaState.RUNNING), total=len(gang)
        ),
        queue=record.job.queue if record.job else "",
        format=record.format,
        submitter=record.submitter,
        attempt=record.attempt,
        generation=record.generation,
        failures=record.failures,
        evictions=record.evictions,
        submitted_at=_instant(record.submitted_at),
        started_at=_instant(record.started_at),
        running_at=_instant(record.running_at),
        finished_at=_instant(record.finished_at),
    )


def _instant(micros: int) -> str | None:
    if not micros:
        return None
    seconds, rest = divmod(micros, _US)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:06d}Z"
