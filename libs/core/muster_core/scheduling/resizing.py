"""Changes of size of running gangs.

The next generation of a gang: growth, shrinking, replacement of lost replicas, late starts. Manual sizes and scale proposals
are kept here too, and which donors must shrink for a waiting job.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from muster_core.events import MANUAL_POLICY, Assignment, JobResized, ReplicaRef, ScaleProposed, StoredEvent
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
from muster_core.scheduling.placement import (
    Allocation,
    AllocationKey,
    Placement,
    find_placement,
    is_pinned,
    place_more,
)
from muster_core.scheduling.queues import gang_amounts, max_replica_amounts, minimum_gang
from muster_core.scheduling.reservations import Reservations, terminating_releases
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
        reason=reason or _size_reason(reasons.GROWN, role, size, size + len(added), target),
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
        reason=_size_reason(reasons.SHRUNK, role, len(indices), lowest, target),
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


class ResizeRequests:
    """The open requests. Proposals for the same beneficiary are accepted or rejected together."""

    def __init__(self) -> None:
        #: The requested size by (job id, role).
        self.manual: dict[tuple[str, str], int] = {}
        #: The latest proposal by job id.
        self.proposals: dict[str, ScaleProposed] = {}
        #: How many proposals were rejected.
        self.rejected = 0

    def observe(self, stored: StoredEvent) -> None:
        """Add a proposal, or remove one that was carried out; call ``update`` afterwards."""
        job_id = stored.job_id
        match stored.event:
            case ScaleProposed() as proposal:
                self.reject(job_id)
                self.proposals[job_id] = proposal
            case JobResized(policy=policy, reason=reason):
                known = self.proposals.get(job_id)
                if known is not None and (known.policy, known.reason) == (policy, reason):
                    self._remove(job_id, known)
            case _:
                pass

    def update(self, record: JobRecord) -> None:
        """Read the manual sizes of a job from its record, and reject a proposal that is no longer valid for it."""
        job_id = record.job_id
        for key in [key for key in self.manual if key[0] == job_id]:
            del self.manual[key]
        for role, target in record.requested_sizes.items():
            if reachable(record, role, target) not in (None, size_of(record, role)):
                self.manual[(job_id, role)] = target
        proposal = self.proposals.get(job_id)
        if proposal is not None and not self._is_valid(proposal, record):
            self.reject(job_id)

    def reject(self, job_id: str) -> None:
        """Remove the proposal for a job, with those for the same beneficiary, and count them."""
        proposal = self.proposals.get(job_id)
        if proposal is not None:
            self.rejected += self._remove(job_id, proposal)

    def scale_ups(self) -> dict[str, ScaleProposed]:
        """Return the proposals to grow, by job id."""
        return {job_id: one for job_id, one in self.proposals.items() if not one.beneficiary}

    def scale_downs(self) -> dict[str, dict[str, ScaleProposed]]:
        """Return the complete groups of proposals to shrink, by beneficiary and donor."""
        groups: dict[str, dict[str, ScaleProposed]] = {}
        for job_id, one in self.proposals.items():
            if one.beneficiary:
                groups.setdefault(one.beneficiary, {})[job_id] = one
        return {
            beneficiary: group
            for beneficiary, group in groups.items()
            if all(len(group) >= one.donors for one in group.values())
        }

    def _remove(self, job_id: str, proposal: ScaleProposed) -> int:
        """Remove a proposal and those for the same beneficiary; return how many they are."""
        together = [job_id]
        if proposal.beneficiary:
            together = [
                other for other, one in self.proposals.items() if one.beneficiary == proposal.beneficiary
            ]
        for one in together:
            del self.proposals[one]
        return len(together)

    def _is_valid(self, proposal: ScaleProposed, record: JobRecord) -> bool:
        role = record.job.role(proposal.role) if record.job else None
        if (
            role is None
            or not resizable(record)
            or (proposal.attempt, proposal.generation) != (record.attempt, record.generation)
            or (record.job_id, proposal.role) in self.manual
        ):
            return False
        if proposal.beneficiary:
            return _is_valid_scale_down(record, proposal)
        return max(role.min, size_of(record, proposal.role) + 1) <= proposal.target <= role.max


def _is_valid_scale_down(record: JobRecord, proposal: ScaleProposed) -> bool:
    """Return whether a resizable job may lose the replicas: of one role that is not pinned, not index 0, within its bounds."""
    if record.job is None or not record.job.preemptible or is_pinned(proposal.role):
        return False
    members = {member.key for member in record.gang()}
    removed = {(ref.role, ref.index) for ref in proposal.removed}
    size = size_of(record, proposal.role)
    return (
        len(removed) == len(proposal.removed) == size - proposal.target
        and removed <= members
        and all(role == proposal.role and index > 0 for role, index in removed)
        and reachable(record, proposal.role, proposal.target) == proposal.target
    )


class RemovableReplica(NamedTuple):
    """A replica that a donor could lose, with its allocation."""

    record: JobRecord
    ref: ReplicaRef
    key: AllocationKey
    allocation: Allocation


class BeneficiaryFit:
    """Tries to place a waiting job beside the capacity that is reserved for others, with replicas of donors released.

    Use it within ``terminating_released``.
    """

    def __init__(self, transaction: Transaction, reservations: Reservations, job_id: str) -> None:
        self.key = transaction.index.classes.class_of(job_id).key
        self.gang = minimum_gang(self.key.gang)
        self._transaction = transaction
        self._reservations = reservations
        self._job_id = job_id

    def find(self) -> Placement | None:
        """Return where the minimum of the gang fits now, within the limits of its queue."""
        self._reservations.enforce()
        self._reservations.lift(self._job_id, self.key, self._transaction.now)
        if self._transaction.ledger.exceeded_limit(self.key.queue, gang_amounts(self.gang)) is not None:
            return None
        return find_placement(self.gang, self._transaction.snapshot)

    def release(self, one: RemovableReplica) -> None:
        """Release a donated replica."""
        self._transaction.release(one.record, ((one.key, one.allocation),))

    def restore(self, one: RemovableReplica) -> None:
        """Allocate a released replica again."""
        self._transaction.add_allocations(one.record, ((one.key, one.allocation),))

    def minimised(
        self, released: Sequence[RemovableReplica], placement: Placement
    ) -> tuple[list[RemovableReplica], Placement]:
        """Return which of ``released`` the gang needs, and where it goes then; the others get their allocation back.

        Args:
            released: Replicas that are released; those released last are tried first.
            placement: Where the gang fits without all of them.
        """
        needed: list[RemovableReplica] = []
        for one in reversed(released):
            self._reservations.lift_all()
            self.restore(one)
            still = self.find()
            if still is not None:
                placement = still
                continue
            self._reservations.lift_all()
            self.release(one)
            needed.append(one)
        return needed[::-1], placement


@contextmanager
def terminating_released(transaction: Transaction, reservations: Reservations) -> Generator[None]:
    """Release what is terminating, with no reservation enforced; at exit, roll back, and restore and enforce reservations."""
    before = reservations.all
    reservations.lift_all()
    mark = transaction.checkpoint()
    try:
        for release in terminating_releases(transaction.index, transaction.now):
            transaction.release(release.record, release.allocations)
        yield
    finally:
        reservations.replace(before)
        transaction.rollback(mark)
        reservations.enforce()


def required_donations(
    job_id: str,
    proposals: Sequence[tuple[JobRecord, ScaleProposed]],
    transaction: Transaction,
    reservations: Reservations,
) -> dict[str, tuple[ReplicaRef, ...]] | None:
    """Return which replicas the donors in ``proposals`` must lose for a waiting job to start, by donor.

    Use it within ``terminating_released``. Afterwards the replicas are released and the job is allocated, so that the next
    beneficiary does not count on the same capacity. None, with nothing changed, if the beneficiary ``job_id`` is not
    waiting for that, or would not start.
    """
    if (
        job_id in transaction.decided
        or job_id not in transaction.index.classes
        or not transaction.is_eligible(job_id)
    ):
        return None
    fit = BeneficiaryFit(transaction, reservations, job_id)
    placement = fit.find()
    reservations.lift_all()
    if placement is not None:
        return None
    donated = [
        one for record, proposal in proposals for one in _donated_replicas(record, proposal, transaction)
    ]
    for one in donated:
        fit.release(one)
    placement = fit.find()
    if placement is None:
        reservations.lift_all()
        for one in donated:
            fit.restore(one)
        return None
    needed, placement = fit.minimised(donated, placement)
    reservations.lift_all()
    record = transaction.index.records[job_id]
    transaction.allocate(record, record.attempt + 1, placement.replicas)
    reservations.remove(job_id)
    by_donor: dict[str, tuple[ReplicaRef, ...]] = {}
    for one in needed:
        by_donor[one.record.job_id] = (*by_donor.get(one.record.job_id, ()), one.ref)
    return by_donor


def _donated_replicas(
    record: JobRecord, proposal: ScaleProposed, transaction: Transaction
) -> list[RemovableReplica]:
    allocations = transaction.index.allocations.get(record.job_id, {})
    keys = [(ref, (record.job_id, record.attempt, ref.role, ref.index)) for ref in proposal.removed]
    return [RemovableReplica(record, ref, key, allocations[key]) for ref, key in keys if key in allocations]
