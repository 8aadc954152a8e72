"""How the membership of a running gang changes: who joins, and who leaves.

Growth takes what fits; shrinking takes the highest indices, never a pinned role, never index 0, never below a minimum.
"""

from __future__ import annotations

from muster_core.events import ReplicaRef, ScaleProposed
from muster_core.models import JobRecord, Phase, Reason
from muster_core.scheduling.placement import Snapshot, place_more
from muster_core.scheduling.placement.roles import is_pinned
from muster_core.scheduling.placement.words import counted
from muster_core.scheduling.queues.instructions import Resize


def resizable(record: JobRecord) -> bool:
    """Whether the membership of this job may change now."""
    return record.job is not None and record.phase is Phase.RUNNING and not record.cancel_requested


def size_of(record: JobRecord, role: str) -> int:
    """How many members the role has."""
    return sum(1 for member in record.members() if member.role == role)


def reachable(record: JobRecord, role: str, target: int) -> int | None:
    """The size nearest to ``target`` that the role may have in this attempt, or None where the job has no such role.

    Bounds are the role's minimum and maximum, index 0, the size of a pinned role, and the job's ``min_available``.
    """
    known = record.job.role(role) if record.job else None
    if record.job is None or known is None:
        return None
    size = size_of(record, role)
    members = record.members()
    floor = min(record.job.min_available or 0, sum(one.replicas for one in record.job.roles))
    spare = 0 if is_pinned(role) else max(len(members) - floor, 0)
    stays = int(any(member.key == (role, 0) for member in members))
    return min(max(target, known.min, stays, size - spare), known.max)


def grow(
    record: JobRecord,
    role: str,
    target: int,
    snapshot: Snapshot,
    *,
    reason: Reason | None = None,
    policy: str,
) -> Resize | None:
    """Add as many replicas as fit, up to ``target`` members; None where none fits."""
    if record.job is None:
        return None
    added = place_more(record.job, record.replicas, role, target, snapshot)
    if not added:
        return None
    size = size_of(record, role)
    return Resize(
        job_id=record.job_id,
        attempt=record.attempt,
        generation=record.generation + 1,
        added=added,
        reason=reason or _reason("Grown", role, size, size + len(added), target),
        policy=policy,
    )


def shrink(record: JobRecord, role: str, target: int, *, policy: str) -> Resize | None:
    """Remove replicas down to ``target`` members, as far as the rules allow; None where they allow none."""
    lowest = reachable(record, role, target)
    indices = sorted((m.index for m in record.members() if m.role == role), reverse=True)
    if lowest is None or lowest >= len(indices):
        return None
    leaving = indices[: len(indices) - lowest]
    return Resize(
        job_id=record.job_id,
        attempt=record.attempt,
        generation=record.generation + 1,
        removed=tuple(ReplicaRef(role=role, index=index) for index in leaving),
        reason=_reason("Shrunk", role, len(indices), len(indices) - len(leaving), target),
        policy=policy,
    )


def given_up(record: JobRecord, proposal: ScaleProposed, removed: tuple[ReplicaRef, ...]) -> Resize:
    """Remove what was proposed to leave for another job, as far as it is needed."""
    return Resize(
        job_id=record.job_id,
        attempt=record.attempt,
        generation=record.generation + 1,
        removed=removed,
        reason=proposal.reason,
        policy=proposal.policy,
        for_job=proposal.for_job,
    )


def _reason(code: str, role: str, before: int, after: int, target: int) -> Reason:
    asked = "" if after == target else f", {counted(target, 'replica')} asked for"
    return Reason(
        code=code,
        message=f"{role} from {before} to {after} replicas{asked}",
        numbers={"from": before, "to": after, "target": target},
    )
