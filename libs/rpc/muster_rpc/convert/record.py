"""The folded record of a job, as the API answers it."""

from __future__ import annotations

from collections.abc import Iterable

from muster_core.frameworks import held_back
from muster_core.lifecycle.services import address_of
from muster_core.models import HistoryEntry, JobRecord, Reason, ReplicaRecord, ReplicaState, replica_name
from muster_rpc.convert.conditions import conditions_of
from muster_rpc.convert.enums import phase_to_proto, replica_state_to_proto
from muster_rpc.convert.instants import timestamp_to_proto
from muster_rpc.convert.job import job_to_proto
from muster_rpc.convert.problem import problem_to_proto
from muster_rpc.convert.progress import progress_to_proto, speed_up_to_proto
from muster_rpc.v1 import job_pb2

_PENDING = frozenset({ReplicaState.PLACED, ReplicaState.LAUNCHED})
_TRACEPARENT_PARTS = 4


def reason_to_proto(reason: Reason) -> job_pb2.Reason:
    """The reason as a message."""
    return job_pb2.Reason(code=reason.code, message=reason.message, numbers=reason.numbers)


def record_to_proto(record: JobRecord, *, history: bool = True, queue: str = "") -> job_pb2.Job:
    """The job as a message; without ``history`` for lists, where nobody reads it. ``queue`` is the one that it is in."""
    job = record.job
    return job_pb2.Job(
        job_id=record.job_id,
        name=record.name or (job.name if job else ""),
        namespace=job.namespace if job else "",
        spec=job_to_proto(job) if job else None,
        status=_status(record, history=history, queue=queue),
        trace_id=_trace_id(record.trace),
        sequence=record.applied_sequence,
        submitter=record.submitter,
        built_by=record.built_by,
    )


def _status(record: JobRecord, *, history: bool, queue: str) -> job_pb2.JobStatus:
    name = record.name or (record.job.name if record.job else record.job_id)
    return job_pb2.JobStatus(
        phase=phase_to_proto(record.phase),
        reason=reason_to_proto(record.reason) if record.reason else None,
        attempt=record.attempt,
        generation=record.generation,
        replicas=[_replica(name, record, replica) for replica in record.replicas],
        roles=_roles(record),
        conditions=conditions_of(record),
        history=[_entry(entry) for entry in record.history] if history else (),
        problems=[problem_to_proto(problem) for problem in record.problems],
        failures=record.failures,
        evictions=record.evictions,
        submitted_at=timestamp_to_proto(record.submitted_at),
        queued_at=timestamp_to_proto(record.queued_at),
        placed_at=timestamp_to_proto(record.placed_at),
        running_at=timestamp_to_proto(record.running_at),
        finished_at=timestamp_to_proto(record.finished_at),
        address=address_of(record),
        progress=progress_to_proto(record),
        speed_up=speed_up_to_proto(record),
        queue=queue,
    )


def _replica(job: str, record: JobRecord, replica: ReplicaRecord) -> job_pb2.Replica:
    waits = (
        held_back(record, replica) if replica.state is ReplicaState.PLACED and not record.terminal else None
    )
    return job_pb2.Replica(
        name=replica_name(job, replica.role, replica.index),
        role=replica.role,
        index=replica.index,
        attempt=replica.attempt,
        generation=replica.generation,
        restart=replica.restart,
        state=replica_state_to_proto(replica.state),
        leaving=replica.leaving,
        node=replica.node,
        gpus=replica.gpus,
        address=replica.address,
        exit_code=replica.exit_code,
        signal=replica.signal,
        reason=waits.message if waits else replica.reason,
        placed_at=timestamp_to_proto(replica.placed_at),
        running_at=timestamp_to_proto(replica.running_at),
        ended_at=timestamp_to_proto(replica.ended_at),
    )


def _roles(record: JobRecord) -> list[job_pb2.RoleStatus]:
    """Counts of the current membership: replicas that were taken away count nowhere, for they neither failed nor succeeded."""
    members = [member for member in record.members() if member.state is not ReplicaState.REMOVED]
    named = [role.name for role in record.job.roles] if record.job else []
    names = dict.fromkeys([*named, *(member.role for member in members)])
    return [_role_status(name, [member for member in members if member.role == name]) for name in names]


def _role_status(role: str, members: Iterable[ReplicaRecord]) -> job_pb2.RoleStatus:
    status = job_pb2.RoleStatus(role=role)
    for member in members:
        if member.state in _PENDING:
            status.pending += 1
        elif member.state is ReplicaState.RUNNING:
            status.active += 1
        elif member.state is ReplicaState.EXITED and member.exit_code == 0:
            status.succeeded += 1
        else:
            status.failed += 1
    return status


def _entry(entry: HistoryEntry) -> job_pb2.HistoryEntry:
    return job_pb2.HistoryEntry(
        at=timestamp_to_proto(entry.at),
        event=entry.event,
        source=entry.source,
        reason=entry.reason,
        message=entry.message,
    )


def _trace_id(traceparent: str) -> str:
    parts = traceparent.split("-")
    return parts[1] if len(parts) >= _TRACEPARENT_PARTS else ""
