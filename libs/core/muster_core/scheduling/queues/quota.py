"""The queues of a pool as a tree, and which of them a job waits in.

What each queue holds, with all that is below it, as something that can be tried on and rolled back like the room itself.

How large a gang may start where a queue's limit allows less than the pool has room for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

import msgspec

from muster_core.models import (
    DEFAULT_QUEUE,
    GPU_MILLI,
    Job,
    JobRecord,
    QueuePolicy,
    QueueSpec,
    Resources,
    Role,
)
from muster_core.scheduling.placement import Allocation, Demand, Gang, GangRole, demand_of
from muster_core.scheduling.placement.demand import PODS

Account = tuple[str, str]
"""Whose room it is: the queue and, where the queue shares among its submitters, the submitter, else the empty string."""


class QueueTree:
    """The queues of valid ``specs`` (see ``problems_of``), ``default`` among them whether it was applied or not."""

    def __init__(self, specs: Iterable[QueueSpec] = ()) -> None:
        applied = {spec.name: spec for spec in specs}
        self._configured = bool(applied)
        self._specs = dict(sorted({DEFAULT_QUEUE: QueueSpec(name=DEFAULT_QUEUE), **applied}.items()))
        self._of_namespace = {name: spec.name for spec in self._specs.values() for name in spec.namespaces}
        self._paths = {name: self._path(name) for name in self._specs}

    @property
    def specs(self) -> Mapping[str, QueueSpec]:
        """Every queue by name, sorted."""
        return self._specs

    def path(self, queue: str) -> tuple[str, ...]:
        """The queue and its ancestors, from the top down."""
        return self._paths[queue]

    def children(self, parent: str) -> tuple[str, ...]:
        """The queues right below ``parent`` (empty: at the top), sorted."""
        return tuple(name for name, spec in self._specs.items() if spec.parent == parent)

    def queue_of(self, job: Job) -> str | None:
        """The queue that ``job`` waits in, or None where it names one that is not there.

        As long as no queue was ever applied there is one line for all, whatever they name.
        """
        if not self._configured:
            return DEFAULT_QUEUE
        if job.queue:
            return job.queue if job.queue in self._specs else None
        listed = self._of_namespace.get(job.namespace)
        return listed or (job.namespace if job.namespace in self._specs else DEFAULT_QUEUE)

    def account_of(self, record: JobRecord) -> Account:
        """The account of a validated job; ``default`` answers for jobs whose queue is gone."""
        queue = (self.queue_of(record.job) if record.job else None) or DEFAULT_QUEUE
        return (queue, record.submitter if self._specs[queue].policy is QueuePolicy.DRF else "")

    def _path(self, name: str) -> tuple[str, ...]:
        spec = self._specs[name]
        return (*self._path(spec.parent), name) if spec.parent else (name,)


Amounts = dict[str, int]
"""Resources by name, as ``Resources.amounts`` names them; what is not there is 0."""

ShareKey = tuple[str, ...]
"""Who shares: a queue ``(name,)``, or an account ``(queue, submitter)``."""

SHARE_UNIT = 10**12
"""The whole pool, as shares are counted."""

_NOT_SHARED = frozenset({"gpu_memory"})


class QuotaLedger:
    """The room held by every queue and account of ``tree``; ``capacity`` tells what the pool offers in all."""

    def __init__(self, tree: QueueTree, capacity: Callable[[], Mapping[str, int]]) -> None:
        self.tree = tree
        self.capacity = capacity
        self._held: dict[ShareKey, Amounts] = {}
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

    def held(self, node: ShareKey) -> Amounts:
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

    def exceeded_limit(self, queue: str, more: Amounts) -> tuple[str, str] | None:
        """The first queue from the top, and its resource, whose limit ``more`` would exceed; None where all limits are kept."""
        for name in self.tree.path(queue):
            held = self.held((name,))
            for resource, limit in self._limits[name].items():
                if more.get(resource) and held.get(resource, 0) + more[resource] > limit:
                    return name, resource
        return None

    def exceeds_limit_alone(self, queue: str, amounts: Amounts) -> bool:
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

    def share(self, node: ShareKey) -> int:
        """The dominant share: the largest part of any resource of the pool, in ``SHARE_UNIT``."""
        capacity = self.capacity()
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


@lru_cache(maxsize=4096)
def minimum_gang(gang: Gang) -> Gang:
    """The gang at its floor: what must start together, and no more."""
    while (smaller := _one_less(gang)) is not None:
        gang = smaller
    return gang


def largest_allowed(gang: Gang, allowed: Callable[[Amounts], bool]) -> Gang | None:
    """The largest size of ``gang`` from its floor that is ``allowed``, or None: whoever is furthest above its minimum gives first."""
    while not allowed(gang_amounts(gang)):
        smaller = _one_less(gang)
        if smaller is None:
            return None
        gang = smaller
    return gang


@lru_cache(maxsize=4096)
def gang_amounts(gang: Gang) -> Amounts:
    """What the whole of ``gang`` counts against its queue; the same object each time, not to be changed."""
    total: Amounts = {}
    for role in gang.roles:
        different = [slot for index, slot in role.overrides if index < role.replicas]
        for slot, number in ((role.slot, role.replicas - len(different)), *((slot, 1) for slot in different)):
            for name, amount in demand_amounts(slot.demand):
                total[name] = total.get(name, 0) + amount * number
    return total


def max_replica_amounts(role: Role) -> Amounts:
    """What a replica of ``role`` may count against its queue, whatever its index: the most of every resource."""
    most: Amounts = {}
    for template in (role.template, *role.overrides.values()):
        for name, amount in demand_amounts(demand_of(template.requests)):
            most[name] = max(most.get(name, 0), amount)
    return most


def _one_less(gang: Gang) -> Gang | None:
    """The gang with one replica less; None at its floor."""
    if gang.full <= gang.floor:
        return None
    spare = [role.replicas - role.min for role in gang.roles]
    giver = max(range(len(spare)), key=lambda position: (spare[position], position))
    roles = tuple(_smaller(role) if i == giver else role for i, role in enumerate(gang.roles))
    return msgspec.structs.replace(gang, roles=roles, min_available=gang.floor)


def _smaller(role: GangRole) -> GangRole:
    number = role.replicas - 1
    overrides = tuple((index, slot) for index, slot in role.overrides if index < number)
    return msgspec.structs.replace(role, replicas=number, overrides=overrides)
