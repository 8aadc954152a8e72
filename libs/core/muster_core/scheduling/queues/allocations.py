"""What the replicas of a record hold of the pool.

Allocations are kept nowhere else: they are the fold of the events, so that they cannot disagree with them.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster_core.lifecycle.misses import was_taken
from muster_core.lifecycle.moves import ACTIVE_PHASES
from muster_core.models import JobKind, JobRecord, ReplicaRecord, ReplicaState, RestartPolicy
from muster_core.scheduling.placement import Allocation, AllocationKey, allocation_of

_NOTHING: Mapping[AllocationKey, Allocation] = {}


def allocations_of(
    record: JobRecord, known: Mapping[AllocationKey, Allocation] = _NOTHING
) -> dict[AllocationKey, Allocation]:
    """What each replica of ``record`` holds, those on their way out included.

    ``known`` are holds of the same job as it is, which need not be worked out again.
    """
    if record.job is None:
        return {}
    allocations: dict[AllocationKey, Allocation] = {}
    for replica in record.replicas:
        role = record.job.role(replica.role)
        if role is not None and holds_room(record, replica):
            key = (record.job_id, replica.attempt, replica.role, replica.index)
            hold = known.get(key)
            if hold is None or hold.node != replica.node or hold.gpus != replica.gpus:
                hold = allocation_of(record.job, role.name, replica.index, replica.node, replica.gpus)
            allocations[key] = hold
    return allocations


def holds_room(record: JobRecord, replica: ReplicaRecord) -> bool:
    """Whether ``replica`` keeps its room: until its end is confirmed, and while it may yet be restarted where it was."""
    if not replica.ended:
        return True
    is_member = replica.attempt == record.attempt and not replica.leaving
    return is_member and record.phase in ACTIVE_PHASES and _may_restart(record, replica)


def _may_restart(record: JobRecord, replica: ReplicaRecord) -> bool:
    role = record.job.role(replica.role) if record.job else None
    if replica.restarting and not was_taken(replica):
        return True
    if record.job is None or role is None or role.restart_policy is RestartPolicy.NEVER:
        return False
    if replica.state is ReplicaState.EXITED:
        failed = bool(replica.exit_code) or bool(replica.signal)
        return failed or (record.job.kind is JobKind.SERVICE and role.restart_policy is RestartPolicy.ALWAYS)
    return replica.state is ReplicaState.LOST and not was_taken(replica)
