"""Generations of running gangs: growth, shrinking, replacement of lost replicas, and replicas that do not start in time.

A gang grows by the replicas that fit. It shrinks from the highest index down, never by a pinned role, by index 0 or below a
minimum. Nodes that recently failed the job are tried last.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster_core.events import MANUAL_POLICY, Assignment, ReplicaRef, ScaleProposed
from muster_core.lifecycle import (
    avoided_at,
    late_additions,
    restart_scope_of,
    start_timeout_of,
    unstarted,
    was_disrupted,
)
from muster_core.models import Job, JobRecord, Phase, Reason, ReplicaRecord, RestartScope
from muster_core.quantities import counted
from muster_core.scheduling import reasons
from muster_core.scheduling.placement import place_more
from muster_core.scheduling.queues import max_replica_amounts
from muster_core.scheduling.state import Evict, Resize, Transaction, reachable, resizable, size_of


def size_within_limits(
    record: JobRecord, role: str, target: int, transaction: Transaction, *, size: int | None = None
) -> int:
    """Return the largest size up to ``target`` that the limits of the job's queue allow for a role.

    ``size`` is the number of replicas that the usage of the queue includes, by default the present size.
    """
    known = record.job.role(role) if record.job else None
    if known is None:
        return target
    size = size_of(record, role) if size is None else size
    queue = transaction.index.tree.account_of(record)[0]
    needed = max_replica_amounts(known)
    while target > size:
        more = {name: amount * (target - size) for name, amount in needed.items()}
        if transaction.ledger.exceeded_limit(queue, more) is None:
            break
        target -= 1
    return target


def grow(
    record: JobRecord,
    role: str,
    target: int,
    transaction: Transaction,
    *,
    reason: Reason | None = None,
    policy: str,
) -> Resize | None:
    """Add as many replicas as fit, up to ``target``; None if none fits.

    Nodes that recently failed the job are excluded, because a policy can do without the growth. A manual size falls back to
    them, because the user may have repaired the cause.
    """
    avoided = transaction.usable_nodes(avoided_at(record, transaction.now))
    with transaction.excluding_nodes(avoided, record.job_id):
        added = _place_more(record, role, target, transaction)
    size = size_of(record, role)
    if avoided and policy == MANUAL_POLICY and len(added) < target - size:
        added = _place_more(record, role, target, transaction)
    if not added:
        return None
    return Resize(
        job_id=record.job_id,
        attempt=record.attempt,
        generation=record.generation + 1,
        added=added,
        reason=reason or _size_reason("Grown", role, size, size + len(added), target),
        policy=policy,
    )


def shrink(record: JobRecord, role: str, target: int, *, policy: str) -> Resize | None:
    """Remove replicas down to ``target``, as far as the bounds of the role allow; None if they allow none."""
    lowest = reachable(record, role, target)
    indices = sorted((m.index for m in record.gang() if m.role == role), reverse=True)
    if lowest is None or lowest >= len(indices):
        return None
    removed = indices[: len(indices) - lowest]
    return Resize(
        job_id=record.job_id,
        attempt=record.attempt,
        generation=record.generation + 1,
        removed=tuple(ReplicaRef(role=role, index=index) for index in removed),
        reason=_size_reason("Shrunk", role, len(indices), lowest, target),
        policy=policy,
    )


def scale_down(record: JobRecord, proposal: ScaleProposed, removed: tuple[ReplicaRef, ...]) -> Resize:
    """Remove the replicas of a proposal that its beneficiary needs."""
    return Resize(
        job_id=record.job_id,
        attempt=record.attempt,
        generation=record.generation + 1,
        removed=removed,
        reason=proposal.reason,
        policy=proposal.policy,
        beneficiary=proposal.beneficiary,
    )


def replace_lost_replicas(record: JobRecord, transaction: Transaction) -> Resize | Evict:
    """Replace the replicas of an active job that nodes lost or rejected, or evict the gang.

    A running job with restart scope ``replica`` continues if its bounds allow it without the replicas that do not fit. The
    replaced replicas are not yet allocated in ``transaction``.
    """
    lost = tuple(member for member in record.gang() if was_disrupted(member))
    nodes = tuple(sorted({member.node for member in lost}))
    replaceable = record.job is not None and restart_scope_of(record.job) is RestartScope.REPLICA
    added = _replacements(record, record.job, lost, transaction) if replaceable and record.job else None
    if added is None:
        reason = reasons.replicas_lost(record, lost, transaction.snapshot)
        return Evict(job_id=record.job_id, attempt=record.attempt, reason=reason, avoid=nodes)
    replaced = {(one.role, one.index) for one in added}
    removed = tuple(ReplicaRef(role=one.role, index=one.index) for one in lost if one.key not in replaced)
    return Resize(
        job_id=record.job_id,
        attempt=record.attempt,
        generation=record.generation + 1,
        reason=reasons.replicas_replaced(record, lost, added, transaction.snapshot),
        added=added,
        removed=removed,
        avoid=nodes,
    )


def handle_start_timeout(record: JobRecord, default_s: int, now: int) -> Resize | Evict:
    """Remove added replicas that are overdue at ``now`` (µs), or evict a gang that cannot run without them.

    ``default_s`` is the start time-out of jobs that do not specify one.
    """
    timeout_s = start_timeout_of(record, default_s)
    is_running = record.phase is Phase.RUNNING
    late = late_additions(record, default_s, now) if is_running else unstarted(record)
    nodes = tuple(sorted({one.node for one in late}))
    if is_running and _can_run_without(record, late):
        return Resize(
            job_id=record.job_id,
            attempt=record.attempt,
            generation=record.generation + 1,
            reason=reasons.growth_timeout(record, late, timeout_s),
            removed=tuple(ReplicaRef(role=one.role, index=one.index) for one in late),
            avoid=nodes,
        )
    return Evict(
        job_id=record.job_id,
        attempt=record.attempt,
        reason=reasons.start_timeout(record, late, timeout_s),
        avoid=nodes,
    )


def _replacements(
    record: JobRecord, job: Job, lost: tuple[ReplicaRecord, ...], transaction: Transaction
) -> tuple[Assignment, ...] | None:
    """Place the ``lost`` replicas that fit, on other nodes if possible; None if the job cannot continue so."""
    if not resizable(record):
        return None
    failed = {member.node for member in lost} | avoided_at(record, transaction.now)
    avoided = transaction.usable_nodes(failed)
    added = _place_again(record, job, lost, avoided, transaction)
    if len(added) < len(lost) and avoided:
        added = _place_again(record, job, lost, (), transaction)
    keys = {(one.role, one.index) for one in added}
    missing = [member for member in lost if member.key not in keys]
    return added if not missing or _can_run_without(record, missing) else None


def _place_again(
    record: JobRecord,
    job: Job,
    lost: tuple[ReplicaRecord, ...],
    avoided: tuple[str, ...],
    transaction: Transaction,
) -> tuple[Assignment, ...]:
    keys = {member.key for member in lost}
    others = [one for one in record.replicas if not (one.attempt == record.attempt and one.key in keys)]
    added: list[Assignment] = []
    mark = transaction.checkpoint()
    try:
        with transaction.excluding_nodes(avoided, record.job_id):
            for role in sorted({member.role for member in lost}):
                size = size_of(record, role)
                left = size - sum(1 for member in lost if member.role == role)
                # The limit of the queue may have been lowered since the job was placed.
                target = size_within_limits(record, role, size, transaction, size=left)
                found = place_more(job, others, role, target, transaction.snapshot)
                transaction.allocate(record, record.attempt, found)
                added += found
    finally:
        transaction.rollback(mark)
    return tuple(added)


def _can_run_without(record: JobRecord, missing: Sequence[ReplicaRecord]) -> bool:
    """Return whether the bounds of every role allow the gang without ``missing``."""
    if any(member.index == 0 for member in missing):
        return False
    for role in {member.role for member in missing}:
        size = size_of(record, role) - sum(1 for member in missing if member.role == role)
        if reachable(record, role, size) != size:
            return False
    return True


def _place_more(
    record: JobRecord, role: str, target: int, transaction: Transaction
) -> tuple[Assignment, ...]:
    if record.job is None:
        return ()
    return place_more(record.job, record.replicas, role, target, transaction.snapshot)


def _size_reason(code: str, role: str, before: int, after: int, target: int) -> Reason:
    requested = "" if after == target else f", {counted(target, 'replica')} requested"
    return Reason(
        code=code,
        message=f"{role} from {before} to {after} replicas{requested}",
        numbers={"from": before, "to": after, "target": target},
    )
