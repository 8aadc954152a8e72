"""The record of a job as the API answers it, with what is derived from it: conditions, counts by role, progress and speed-up."""

from __future__ import annotations

from muster_core.frameworks import computes, start_order_reason
from muster_core.lifecycle import ACTIVE_PHASES, address_of, speed_up_of
from muster_core.models import (
    HistoryEntry,
    JobRecord,
    Phase,
    Progress as ProgressRecord,
    ReplicaRecord,
    ReplicaState,
    replica_name,
)
from muster_rpc.convert.codec import Codecs, StructMapping, timestamp_to_proto
from muster_rpc.convert.specs import CODECS, job_to_proto
from muster_rpc.v1 import job_pb2

_US = 1_000_000
_PENDING = frozenset({ReplicaState.PLACED, ReplicaState.LAUNCHED})
_ALLOCATED = frozenset({Phase.PLACED, Phase.LAUNCHING, Phase.RUNNING})
_TRACEPARENT_PARTS = 4
_TRACE_ID, _SPAN_ID = 1, 2

_codecs = Codecs(
    tables={
        **CODECS.tables,
        JobRecord: StructMapping(partial=True, omitted=frozenset({"replicas", "progress", "history"})),
        ReplicaRecord: StructMapping(partial=True),
        ProgressRecord: StructMapping(partial=True),
    },
    texts=CODECS.texts,
)
_STATUS = _codecs.codec(JobRecord, job_pb2.JobStatus)
_REPLICAS = _codecs.codec(ReplicaRecord, job_pb2.Replica)
_HISTORY = _codecs.codec(HistoryEntry, job_pb2.HistoryEntry)
_PROGRESS = _codecs.codec(ProgressRecord, job_pb2.Progress)


def record_to_proto(record: JobRecord, *, history: bool = True, queue: str = "") -> job_pb2.Job:
    """The job as a message; lists leave out the ``history``. ``queue`` is the queue that the job is in."""
    job = record.job
    name = record.name or (job.name if job else "")
    return job_pb2.Job(
        job_id=record.job_id,
        name=name,
        namespace=job.namespace if job else "",
        spec=job_to_proto(job) if job else None,
        status=_STATUS.to_proto(
            record,
            replicas=[_replica(name or record.job_id, record, replica) for replica in record.replicas],
            roles=_roles(record),
            conditions=_conditions(record),
            history=[_HISTORY.to_proto(entry) for entry in record.history] if history else (),
            address=address_of(record),
            progress=_progress(record),
            speed_up=_speed_up(record),
            queue=queue,
        ),
        trace_id=_trace_part(record.trace, _TRACE_ID),
        root_span_id=_trace_part(record.trace, _SPAN_ID),
        revision=record.applied_sequence,
        submitter=record.submitter,
        built_by=record.built_by,
        submission_id=record.submission_id or record.job_id,
    )


def _replica(job: str, record: JobRecord, replica: ReplicaRecord) -> job_pb2.Replica:
    message = _REPLICAS.to_proto(replica, name=replica_name(job, replica.role, replica.index))
    if (
        replica.state is ReplicaState.PLACED
        and not record.terminal
        and (waits := start_order_reason(record, replica))
    ):
        message.reason = waits.message
    return message


def _roles(record: JobRecord) -> list[job_pb2.RoleStatus]:
    """Counts of the current membership. Replicas that were removed neither failed nor succeeded and are not counted."""
    counts = (
        {role.name: job_pb2.RoleStatus(role=role.name) for role in record.job.roles} if record.job else {}
    )
    for member in record.gang():
        if member.state is ReplicaState.REMOVED:
            continue
        status = counts.setdefault(member.role, job_pb2.RoleStatus(role=member.role))
        if member.state in _PENDING:
            status.pending += 1
        elif member.state is ReplicaState.RUNNING:
            status.active += 1
        elif member.state is ReplicaState.EXITED and member.exit_code == 0:
            status.succeeded += 1
        else:
            status.failed += 1
    return list(counts.values())


def _progress(record: JobRecord) -> job_pb2.Progress | None:
    """The last report of the job, with the measured sizes; None where it has made none."""
    report = record.progress
    if report is None:
        return None
    return _PROGRESS.to_proto(
        report,
        replica=job_pb2.ReplicaRef(role=report.role, index=report.index, attempt=report.attempt),
        throughput=[
            job_pb2.Throughput(workers=one.workers, steps_per_second=one.steps * _US / one.micros)
            for one in record.throughput
            if one.micros
        ],
    )


def _speed_up(record: JobRecord) -> job_pb2.SpeedUp | None:
    """The speed-up model of an elastic job that runs; None for any other."""
    if record.job is None or record.phase not in ACTIVE_PHASES:
        return None
    if not any(role.min < role.max and computes(role.name) for role in record.job.roles):
        return None
    workers = sum(1 for member in record.gang() if computes(member.role))
    speed_up = speed_up_of(record.throughput)
    return job_pb2.SpeedUp(
        workers=workers,
        factor=float(speed_up.at(workers)),
        gain=float(speed_up.gain(workers)),
        serial_fraction=float(speed_up.serial),
        measured_sizes=speed_up.sizes,
    )


def _trace_part(traceparent: str, part: int) -> str:
    parts = traceparent.split("-")
    return parts[part] if len(parts) >= _TRACEPARENT_PARTS else ""


# Conditions are derived from the phase and never stored, so that they cannot disagree with it. A condition appears once it has been
# true, and is false afterwards.
_ENDINGS = {
    Phase.SUCCEEDED: "Succeeded",
    Phase.FAILED: "Failed",
    Phase.TIMED_OUT: "Failed",
    Phase.REJECTED: "Failed",
    Phase.CANCELLED: "Cancelled",
}
_PAUSES = {
    Phase.RESTARTING: ("Restarting", ("JobRestarting", "CommandRequested")),
    Phase.EVICTED: ("Evicted", ("JobEvicted",)),
    Phase.SUSPENDED: ("Suspended", ("CommandRequested",)),
}


def _conditions(record: JobRecord) -> list[job_pb2.Condition]:
    """The conditions that the record implies, in the order of a job's life."""
    conditions = [_condition("Created", at=record.submitted_at, reason="JobSubmitted")]
    if record.placed_at:
        if record.phase in _ALLOCATED:
            conditions.append(_condition("Placed", at=record.placed_at, reason="GangPlaced"))
        else:
            conditions.append(_of_phase("Placed", record, at=_lost_at(record), holds=False))
    if record.running_at:
        if record.phase is Phase.RUNNING:
            conditions.append(_condition("Running", at=record.running_at, reason="GangRunning"))
        else:
            conditions.append(_of_phase("Running", record, at=_lost_at(record), holds=False))
    if record.phase in _PAUSES:
        kind, causes = _PAUSES[record.phase]
        conditions.append(_of_phase(kind, record, at=_last(record, *causes)))
    if record.phase in _ENDINGS:
        conditions.append(_of_phase(_ENDINGS[record.phase], record, at=record.finished_at or _last(record)))
    return conditions


def _lost_at(record: JobRecord) -> int:
    return record.finished_at or _last(record, "JobRestarting", "JobEvicted", "CommandRequested")


def _last(record: JobRecord, *events: str) -> int:
    """The time of the last of these events, by default of any event; 0 if the bounded history no longer has it."""
    return max((entry.at for entry in record.history if not events or entry.event in events), default=0)


def _of_phase(kind: str, record: JobRecord, *, at: int, holds: bool = True) -> job_pb2.Condition:
    reason = record.reason
    return _condition(
        kind,
        holds=holds,
        at=at,
        reason=reason.code if reason else record.phase.value,
        message=reason.message if reason else "",
    )


def _condition(
    kind: str, *, at: int, reason: str, message: str = "", holds: bool = True
) -> job_pb2.Condition:
    return job_pb2.Condition(
        type=kind,
        status=job_pb2.CONDITION_STATUS_TRUE if holds else job_pb2.CONDITION_STATUS_FALSE,
        reason=reason,
        message=message,
        last_transition_at=timestamp_to_proto(at),
    )
