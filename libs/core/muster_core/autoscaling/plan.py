"""The plan for a pool: free capacity for starved jobs first; jobs grow only if no starved job needs the capacity.

Both are tried in a transaction on the pool, with the scheduler's reservations, and rolled back.
"""

from __future__ import annotations

from muster_core.autoscaling.donors import Giver, Givers
from muster_core.autoscaling.growing import POLICIES, forgives_at, growers, grows_at, growths
from muster_core.autoscaling.policy import Policy
from muster_core.autoscaling.proposal import ScaleProposal
from muster_core.autoscaling.settings import NONE, ElasticSettings, numbers_of, numbers_of_queue
from muster_core.autoscaling.shell import may_give
from muster_core.autoscaling.shrinking import Shrinking
from muster_core.autoscaling.telling import room_reason
from muster_core.autoscaling.view import PoolView
from muster_core.autoscaling.waiting import Head, heads_of, is_forestalled, starved, starves_next
from muster_core.lifecycle import MILLI
from muster_core.scheduling.queues import SchedulingClass
from muster_core.scheduling.reservations import ReservationPlanner, Reservations
from muster_core.scheduling.resizing import BeneficiaryFit, DonatedReplica, terminating_released
from muster_core.scheduling.state import Transaction

_MOST_HEADS = 8
"""How many jobs get capacity freed in one plan."""


def plan(view: PoolView, now: int, settings: ElasticSettings | None = None) -> list[ScaleProposal]:
    """Return every worthwhile resize at ``now`` (µs); the view is unchanged afterwards, and equal views give equal plans."""
    chosen = settings or ElasticSettings()
    transaction = Transaction(index=view.index, feasible=view.feasible, now=now)
    mark = transaction.checkpoint()
    try:
        kept = Reservations(transaction.snapshot)
        ReservationPlanner(transaction, kept, view.runtime_estimates, view.reservation_cache).run()
        heads = heads_of(transaction)
        starving = starved(heads, now)
        if starving:
            helping = _Helping(transaction, kept, chosen)
            helping.run(starving)
            if helping.proposals or helping.awaited:
                return helping.proposals
        return [] if is_forestalled(heads, now) else growths(transaction, view.decided_at, chosen)
    finally:
        transaction.rollback(mark)


def next_check(view: PoolView, now: int, settings: ElasticSettings | None = None) -> int | None:
    """Return the next time (µs) at which ``plan`` may propose something new, or None if only events can change that."""
    chosen = settings or ElasticSettings()
    transaction = Transaction(index=view.index, feasible=view.feasible, now=now)
    heads = heads_of(transaction)
    elastic = growers(transaction, chosen)
    instants = [grows_at(one, view.decided_at) for one in elastic]
    instants += [at for one in elastic if (at := forgives_at(one, now)) is not None]
    if heads:
        tree = transaction.index.tree
        donors = (may_give(record, tree, chosen) for record in transaction.index.records.values())
        instants += [giver.cool_at for giver in donors if giver is not None]
    starves_at = starves_next(heads, now)
    if starves_at is not None:
        instants.append(starves_at)
    return min((at for at in instants if at > now), default=None)


class _Helping:
    """Frees capacity for starved jobs, one after the other.

    ``awaited``: a starved job only waits for replicas that are terminating already.
    """

    def __init__(self, transaction: Transaction, kept: Reservations, settings: ElasticSettings) -> None:
        self.proposals: list[ScaleProposal] = []
        self.awaited = False
        self._trial = transaction
        self._kept = kept
        self._settings = settings
        self._used: set[str] = set()
        self._givers: dict[tuple[str, str], Givers] = {}
        self._hopeless: set[SchedulingClass] = set()
        self._helped = 0

    def run(self, starving: list[Head]) -> None:
        with terminating_released(self._trial, self._kept):
            for head in starving:
                if self._helped < _MOST_HEADS and head.line not in self._hopeless:
                    self._help(head)

    def _help(self, head: Head) -> None:
        job_id = head.record.job_id
        beside = BeneficiaryFit(self._trial, self._kept, job_id)
        found = beside.find()
        self.awaited = self.awaited or found is not None
        policy = self._policy(head)
        if found is None and policy is not None:
            self._kept.lift_all()
            donors = self._givers_for(beside.key.queue, policy)
            shrunk = Shrinking(self._trial, beside, donors).run()
            if shrunk is not None:
                given, found = shrunk
                self._propose(head, given, donors.by_job, policy)
        self._kept.lift_all()
        if found is None:
            self._hopeless.add(head.line)
            return
        self._helped += 1
        self._trial.allocate(head.record, head.record.attempt + 1, found.replicas)
        self._kept.remove(job_id)

    def _givers_for(self, queue: str, policy: Policy) -> Givers:
        """Return the jobs that have not been asked to shrink yet."""
        donors = self._givers.get((queue, policy.name))
        if donors is None:
            donors = self._givers[queue, policy.name] = Givers(self._trial, self._settings, queue, policy)
        for job_id in self._used:
            donors.drop(job_id)
        return donors

    def _policy(self, head: Head) -> Policy | None:
        """The beneficiary's policy ranks the donors, or its queue's if the job keeps its own size."""
        tree = self._trial.index.tree
        own = numbers_of(head.record, tree, self._settings).policy
        if own == NONE:
            own = numbers_of_queue(head.line.key.queue, tree, self._settings).policy
        return POLICIES.get(own)

    def _propose(
        self, head: Head, given: list[DonatedReplica], donors: dict[str, Giver], policy: Policy
    ) -> None:
        by_giver: dict[str, list[DonatedReplica]] = {}
        for gift in given:
            by_giver.setdefault(gift.record.job_id, []).append(gift)
        for job_id, gifts in sorted(by_giver.items()):
            giver = donors[job_id]
            record, role = giver.elastic.record, giver.elastic.role
            before, after = giver.standing, giver.standing.changed(-len(gifts))
            removed = tuple(sorted((gift.ref for gift in gifts), key=lambda ref: -ref.index))
            gain = after.speed_up.at(after.workers) - before.speed_up.at(before.workers)
            self.proposals.append(
                ScaleProposal(
                    job_id=job_id,
                    role=role.name,
                    size=before.size,
                    target=after.size,
                    policy=policy.name,
                    attempt=record.attempt,
                    generation=record.generation,
                    reason=room_reason(giver.elastic, before, gifts, head, self._trial.now),
                    gain=int(gain * MILLI),
                    removed=removed,
                    beneficiary=head.record.job_id,
                    donors=len(by_giver),
                )
            )
        self._used |= by_giver.keys()
