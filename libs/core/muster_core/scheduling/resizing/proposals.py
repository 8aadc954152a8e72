"""Replicas that leave so that a waiting job starts: only if it then really fits, and only those without whom it would not.

Room that is kept for others stays theirs, and what is on its way out counts as gone.

What was asked of running jobs and is not decided yet: sizes by hand, and proposals to grow or shrink.

Both are bound to one attempt; a proposal also to the generation that it was computed on. What they were bound to moves on: they lapse.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from muster_core.events import JobResized, ReplicaRef, ScaleProposed, StoredEvent
from muster_core.models import JobRecord
from muster_core.scheduling.placement import Allocation, AllocationKey, Placement, find_room
from muster_core.scheduling.placement.roles import is_pinned
from muster_core.scheduling.queues import SchedulingKey, gang_amounts, minimum_gang
from muster_core.scheduling.reservations import Reservations, leaving
from muster_core.scheduling.state import Transaction, reachable, resizable, size_of


class DonatedReplica(NamedTuple):
    """One replica that could leave, with the room that it holds."""

    record: JobRecord
    ref: ReplicaRef
    key: AllocationKey
    allocation: Allocation


class BeneficiaryFit:
    """The room for a waiting job beside what is kept for others; use it within ``terminating_released``."""

    def __init__(self, transaction: Transaction, kept: Reservations, job_id: str) -> None:
        self.shape: SchedulingKey = transaction.index.classes.class_of(job_id).shape
        self.gang = minimum_gang(self.shape.gang)
        self._trial = transaction
        self._kept = kept
        self._job_id = job_id

    def find(self) -> Placement | None:
        """Where the floor of the job's gang fits now; None where it does not, or its queue may not have so much."""
        self._kept.stand()
        self._kept.lift(self._job_id, self.shape, self._trial.now)
        if self._trial.ledger.exceeded_limit(self.shape.queue, gang_amounts(self.gang)) is not None:
            return None
        return find_room(self.gang, self._trial.snapshot)

    def give(self, gift: DonatedReplica) -> None:
        """Let a replica leave."""
        self._trial.release(gift.record, ((gift.key, gift.allocation),))

    def take_back(self, gift: DonatedReplica) -> None:
        """Let a replica stay after all."""
        self._trial.add_allocations(gift.record, ((gift.key, gift.allocation),))

    def needed(
        self, given: Sequence[DonatedReplica], found: Placement
    ) -> tuple[list[DonatedReplica], Placement]:
        """What of ``given``, after which the gang fits as ``found``, it does not fit without; and where it then goes.

        The last ones given stay first; the others' room stays taken back.
        """
        needed: list[DonatedReplica] = []
        for gift in reversed(given):
            self._kept.lift_all()
            self.take_back(gift)
            still = self.find()
            if still is not None:
                found = still
                continue
            self._kept.lift_all()
            self.give(gift)
            needed.append(gift)
        return needed[::-1], found


@contextmanager
def terminating_released(transaction: Transaction, kept: Reservations) -> Generator[None]:
    """Inside, what is on its way out has gone; afterwards everything is as it was, and room is kept as it was."""
    kept.lift_all()
    mark = transaction.checkpoint()
    try:
        for leaver in leaving(transaction.index, transaction.now):
            transaction.release(leaver.record, leaver.holds)
        yield
    finally:
        kept.lift_all()
        transaction.rollback(mark)
        kept.stand()


def donated_replicas(
    record: JobRecord, proposal: ScaleProposed, transaction: Transaction
) -> list[DonatedReplica]:
    """What a valid proposal to shrink would have leave, as far as it still holds room."""
    held = transaction.index.allocations.get(record.job_id, {})
    keys = [(ref, (record.job_id, record.attempt, ref.role, ref.index)) for ref in proposal.removed]
    return [DonatedReplica(record, ref, key, held[key]) for ref, key in keys if key in held]


def is_valid_scale_down(record: JobRecord, proposal: ScaleProposed) -> bool:
    """Whether a proposal to shrink is within what the job may lose: members of one role that is not pinned, never index 0, never more
    than what it has above its minimum."""
    if record.job is None or not resizable(record) or not record.job.preemptible or is_pinned(proposal.role):
        return False
    members = {member.key for member in record.members()}
    named = {(ref.role, ref.index) for ref in proposal.removed}
    size = size_of(record, proposal.role)
    return (
        bool(proposal.for_job)
        and len(named) == len(proposal.removed) == size - proposal.target
        and named <= members
        and all(role == proposal.role and index > 0 for role, index in named)
        and reachable(record, proposal.role, proposal.target) == proposal.target
    )


def required_donations(
    job_id: str,
    proposals: Sequence[tuple[JobRecord, ScaleProposed]],
    transaction: Transaction,
    kept: Reservations,
) -> dict[str, tuple[ReplicaRef, ...]] | None:
    """Who of those proposed must leave for ``job_id`` to start, by giver; None where it does not wait for that, or it would not help."""
    if (
        job_id in transaction.decided
        or job_id not in transaction.index.classes
        or not transaction.is_eligible(job_id)
    ):
        return None
    with terminating_released(transaction, kept):
        beside = BeneficiaryFit(transaction, kept, job_id)
        if beside.find() is not None:
            return None
        kept.lift_all()
        gifts = [
            gift for record, proposal in proposals for gift in donated_replicas(record, proposal, transaction)
        ]
        for gift in gifts:
            beside.give(gift)
        found = beside.find()
        if found is None:
            return None
        needed, _ = beside.needed(gifts, found)
    leaving_by_giver: dict[str, tuple[ReplicaRef, ...]] = {}
    for gift in needed:
        leaving_by_giver[gift.record.job_id] = (*leaving_by_giver.get(gift.record.job_id, ()), gift.ref)
    return leaving_by_giver


class ResizeRequests:
    """Open requests: ``manual`` has the size asked for by (job id, role), ``proposals`` the latest proposal by job id.

    ``refused`` counts the proposals that were dropped. Proposals to give room to the same job stand and fall together.
    """

    def __init__(self) -> None:
        self.manual: dict[tuple[str, str], int] = {}
        self.proposals: dict[str, ScaleProposed] = {}
        self.refused = 0

    def note(self, stored: StoredEvent) -> None:
        """Take in a proposal, or the answer to one; ``settle`` has to follow."""
        job_id = stored.job_id
        match stored.event:
            case ScaleProposed() as proposal:
                self.refuse(job_id)
                self.proposals[job_id] = proposal
            case JobResized(policy=policy, reason=reason):
                answered = self.proposals.get(job_id)
                if answered is not None and (answered.policy, answered.reason) == (policy, reason):
                    self._drop(job_id, answered)
            case _:
                pass

    def settle(self, record: JobRecord) -> None:
        """Take in the sizes that the job is asked to have and has not reached, and drop a proposal that does not hold for it any more."""
        job_id = record.job_id
        for key in [key for key in self.manual if key[0] == job_id]:
            del self.manual[key]
        for role, target in record.asked.items():
            if reachable(record, role, target) not in (None, size_of(record, role)):
                self.manual[(job_id, role)] = target
        proposal = self.proposals.get(job_id)
        if proposal is not None and not self._valid(proposal, record):
            self.refuse(job_id)

    def refuse(self, job_id: str) -> None:
        """Drop a proposal, and those that it was to go with, and count them."""
        proposal = self.proposals.get(job_id)
        if proposal is not None:
            self.refused += self._drop(job_id, proposal)

    def growths(self) -> dict[str, ScaleProposed]:
        """The proposals to grow, by job id."""
        return {job_id: one for job_id, one in self.proposals.items() if not one.for_job}

    def shrinkages(self) -> dict[str, dict[str, ScaleProposed]]:
        """The proposals to shrink of which none is missing: by the job that is to have the room, then by the one that gives."""
        groups: dict[str, dict[str, ScaleProposed]] = {}
        for job_id, one in self.proposals.items():
            if one.for_job:
                groups.setdefault(one.for_job, {})[job_id] = one
        return {
            taker: group
            for taker, group in groups.items()
            if all(len(group) >= one.givers for one in group.values())
        }

    def _drop(self, job_id: str, proposal: ScaleProposed) -> int:
        """Forget a proposal and those that it was to go with; how many that are."""
        together = [job_id]
        if proposal.for_job:
            together = [other for other, one in self.proposals.items() if one.for_job == proposal.for_job]
        for one in together:
            del self.proposals[one]
        return len(together)

    def _valid(self, proposal: ScaleProposed, record: JobRecord) -> bool:
        role = record.job.role(proposal.role) if record.job else None
        if (
            role is None
            or not resizable(record)
            or (proposal.attempt, proposal.generation) != (record.attempt, record.generation)
            or (record.job_id, proposal.role) in self.manual
        ):
            return False
        if proposal.for_job:
            return is_valid_scale_down(record, proposal)
        return max(role.min, size_of(record, proposal.role) + 1) <= proposal.target <= role.max
