"""The queue tree, and the quota ledger: what each queue uses of its guarantee, its limit and its fair share."""

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
from muster_core.scheduling.placement import PODS, Allocation, Demand, Gang, GangRole, demand_of

Account = tuple[str, str]
"""What a job's usage is charged to: its queue and, where the queue shares among submitters (DRF), the submitter, else ``""``."""

ShareKey = tuple[str, ...]
"""What has a share: a queue ``(name,)`` or an account ``(queue, submitter)``."""

Amounts = dict[str, int]
"""Resources by name, as in ``Resources.amounts``; a missing resource is 0."""

SHARE_UNIT = 10**12
"""The share of the whole pool."""

_NOT_SHARED = frozenset({"gpu_memory"})


class QueueTree:
    """The tree of valid ``specs`` (see ``validate_queues``); it always has the queue ``default``."""

    def __init__(self, specs: Iterable[QueueSpec] = ()) -> None:
        applied = {spec.name: spec for spec in specs}
        self._configured = bool(applied)
        #: Every queue by name, sorted.
        self.specs = dict(sorted({DEFAULT_QUEUE: QueueSpec(name=DEFAULT_QUEUE), **applied}.items()))
        self._by_namespace = {name: spec.name for spec in self.specs.values() for name in spec.namespaces}
        self._paths = {name: self._path(name) for name in self.specs}

    def path(self, queue: str) -> tuple[str, ...]:
        """Return the queue and its ancestors, from the top down."""
        return self._paths[queue]

    def children(self, parent: str) -> tuple[str, ...]:
        """Return the queues directly below ``parent`` (empty: the top level), sorted."""
        return tuple(name for name, spec in self.specs.items() if spec.parent == parent)

    def queue_of(self, job: Job) -> str | None:
        """Return the queue of ``job``, or None if it names an unknown queue.

        As long as no queue was ever applied, every job is in ``default``.
        """
        if not self._configured:
            return DEFAULT_QUEUE
        if job.queue:
            return job.queue if job.queue in self.specs else None
        listed = self._by_namespace.get(job.namespace)
        return listed or (job.namespace if job.namespace in self.specs else DEFAULT_QUEUE)

    def account_of(self, record: JobRecord) -> Account:
        """Return the account of a validated job; jobs of unknown queues are charged to ``default``."""
        queue = (self.queue_of(record.job) if record.job else None) or DEFAULT_QUEUE
        return (queue, record.submitter if self.specs[queue].policy is QueuePolicy.DRF else "")

    def _path(self, name: str) -> tuple[str, ...]:
        spec = self.specs[name]
        return (*self._path(spec.parent), name) if spec.parent else (name,)


class QuotaLedger:
    """The usage of every queue and account of ``tree``; ``capacity`` returns the allocatable total of the pool."""

    def __init__(self, tree: QueueTree, capacity: Callable[[], Mapping[str, int]]) -> None:
        self.tree = tree
        self.capacity = capacity
        self._usage: dict[ShareKey, Amounts] = {}
        self._log: list[tuple[Account, Amounts, int]] = []
        self._open = 0
        self._guaranteed = {name: _positive(spec.guaranteed) for name, spec in tree.specs.items()}
        self._contested = sorted({name for named in self._guaranteed.values() for name in named})
        self._limits = {name: spec.limit.amounts() for name, spec in tree.specs.items()}

    def add(self, account: Account, amounts: Amounts) -> None:
        """Charge ``amounts`` to an account and to the queues on its path."""
        self._change(account, amounts, 1)

    def subtract(self, account: Account, amounts: Amounts) -> None:
        """Take ``amounts`` off an account and the queues on its path."""
        self._change(account, amounts, -1)

    def checkpoint(self) -> int:
        """Open a nested transaction; returns the mark for ``rollback``."""
        self._open += 1
        return len(self._log)

    def commit(self) -> None:
        """Keep the changes of the innermost transaction; an enclosing one may still roll them back."""
        self._open -= 1
        if not self._open:
            self._log.clear()

    def rollback(self, mark: int) -> None:
        """Undo every change since ``mark``."""
        self._open -= 1
        while len(self._log) > mark:
            account, amounts, sign = self._log.pop()
            self._apply(account, amounts, -sign)

    def usage(self, key: ShareKey) -> Amounts:
        """Return what a queue, with its descendants, or an account uses."""
        return self._usage.get(key, {})

    def guaranteed(self, queue: str) -> Amounts:
        """Return what the queue is guaranteed, of the resources that it names."""
        return self._guaranteed[queue]

    def contested(self, amounts: Amounts) -> list[str]:
        """Return the resources among ``amounts`` that any queue is guaranteed; only those can be borrowed."""
        return [name for name in self._contested if amounts.get(name)]

    def within_guarantee(self, queue: str, more: Amounts) -> bool:
        """Return whether the guarantee covers ``more``, for all contested resources in it."""
        guaranteed, usage = self._guaranteed[queue], self.usage((queue,))
        contested = self.contested(more)
        return bool(contested) and all(
            usage.get(name, 0) + more[name] <= guaranteed.get(name, 0) for name in contested
        )

    def borrows(self, queue: str, resources: Iterable[str]) -> bool:
        """Return whether the queue uses more than its guarantee of one of ``resources``."""
        guaranteed, usage = self._guaranteed[queue], self.usage((queue,))
        return any(usage.get(name, 0) > guaranteed.get(name, 0) for name in resources)

    def exceeded_limit(self, queue: str, more: Amounts) -> tuple[str, str] | None:
        """Return the first queue from the top, and its resource, whose limit ``more`` would exceed."""
        for name in self.tree.path(queue):
            usage = self.usage((name,))
            for resource, limit in self._limits[name].items():
                if more.get(resource) and usage.get(resource, 0) + more[resource] > limit:
                    return name, resource
        return None

    def exceeds_limit_alone(self, queue: str, amounts: Amounts) -> bool:
        """Return whether ``amounts`` exceed a limit on the path of the queue even if nothing is in use."""
        return any(
            amounts.get(resource, 0) > limit
            for name in self.tree.path(queue)
            for resource, limit in self._limits[name].items()
        )

    def limit(self, queue: str, resource: str) -> int:
        """Return the queue's own limit of a resource that it limits."""
        return self._limits[queue][resource]

    def over_limit(self) -> frozenset[str]:
        """Return the queues that use more than their limit."""
        return frozenset(
            name
            for name, limits in self._limits.items()
            if any(self.usage((name,)).get(resource, 0) > limit for resource, limit in limits.items())
        )

    def share(self, key: ShareKey) -> int:
        """Return the dominant share in ``SHARE_UNIT``: the largest part of any resource of the pool (DRF, Ghodsi 2011)."""
        capacity = self.capacity()
        return max(
            (
                amount * SHARE_UNIT // capacity[name]
                for name, amount in self.usage(key).items()
                if capacity.get(name, 0) > 0 and name not in _NOT_SHARED
            ),
            default=0,
        )

    def _change(self, account: Account, amounts: Amounts, sign: int) -> None:
        if self._open:
            self._log.append((account, amounts, sign))
        self._apply(account, amounts, sign)

    def _apply(self, account: Account, amounts: Amounts, sign: int) -> None:
        for key in (account, *((name,) for name in self.tree.path(account[0]))):
            usage = self._usage.setdefault(key, {})
            for name, amount in amounts.items():
                left = usage.get(name, 0) + sign * amount
                if left:
                    usage[name] = left
                else:
                    usage.pop(name, None)


def amounts_of(allocations: Iterable[Allocation]) -> Amounts:
    """Return the total that allocations count against their queue."""
    total: Amounts = {}
    for allocation in allocations:
        for name, amount in _demand_amounts(allocation.demand):
            total[name] = total.get(name, 0) + amount
    return total


@lru_cache(maxsize=4096)
def gang_amounts(gang: Gang) -> Amounts:
    """Return what ``gang`` counts against its queue. The result is shared by all callers; do not change it."""
    total: Amounts = {}
    for role in gang.roles:
        different = [request for index, request in role.overrides if index < role.replicas]
        for request, number in (
            (role.request, role.replicas - len(different)),
            *((request, 1) for request in different),
        ):
            for name, amount in _demand_amounts(request.demand):
                total[name] = total.get(name, 0) + amount * number
    return total


def max_replica_amounts(role: Role) -> Amounts:
    """Return the most that any replica of ``role`` counts against its queue, by resource."""
    most: Amounts = {}
    for template in (role.template, *role.overrides.values()):
        for name, amount in _demand_amounts(demand_of(template.requests)):
            most[name] = max(most.get(name, 0), amount)
    return most


@lru_cache(maxsize=4096)
def minimum_gang(gang: Gang) -> Gang:
    """Return the gang at its minimum size: the replicas that must start together."""
    while (smaller := _one_less(gang)) is not None:
        gang = smaller
    return gang


def largest_allowed(gang: Gang, allowed: Callable[[Amounts], bool]) -> Gang | None:
    """Return the largest size of ``gang``, not below its minimum, that is ``allowed``, or None.

    The role that is furthest above its minimum loses a replica first.
    """
    while not allowed(gang_amounts(gang)):
        smaller = _one_less(gang)
        if smaller is None:
            return None
        gang = smaller
    return gang


@lru_cache(maxsize=4096)
def _demand_amounts(demand: Demand) -> tuple[tuple[str, int], ...]:
    """Return what one replica counts against its queue, by resource; ``gpu`` in milli-GPU."""
    amounts = {name: amount for name, amount in demand.amounts if name != PODS}
    amounts["gpu"] = demand.gpus * GPU_MILLI + demand.gpu_share
    amounts["gpu_memory"] = demand.gpu_memory * max(demand.gpus, 1)
    return tuple((name, amount) for name, amount in amounts.items() if amount)


def _one_less(gang: Gang) -> Gang | None:
    """Return the gang with one replica less, or None at its minimum."""
    if gang.full <= gang.minimum:
        return None
    spare = [role.replicas - role.min for role in gang.roles]
    largest = max(range(len(spare)), key=lambda position: (spare[position], position))
    roles = tuple(_smaller(role) if i == largest else role for i, role in enumerate(gang.roles))
    return msgspec.structs.replace(gang, roles=roles, min_available=gang.minimum)


def _smaller(role: GangRole) -> GangRole:
    number = role.replicas - 1
    overrides = tuple((index, request) for index, request in role.overrides if index < number)
    return msgspec.structs.replace(role, replicas=number, overrides=overrides)


def _positive(resources: Resources) -> Amounts:
    return {name: amount for name, amount in resources.amounts().items() if amount}
