"""Requests to resize running jobs: manual sizes, and scale proposals with their donors.

A request is valid for one attempt; a proposal also for the generation that it was computed on only.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from muster_core.events import JobResized, ReplicaRef, ScaleProposed, StoredEvent
from muster_core.models import JobRecord
from muster_core.scheduling.placement import Allocation, AllocationKey, Placement, find_placement, is_pinned
from muster_core.scheduling.queues import gang_amounts, minimum_gang
from muster_core.scheduling.reservations import Reservations, terminating_releases
from muster_core.scheduling.state import Transaction, reachable, resizable, size_of


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


class DonatedReplica(NamedTuple):
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

    def release(self, one: DonatedReplica) -> None:
        """Release a donated replica."""
        self._transaction.release(one.record, ((one.key, one.allocation),))

    def restore(self, one: DonatedReplica) -> None:
        """Allocate a released replica again."""
        self._transaction.add_allocations(one.record, ((one.key, one.allocation),))

    def minimised(
        self, released: Sequence[DonatedReplica], placement: Placement
    ) -> tuple[list[DonatedReplica], Placement]:
        """Return which of ``released`` the gang needs, and where it goes then; the others get their allocation back.

        Args:
            released: Replicas that are released; those released last are tried first.
            placement: Where the gang fits without all of them.
        """
        needed: list[DonatedReplica] = []
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
) -> list[DonatedReplica]:
    allocations = transaction.index.allocations.get(record.job_id, {})
    keys = [(ref, (record.job_id, record.attempt, ref.role, ref.index)) for ref in proposal.removed]
    return [DonatedReplica(record, ref, key, allocations[key]) for ref, key in keys if key in allocations]
