"""Scale up: idle capacity goes to jobs one replica at a time, in policy order.

Jobs of several policies take turns: the policy whose jobs have received least goes next, so that a greedy one does not
decide for the others.
"""

from __future__ import annotations

import heapq

from muster_core.autoscaling.dragon import Dragon
from muster_core.autoscaling.marginal_gain import MarginalGain
from muster_core.autoscaling.max_min import MaxMin
from muster_core.autoscaling.policy import Policy, Rank
from muster_core.autoscaling.proposal import ScaleProposal
from muster_core.autoscaling.settings import ElasticSettings
from muster_core.autoscaling.shell import Elastic, may_grow, spare_of
from muster_core.autoscaling.standing import Standing, standing_of
from muster_core.autoscaling.telling import idle_reason
from muster_core.events import Assignment
from muster_core.lifecycle import AVOIDED_FOR_US, MILLI, avoided_at
from muster_core.models import ReplicaRecord
from muster_core.scheduling.placement import place_more
from muster_core.scheduling.placement.field import Field
from muster_core.scheduling.placement.slot import slot_of
from muster_core.scheduling.queues import max_replica_amounts
from muster_core.scheduling.state import Transaction

POLICIES: dict[str, Policy] = {policy.name: policy for policy in (MarginalGain(), Dragon(), MaxMin())}
"""The policies by name; ``none`` plans nothing and is not among them."""


class _Grower:
    """A job that could grow, with what it has received so far."""

    def __init__(self, elastic: Elastic, standing: Standing) -> None:
        self.elastic = elastic
        self.before = standing
        self.standing = standing
        self.members: tuple[ReplicaRecord, ...] = elastic.record.replicas
        step = elastic.numbers.step
        self.most = min(elastic.role.max, standing.size + step) if step else elastic.role.max

    def take(self, one: Assignment) -> None:
        record = self.elastic.record
        self.standing = self.standing.changed(1)
        # A reused index has its old replica before it.
        others = tuple(r for r in self.members if (r.role, r.index) != (one.role, one.index) or not r.ended)
        joined = ReplicaRecord(
            role=one.role,
            index=one.index,
            attempt=record.attempt,
            generation=record.generation + 1,
            node=one.node,
            gpus=one.gpus,
        )
        self.members = (*others, joined)


class _Turn:
    """The jobs of one policy, the next to grow first; ``given`` is the share of the pool they have received."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.given = 0
        self._waiting: list[tuple[Rank, _Grower]] = []

    def put(self, grower: _Grower) -> None:
        rank = self.policy.growth(grower.standing) if grower.standing.size < grower.most else None
        if rank is not None:
            # Ranks end with the job id, so growers are never compared.
            heapq.heappush(self._waiting, (rank, grower))

    def pop(self) -> _Grower | None:
        return heapq.heappop(self._waiting)[1] if self._waiting else None


def growths(transaction: Transaction, decided_at: int, settings: ElasticSettings) -> list[ScaleProposal]:
    """Return every job that can grow into idle, unreserved capacity, with its new size; ``transaction`` is left unchanged."""
    turns: dict[str, _Turn] = {}
    for elastic in growers(transaction, settings):
        if grows_at(elastic, decided_at) > transaction.now:
            continue
        record, role = elastic.record, elastic.role
        standing = standing_of(record, role, spare_of(record, role), elastic.numbers, transaction.index)
        turn = turns.setdefault(elastic.numbers.policy, _Turn(POLICIES[elastic.numbers.policy]))
        turn.put(_Grower(elastic, standing))
    mark = transaction.checkpoint()
    try:
        grown = _give(turns, transaction)
    finally:
        transaction.rollback(mark)
    return [_proposal(one, transaction) for one in grown]


def growers(transaction: Transaction, settings: ElasticSettings) -> list[Elastic]:
    """Return the jobs that may grow, now or after the idle period."""
    tree = transaction.index.tree
    found = (may_grow(record, tree, settings) for record in transaction.index.records.values())
    return [one for one in found if one is not None and one.record.job_id not in transaction.decided]


def grows_at(elastic: Elastic, decided_at: int) -> int:
    """Return when (µs) a job may grow if nothing else happens."""
    quiet_at = decided_at + elastic.numbers.quiet_us if decided_at else 0
    return max(quiet_at, elastic.cool_at)


def forgives_at(elastic: Elastic, now: int) -> int | None:
    """Return the next time (µs) after ``now`` at which the job stops avoiding a node, or None."""
    ends = (at + AVOIDED_FOR_US for at in elastic.record.avoided.values())
    return min((at for at in ends if at > now), default=None)


def _give(turns: dict[str, _Turn], transaction: Transaction) -> list[_Grower]:
    grown: dict[str, _Grower] = {}
    while turns:
        turn = min(turns.values(), key=lambda one: (one.given, one.policy.name))
        grower = turn.pop()
        if grower is None:
            del turns[turn.policy.name]
            continue
        added = _one_more(grower, transaction)
        if added is None:
            continue
        transaction.allocate(grower.elastic.record, grower.elastic.record.attempt, (added,))
        grower.take(added)
        grown[grower.standing.job_id] = grower
        turn.given += grower.standing.share
        turn.put(grower)
    return list(grown.values())


def _one_more(grower: _Grower, transaction: Transaction) -> Assignment | None:
    """Return the placement of one more replica, or None if it does not fit or its queue is at its limit, which is final for this plan."""
    record, role = grower.elastic.record, grower.elastic.role
    if record.job is None:
        return None
    queue = transaction.index.tree.account_of(record)[0]
    if transaction.ledger.exceeded_limit(queue, max_replica_amounts(role)) is not None:
        return None
    if not role.overrides:
        slot = slot_of(role.template, record.job.placement, record.job.namespace)
        if not Field(transaction.snapshot, [slot]).fits(slot).total:
            return None
    target = grower.standing.size + 1
    avoided = transaction.usable_nodes(avoided_at(record, transaction.now))
    with transaction.excluding_nodes(avoided, record.job_id):
        added = place_more(record.job, grower.members, role.name, target, transaction.snapshot)
    return added[0] if added else None


def _proposal(grower: _Grower, transaction: Transaction) -> ScaleProposal:
    record, role, numbers, _ = grower.elastic
    before, after = grower.before, grower.standing
    gain = after.speed_up.at(after.workers) - before.speed_up.at(before.workers)
    return ScaleProposal(
        job_id=record.job_id,
        role=role.name,
        size=before.size,
        target=after.size,
        policy=numbers.policy,
        attempt=record.attempt,
        generation=record.generation,
        reason=idle_reason(grower.elastic, before, after, transaction.snapshot),
        gain=int(gain * MILLI),
    )
