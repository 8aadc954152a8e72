"""Donors: replicas above the minima of running jobs, in the order in which each job would lose them."""

from __future__ import annotations

from collections import defaultdict

from muster_core.autoscaling.policy import Policy, Rank
from muster_core.autoscaling.settings import ElasticSettings
from muster_core.autoscaling.shell import Elastic, may_give, spare_of
from muster_core.autoscaling.standing import Standing, standing_of
from muster_core.events import ReplicaRef
from muster_core.scheduling.placement.roles import is_anchor
from muster_core.scheduling.queues import max_replica_amounts
from muster_core.scheduling.resizing import DonatedReplica
from muster_core.scheduling.state import Transaction


class Giver:
    """A possible donor, ranked by ``policy``.

    ``gifts`` are its replicas by node, those without a parameter server on their node first, then the highest index;
    ``left`` is how many it could still lose.
    """

    def __init__(
        self,
        elastic: Elastic,
        standing: Standing,
        gifts: list[DonatedReplica],
        lonely: frozenset[str],
        policy: Policy,
    ) -> None:
        self.elastic = elastic
        self.standing = standing
        self.gifts: dict[str, list[DonatedReplica]] = {}
        self._before = standing
        self._all = sorted(gifts, key=lambda one: (one.allocation.node not in lonely, -one.ref.index))
        self._lonely = lonely
        self._policy = policy
        self._loss: Rank | None = None
        self.reset()

    @property
    def left(self) -> int:
        """Return how many replicas it could still lose."""
        return self.standing.spare

    def rank(self, gift: DonatedReplica) -> tuple[Rank, bool, int]:
        """Return its rank; lower goes first."""
        if self._loss is None:
            self._loss = self._policy.loss(self.standing)
        return (self._loss, gift.allocation.node not in self._lonely, -gift.ref.index)

    def change(self, by: int) -> None:
        """Add ``by`` replicas."""
        self.standing = self.standing.changed(by)
        self._loss = None

    def reset(self) -> None:
        """Reset what it has lost."""
        self.standing, self._loss = self._before, None
        self.gifts.clear()
        for gift in self._all:
            self.gifts.setdefault(gift.allocation.node, []).append(gift)


class Givers:
    """Return every possible donor for a job in ``queue`` by job id, and the nodes with their replicas."""

    def __init__(
        self, transaction: Transaction, settings: ElasticSettings, queue: str, policy: Policy
    ) -> None:
        self.by_job: dict[str, Giver] = {}
        self.on_node: dict[str, list[Giver]] = defaultdict(list)
        self._queue = queue
        self._trial = transaction
        tree = transaction.index.tree
        for job_id, record in transaction.index.records.items():
            elastic = may_give(record, tree, settings)
            if elastic is None or job_id in transaction.decided or elastic.cool_at > transaction.now:
                continue
            giver = _giver(elastic, transaction, policy)
            if giver is not None:
                self.by_job[job_id] = giver
                for node in giver.gifts:
                    self.on_node[node].append(giver)

    def may_lose(self, job_id: str) -> bool:
        """Return whether the queue may use the donor's capacity: nothing of the guarantee that the donor's queue has not exceeded."""
        giver = self.by_job[job_id]
        tree, ledger = self._trial.index.tree, self._trial.ledger
        ours, theirs = tree.path(self._queue), tree.path(tree.account_of(giver.elastic.record)[0])
        apart = [name for position, name in enumerate(theirs) if ours[position : position + 1] != (name,)]
        needed = max_replica_amounts(giver.elastic.role)
        for name in apart:
            guaranteed = [what for what in ledger.guaranteed(name) if needed.get(what)]
            if guaranteed and not ledger.borrows(name, guaranteed):
                return False
        return True

    def drop(self, job_id: str) -> None:
        """Exclude a donor; a no-op for others."""
        giver = self.by_job.get(job_id)
        for some in self.on_node.values() if giver is not None else ():
            if giver in some:
                some.remove(giver)


def _giver(elastic: Elastic, transaction: Transaction, policy: Policy) -> Giver | None:
    record, role = elastic.record, elastic.role
    held = transaction.index.allocations.get(record.job_id, {})
    gifts: list[DonatedReplica] = []
    for member in record.gang():
        key = (record.job_id, record.attempt, member.role, member.index)
        if member.role == role.name and member.index and key in held:
            gifts.append(
                DonatedReplica(record, ReplicaRef(role=role.name, index=member.index), key, held[key])
            )
    if not gifts:
        return None
    beside = {member.node for member in record.gang() if is_anchor(member.role) and not member.ended}
    lonely = frozenset(gift.allocation.node for gift in gifts) - beside
    standing = standing_of(record, role, spare_of(record, role), elastic.numbers, transaction.index)
    return Giver(elastic, standing, gifts, lonely, policy)
