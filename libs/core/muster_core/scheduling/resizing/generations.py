"""How the membership of a running gang changes: who joins, and who leaves.

Growth takes what fits; shrinking takes the highest indices, never a pinned role, never index 0, never below a minimum.

How far the limits of a job's queue let a role of it grow.

Where those go who join a running gang: not to nodes that have failed it lately.

A growth is a wish: a policy does without it rather than repeat what has just failed. A user may have mended the cause, so a size that was
asked for by hand takes such a node where no other has room.

What is done about replicas that nodes have taken: of a running job that can do without them for a while they are placed again, one by
one; every other gang is taken down as a whole, and waits for its room anew.

What is done about replicas that have not started in time: a gang is taken down as a whole, and a growth is taken back.

Who joined a running gang and does not come up is left out again, unless the gang may not be without it: then it goes the way of one that
never started.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster_core.events import MANUAL_POLICY, Assignment, ReplicaRef, ScaleProposed
from muster_core.lifecycle import avoided_at, late_joiners, start_timeout_of, unstarted, was_taken
from muster_core.lifecycle.success import restart_scope_of
from muster_core.models import Job, JobRecord, Phase, Reason, ReplicaRecord, RestartScope
from muster_core.scheduling import reasons
from muster_core.scheduling.placement import Snapshot, place_more
from muster_core.scheduling.placement.words import counted
from muster_core.scheduling.queues import max_replica_amounts
from muster_core.scheduling.state import (
    Avoided,
    Evict,
    Resize,
    Transaction,
    excluding_nodes,
    reachable,
    resizable,
    size_of,
    usable_nodes,
)


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


def size_within_limits(record: JobRecord, role: str, size: int, target: int, transaction: Transaction) -> int:
    """The largest size from ``size``, which is what is held now, up to ``target`` that the limits of the job's queue allow its role."""
    known = record.job.role(role) if record.job else None
    if known is None:
        return target
    queue = transaction.index.tree.account_of(record)[0]
    needed = max_replica_amounts(known)
    while target > size:
        more = {name: amount * (target - size) for name, amount in needed.items()}
        if transaction.ledger.exceeded_limit(queue, more) is None:
            break
        target -= 1
    return target


def grown(
    record: JobRecord,
    role: str,
    target: int,
    transaction: Transaction,
    *,
    reason: Reason | None = None,
    policy: str,
) -> Resize | None:
    """Add as many replicas as fit, up to ``target`` members; None where none fits."""
    avoided = usable_nodes(avoided_at(record, transaction.now), transaction.snapshot)
    with excluding_nodes(avoided, record.job_id, transaction.snapshot):
        found = grow(record, role, target, transaction.snapshot, reason=reason, policy=policy)
    whole = found is not None and len(found.added) == target - size_of(record, role)
    if whole or not avoided or policy != MANUAL_POLICY:
        return found
    return grow(record, role, target, transaction.snapshot, reason=reason, policy=policy)


_Key = tuple[str, int]


def lost_replicas(record: JobRecord) -> tuple[ReplicaRecord, ...]:
    """The members that their nodes have taken."""
    return tuple(member for member in record.members() if was_taken(member))


def replace_lost_replicas(record: JobRecord, transaction: Transaction) -> Resize | Evict:
    """What becomes of an active job of which nodes have taken members; room for those who join is not held yet."""
    taken = lost_replicas(record)
    nodes = tuple(sorted({member.node for member in taken}))
    one_by_one = record.job is not None and restart_scope_of(record.job) is RestartScope.REPLICA
    added = _placed_again(record, record.job, taken, transaction) if one_by_one and record.job else None
    if added is None:
        reason = reasons.taken(record, taken, transaction.snapshot)
        return Evict(job_id=record.job_id, attempt=record.attempt, reason=reason, avoid=nodes)
    again = {(one.role, one.index) for one in added}
    given_up = tuple(member for member in taken if member.key not in again)
    return Resize(
        job_id=record.job_id,
        attempt=record.attempt,
        generation=record.generation + 1,
        reason=reasons.replaced(record, taken, added, transaction.snapshot),
        added=added,
        removed=tuple(ReplicaRef(role=member.role, index=member.index) for member in given_up),
        avoid=nodes,
    )


def _placed_again(
    record: JobRecord, job: Job, taken: tuple[ReplicaRecord, ...], transaction: Transaction
) -> tuple[Assignment, ...] | None:
    """Room for those of ``taken`` that find some, elsewhere if there is any; None where the job cannot go on so."""
    if not resizable(record):
        return None
    gone = {member.node for member in taken} | avoided_at(record, transaction.now)
    elsewhere = usable_nodes(gone, transaction.snapshot)
    added = _room_for(record, job, taken, elsewhere, transaction)
    if len(added) < len(taken) and elsewhere:
        added = _room_for(record, job, taken, (), transaction)
    if len(added) == len(taken):
        return added
    keys = {(one.role, one.index) for one in added}
    missing = [member for member in taken if member.key not in keys]
    return added if can_run_without(record, missing) else None


def _room_for(
    record: JobRecord, job: Job, taken: tuple[ReplicaRecord, ...], avoided: Avoided, transaction: Transaction
) -> tuple[Assignment, ...]:
    lost = {member.key for member in taken}
    known = [one for one in record.replicas if not (one.attempt == record.attempt and one.key in lost)]
    added: list[Assignment] = []
    mark = transaction.checkpoint()
    try:
        with excluding_nodes(avoided, record.job_id, transaction.snapshot):
            for role in sorted({member.role for member in taken}):
                left = size_of(record, role) - sum(1 for member in taken if member.role == role)
                # Its limit may have been lowered since it was placed.
                wanted = size_within_limits(record, role, left, size_of(record, role), transaction)
                found = place_more(job, known, role, wanted, transaction.snapshot)
                transaction.allocate(record, record.attempt, found)
                added += found
    finally:
        transaction.rollback(mark)
    return tuple(added)


def can_run_without(record: JobRecord, missing: Sequence[ReplicaRecord]) -> bool:
    """Whether every role may be smaller by those who are missing."""
    if any(member.index == 0 for member in missing):
        return False
    for role in {member.role for member in missing}:
        size = size_of(record, role) - sum(1 for member in missing if member.role == role)
        if reachable(record, role, size) != size:
            return False
    return True


def handle_start_timeout(record: JobRecord, default_s: int, now: int) -> Resize | Evict:
    """What becomes of a job whose start, or growth, is overdue at ``now`` (µs); its nodes are avoided for a while."""
    timeout_s = start_timeout_of(record, default_s)
    is_running = record.phase is Phase.RUNNING
    late = late_joiners(record, default_s, now) if is_running else unstarted(record)
    nodes = tuple(sorted({one.node for one in late}))
    if is_running and can_run_without(record, late):
        return Resize(
            job_id=record.job_id,
            attempt=record.attempt,
            generation=record.generation + 1,
            reason=reasons.taken_back(record, late, timeout_s),
            removed=tuple(ReplicaRef(role=one.role, index=one.index) for one in late),
            avoid=nodes,
        )
    return Evict(
        job_id=record.job_id,
        attempt=record.attempt,
        reason=reasons.start_timeout(record, late, timeout_s),
        avoid=nodes,
    )
