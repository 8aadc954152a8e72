"""What each queue holds, with all that is below it, as something that can be tried on and rolled back like the room itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from muster_core.models import GPU_MILLI, Resources
from muster_core.scheduling.placement import Allocation, Demand
from muster_core.scheduling.placement.demand import PODS
from muster_core.scheduling.queues.tree import Account, QueueTree

Amounts = dict[str, int]
"""Resources by name, as ``Resources.amounts`` names them; what is not there is 0."""

NodeKey = tuple[str, ...]
"""Who shares: a queue ``(name,)``, or an account ``(queue, submitter)``."""

SHARE_UNIT = 10**12
"""The whole pool, as shares are counted."""

_NOT_SHARED = frozenset({"gpu_memory"})


class Ledger:
    """The room held by every queue and account of ``tree``; ``capacity`` tells what the pool offers in all."""

    def __init__(self, tree: QueueTree, capacity: Callable[[], Mapping[str, int]]) -> None:
        self.tree = tree
        self._capacity = capacity
        self._held: dict[NodeKey, Amounts] = {}
        self._log: list[tuple[Account, Amounts, int]] = []
        self._open = 0
        self._guaranteed = {name: _named(spec.guaranteed) for name, spec in tree.specs.items()}
        self._contested = sorted({name for named in self._guaranteed.values() for name in named})
        self._limits = {name: _named(spec.limit) for name, spec in tree.specs.items()}

    def add(self, account: Account, amounts: Amounts) -> None:
        """The account holds so much more."""
        self._change(account, amounts, 1)

    def take(self, account: Account, amounts: Amounts) -> None:
        """The account holds so much less."""
        self._change(account, amounts, -1)

    def checkpoint(self) -> int:
        """Open a transaction; the answer is for ``rollback``. Transactions nest."""
        self._open += 1
        return len(self._log)

    def commit(self) -> None:
        """Keep what was done in the innermost transaction; an enclosing one may still roll it back."""
        self._open -= 1
        if not self._open:
            self._log.clear()

    def rollback(self, mark: int) -> None:
        """Undo everything since ``mark``."""
        self._open -= 1
        while len(self._log) > mark:
            account, amounts, sign = self._log.pop()
            self._apply(account, amounts, -sign)

    def held(self, node: NodeKey) -> Amounts:
        """What a queue, with all below it, or an account holds."""
        return self._held.get(node, {})

    def guaranteed(self, queue: str) -> Amounts:
        """What the queue is guaranteed of the resources that it names."""
        return self._guaranteed[queue]

    def contested(self, amounts: Amounts) -> list[str]:
        """The resources among ``amounts`` that some queue is guaranteed: only of those can anybody have too much."""
        return [name for name in self._contested if amounts.get(name)]

    def within_guarantee(self, queue: str, more: Amounts) -> bool:
        """Whether what is guaranteed covers ``more``: of every contested resource that it needs, also of those not guaranteed here."""
        guaranteed, held = self._guaranteed[queue], self.held((queue,))
        concerned = self.contested(more)
        return bool(concerned) and all(
            held.get(name, 0) + more[name] <= guaranteed.get(name, 0) for name in concerned
        )

    def borrows(self, queue: str, needed: Iterable[str]) -> bool:
        """Whether the queue holds more than it is guaranteed of a resource among ``needed``."""
        guaranteed, held = self._guaranteed[queue], self.held((queue,))
        return any(held.get(name, 0) > guaranteed.get(name, 0) for name in needed)

    def barrier(self, queue: str, more: Amounts) -> tuple[str, str] | None:
        """The first queue from the top, and its resource, whose limit ``more`` would exceed; None where all limits are kept."""
        for name in self.tree.path(queue):
            held = self.held((name,))
            for resource, limit in self._limits[name].items():
                if more.get(resource) and held.get(resource, 0) + more[resource] > limit:
                    return name, resource
        return None

    def exceeds_alone(self, queue: str, amounts: Amounts) -> bool:
        """Whether ``amounts`` are above a limit of the queue, or of one above it, whatever is held."""
        return any(
            amounts.get(resource, 0) > limit
            for name in self.tree.path(queue)
            for resource, limit in self._limits[name].items()
        )

    def limit(self, queue: str, resource: str) -> int:
        """The queue's own limit of a resource that it limits."""
        return self._limits[queue][resource]

    def over_limit(self) -> frozenset[str]:
        """The queues that hold more than they may."""
        return frozenset(
            name
            for name, limits in self._limits.items()
            if any(self.held((name,)).get(resource, 0) > limit for resource, limit in limits.items())
        )

    def share(self, node: NodeKey) -> int:
        """The dominant share: the largest part of any resource of the pool, in ``SHARE_UNIT``."""
        capacity = self._capacity()
        return max(
            (
                amount * SHARE_UNIT // capacity[name]
                for name, amount in self.held(node).items()
                if capacity.get(name, 0) > 0 and name not in _NOT_SHARED
            ),
            default=0,
        )

    def _change(self, account: Account, amounts: Amounts, sign: int) -> None:
        if self._open:
            self._log.append((account, amounts, sign))
        self._apply(account, amounts, sign)

    def _apply(self, account: Account, amounts: Amounts, sign: int) -> None:
        for node in (account, *((name,) for name in self.tree.path(account[0]))):
            held = self._held.setdefault(node, {})
            for name, amount in amounts.items():
                left = held.get(name, 0) + sign * amount
                if left:
                    held[name] = left
                else:
                    held.pop(name, None)


def amounts_of(holds: Iterable[Allocation]) -> Amounts:
    """What the holds add up to."""
    total: Amounts = {}
    for hold in holds:
        for name, amount in demand_amounts(hold.demand):
            total[name] = total.get(name, 0) + amount
    return total


@lru_cache(maxsize=4096)
def demand_amounts(demand: Demand) -> tuple[tuple[str, int], ...]:
    """What one replica counts against its queue, by resource; ``gpu`` in milli-GPU."""
    amounts = {name: amount for name, amount in demand.amounts if name != PODS}
    amounts["gpu"] = demand.gpus * GPU_MILLI + demand.gpu_share
    amounts["gpu_memory"] = demand.gpu_memory * max(demand.gpus, 1)
    return tuple((name, amount) for name, amount in amounts.items() if amount)


def _named(resources: Resources) -> Amounts:
    return {name: amount for name, amount in resources.amounts().items() if amount}
