"""What is done about replicas that nodes have taken: of a running job that can do without them for a while they are placed again, one by
one; every other gang is taken down as a whole, and waits for its room anew.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster_core.events import Assignment, ReplicaRef
from muster_core.lifecycle import avoided_at, was_taken
from muster_core.lifecycle.success import restart_scope_of
from muster_core.models import Job, JobRecord, ReplicaRecord, RestartScope
from muster_core.scheduling.placement import place_more
from muster_core.scheduling.queues import reasons
from muster_core.scheduling.queues.allowing import allowed_size
from muster_core.scheduling.queues.avoiding import Avoided, kept_off, known_among
from muster_core.scheduling.queues.instructions import Evict, Resize
from muster_core.scheduling.queues.resizing import reachable, resizable, size_of
from muster_core.scheduling.queues.transaction import Transaction

_Key = tuple[str, int]


def taken_from(record: JobRecord) -> tuple[ReplicaRecord, ...]:
    """The members that their nodes have taken."""
    return tuple(member for member in record.members() if was_taken(member))


def mended(record: JobRecord, transaction: Transaction) -> Resize | Evict:
    """What becomes of an active job of which nodes have taken members; room for those who join is not held yet."""
    taken = taken_from(record)
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
    elsewhere = known_among(gone, transaction.snapshot)
    added = _room_for(record, job, taken, elsewhere, transaction)
    if len(added) < len(taken) and elsewhere:
        added = _room_for(record, job, taken, (), transaction)
    if len(added) == len(taken):
        return added
    keys = {(one.role, one.index) for one in added}
    missing = [member for member in taken if member.key not in keys]
    return added if goes_on_without(record, missing) else None


def _room_for(
    record: JobRecord, job: Job, taken: tuple[ReplicaRecord, ...], avoided: Avoided, transaction: Transaction
) -> tuple[Assignment, ...]:
    lost = {member.key for member in taken}
    known = [one for one in record.replicas if not (one.attempt == record.attempt and one.key in lost)]
    added: list[Assignment] = []
    mark = transaction.checkpoint()
    try:
        with kept_off(avoided, record.job_id, transaction.snapshot):
            for role in sorted({member.role for member in taken}):
                left = size_of(record, role) - sum(1 for member in taken if member.role == role)
                # Its limit may have been lowered since it was placed.
                wanted = allowed_size(record, role, left, size_of(record, role), transaction)
                found = place_more(job, known, role, wanted, transaction.snapshot)
                transaction.hold(record, record.attempt, found)
                added += found
    finally:
        transaction.rollback(mark)
    return tuple(added)


def goes_on_without(record: JobRecord, missing: Sequence[ReplicaRecord]) -> bool:
    """Whether every role may be smaller by those who are missing."""
    if any(member.index == 0 for member in missing):
        return False
    for role in {member.role for member in missing}:
        size = size_of(record, role) - sum(1 for member in missing if member.role == role)
        if reachable(record, role, size) != size:
            return False
    return True
