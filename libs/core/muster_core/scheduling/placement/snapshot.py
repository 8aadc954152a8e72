"""Snapshot of a pool: nodes, allocations and free capacity, with transactions.

Two things keep cycles cheap: nodes with equal free capacity and taints form one class that is evaluated once; label rules
are evaluated once for each node, not for each gang. A cycle changes a few nodes of thousands: an index over all nodes
remembers its position in the change log and updates only the nodes after it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Container, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol

from muster_core.models import GPU_MILLI, Job, Node, Resources, Taint
from muster_core.scheduling.placement.affinity import ReplicaAffinity, replica_affinity_of
from muster_core.scheduling.placement.demand import PODS, Demand, demand_of
from muster_core.scheduling.placement.filters import FilterResults, NodeRules, hard_taints
from muster_core.scheduling.placement.free_capacity import (
    BASE_AXES,
    FreeCapacity,
    LargestFree,
    Need,
    empty_capacity,
    is_overcommitted,
    largest_free_of,
    need_of,
    subtract,
    subtract_foreign_gpus,
    unindexed_foreign_gpu,
)

AllocationKey = tuple[str, int, str, int]
"""The key of an allocation: job id, attempt, role, index."""

_NAMED = ("cpu", "memory", "gpu", "gpu_memory", "ephemeral_storage")
"""The resources that are fields of ``Resources``."""
_SLACK_UNIT = 1_000_000
_CHANGES_KEPT = 1 << 16
_FEWEST_RESULTS = 16
_EVALUATIONS_KEPT = 2_000_000


class DerivedIndex(Protocol):
    """An index over all nodes that is kept up to date."""

    @property
    def weight(self) -> int:
        """How many entries it has, which bounds the memory of all indexes."""
        ...


class ChangeLog:
    """The names of changed nodes in order; the oldest entries are dropped."""

    __slots__ = ("_names", "_start")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._start = 0

    @property
    def end(self) -> int:
        """The position after the newest entry."""
        return self._start + len(self._names)

    def record(self, name: str) -> None:
        """Record that the capacity, labels or taints of a node changed, or that it left."""
        self._names.append(name)
        if len(self._names) > _CHANGES_KEPT:
            half = len(self._names) // 2
            del self._names[:half]
            self._start += half

    def record_all(self) -> None:
        """Record that every node changed."""
        self._start = self.end + 1
        self._names.clear()

    def since(self, position: int) -> Collection[str] | None:
        """Return the nodes that changed after ``position``, each once; None if the entries are dropped."""
        return None if position < self._start else dict.fromkeys(self._names[position - self._start :])


class Allocation(NamedTuple):
    """What one replica takes of a node, and its affinity if known."""

    node: str
    demand: Demand
    gpus: tuple[int, ...] = ()
    affinity: ReplicaAffinity | None = None


def allocation_of(job: Job, role: str, index: int, node: str, gpus: tuple[int, ...] = ()) -> Allocation:
    """Return the allocation of one replica of ``job`` on ``node``; raises KeyError for an unknown role."""
    known = job.role(role)
    if known is None:
        raise KeyError(role)
    template = known.template_of(index)
    demand = demand_of(template.requests, together=job.placement.gpu_topology)
    return Allocation(node, demand, gpus, replica_affinity_of(template, job.namespace))


class NodeClass:
    """Schedulable nodes with equal free capacity and taints, which differ in name and labels; ``names`` are sorted."""

    __slots__ = ("capacity", "key", "names", "slack", "taints")

    def __init__(self, *, key: tuple[int, FreeCapacity], taints: tuple[Taint, ...]) -> None:
        self.key = key
        self.capacity = key[1]
        self.taints = taints
        self.names: list[str] = []
        self.slack: int | None = None


class Snapshot:
    """The ``nodes`` of a pool by name, their ``allocations`` (those on unknown nodes too), and free capacity.

    ``change_log`` has the nodes whose free capacity changed; ``views`` are derived indexes that follow it. Between
    ``checkpoint`` and the matching ``commit`` or ``rollback`` only ``allocate`` and ``release`` are allowed; checkpoints
    nest.
    """

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._axes: dict[str, int] = {name: position for position, name in enumerate(BASE_AXES)}
        self._nodes: dict[str, Node] = {}
        self._capacities: dict[str, FreeCapacity] = {}
        self._empty_capacities: dict[str, FreeCapacity] = {}
        self._hard_taints: dict[str, tuple[Taint, ...]] = {}
        self._allocations: dict[AllocationKey, Allocation] = {}
        self._on_node: dict[str, dict[AllocationKey, Allocation]] = {}
        self._classes: dict[tuple[int, FreeCapacity], NodeClass] = {}
        self._class_of: dict[str, NodeClass] = {}
        self._taint_numbers: dict[tuple[Taint, ...], int] = {}
        self._domains: dict[str, dict[str, list[str]]] = {}
        self._needs: dict[Demand, Need] = {}
        self._filter_results: dict[NodeRules, FilterResults] = {}
        self._scale: tuple[int, ...] | None = None
        self._without_allocations: Snapshot | None = None
        self._allocatable: Resources | None = None
        self._largest_free: tuple[int, LargestFree] | None = None
        self._log: list[tuple[AllocationKey, Allocation, bool, FreeCapacity | None]] = []
        self._open = 0
        self.nodes: Mapping[str, Node] = self._nodes
        self.allocations: Mapping[AllocationKey, Allocation] = self._allocations
        self.change_log = ChangeLog()
        self.views: dict[Hashable, DerivedIndex] = {}
        for node in nodes:
            self.put_node(node)

    @property
    def classes(self) -> Iterable[NodeClass]:
        """The classes of schedulable nodes, in no particular order."""
        return self._classes.values()

    def put_node(self, node: Node) -> None:
        """Add or replace ``node``; its allocations stay."""
        self._require_no_transaction()
        known = self._nodes.get(node.name)
        if known == node:
            return
        self._without_allocations = self._allocatable = None
        self._nodes[node.name] = node
        self._empty_capacities.pop(node.name, None)
        if known is None or known.allocatable != node.allocatable:
            self._forget_scale()
        if known is None or _filter_inputs(known) != _filter_inputs(node):
            self._domains.clear()
            for results in self._filter_results.values():
                results.evaluate(node)
        self._hard_taints[node.name] = hard_taints(node.taints)
        new = sorted(name for name in node.allocatable.extended if name not in self._axes)
        if new:
            self._add_axes(new)
        self._replace_capacity(node.name, self._compute_capacity(node))

    def drop_node(self, name: str) -> None:
        """Remove a node that left the pool; its allocations stay."""
        self._require_no_transaction()
        if self._nodes.get(name) is None:
            return
        self._remove_from_class(name)
        del self._nodes[name], self._capacities[name], self._hard_taints[name]
        self._empty_capacities.pop(name, None)
        self.change_log.record(name)
        self._without_allocations = self._allocatable = None
        self._forget_scale()
        self._domains.clear()
        for results in self._filter_results.values():
            results.remove(name)

    def allocate(self, key: AllocationKey, allocation: Allocation) -> None:
        """Add an allocation; raises ValueError if ``key`` has one already."""
        self.allocate_all(((key, allocation),))

    def allocate_all(self, allocations: Iterable[tuple[AllocationKey, Allocation]]) -> None:
        """Add several allocations, which is cheaper than one by one.

        Raises:
            ValueError: A key has an allocation already or is repeated; nothing is added.
        """
        wanted = tuple(allocations)
        for key, _ in wanted:
            if key in self._allocations:
                raise ValueError(f"{key} has an allocation on {self._allocations[key].node} already")
        if len(dict(wanted)) != len(wanted):
            raise ValueError("a key is repeated")
        capacities: dict[str, FreeCapacity] = {}
        for key, allocation in wanted:
            before = capacities.get(allocation.node) or self._capacities.get(allocation.node)
            if self._open:
                self._log.append((key, allocation, True, before))
            self._allocations[key] = allocation
            self._on_node.setdefault(allocation.node, {})[key] = allocation
            if before is not None:
                capacities[allocation.node] = subtract(before, self.need(allocation.demand), allocation.gpus)
        for name, capacity in capacities.items():
            node = self._nodes[name]
            # Other pods are assumed to use GPUs without a replica, so which ones depends on all allocations.
            self._replace_capacity(name, self._compute_capacity(node) if node.foreign.gpu else capacity)

    def release(self, key: AllocationKey) -> None:
        """Remove an allocation; raises KeyError if ``key`` has none."""
        allocation = self._allocations.pop(key)
        if self._open:
            self._log.append((key, allocation, False, self._capacities.get(allocation.node)))
        del self._on_node[allocation.node][key]
        node = self._nodes.get(allocation.node)
        if node is not None:
            self._replace_capacity(allocation.node, self._compute_capacity(node))

    def checkpoint(self) -> int:
        """Open a transaction; pass the result to ``commit`` or ``rollback``."""
        self._open += 1
        return len(self._log)

    def commit(self, mark: int) -> None:
        """Keep the changes since ``mark``; an enclosing transaction may still roll them back."""
        self._close(mark)
        if not self._open:
            self._log.clear()

    def rollback(self, mark: int) -> None:
        """Undo all changes since ``mark``."""
        self._close(mark)
        while len(self._log) > mark:
            key, allocation, added, before = self._log.pop()
            if added:
                del self._allocations[key], self._on_node[allocation.node][key]
            else:
                self._allocations[key] = allocation
                self._on_node[allocation.node][key] = allocation
            if before is not None:
                self._replace_capacity(allocation.node, before)

    def need(self, demand: Demand) -> Need:
        """Return ``demand`` on the axes of this snapshot."""
        need = self._needs.get(demand)
        if need is None:
            need = self._needs[demand] = need_of(demand, self._axes)
        return need

    def free_capacity(self, name: str) -> FreeCapacity:
        """Return the free capacity of a node; raises KeyError for an unknown node."""
        return self._capacities[name]

    def free_capacity_without(self, name: str, gone: Container[AllocationKey]) -> FreeCapacity:
        """Return the free capacity of a node without the allocations ``gone``; raises KeyError for an unknown node."""
        return self._compute_capacity(self._nodes[name], gone)

    def class_of(self, name: str) -> NodeClass | None:
        """Return the class of a node, or None if it is unknown or not schedulable."""
        return self._class_of.get(name)

    def slack(self, of: NodeClass) -> int:
        """Return what is left on a node of this class, each resource relative to the largest node; less is tighter."""
        if of.slack is None:
            if self._scale is None:
                offers = [node.allocatable for node in self._nodes.values()]
                self._scale = tuple(
                    0 if name == PODS else _largest(name, offers) for name in (*self._axes, "gpu")
                )
            amounts = (*of.capacity.free, sum(of.capacity.gpus))
            of.slack = sum(_SLACK_UNIT * a // s for a, s in zip(amounts, self._scale, strict=True) if s)
        return of.slack

    def filter(self, rules: NodeRules) -> FilterResults:
        """Return which nodes pass ``rules``; kept up to date."""
        results = self._filter_results.get(rules)
        if results is None:
            kept = max(_FEWEST_RESULTS, _EVALUATIONS_KEPT // max(len(self._nodes), 1))
            if len(self._filter_results) >= kept:
                del self._filter_results[next(iter(self._filter_results))]
            results = self._filter_results[rules] = FilterResults(rules, self._nodes.values())
        return results

    def domains(self, label: str) -> Mapping[str, Sequence[str]]:
        """Return the values of a node label, with the sorted names of the nodes that have each."""
        domains = self._domains.get(label)
        if domains is None:
            domains = self._domains[label] = {}
            for name in sorted(self._nodes):
                value = self._nodes[name].labels.get(label)
                if value is not None:
                    domains.setdefault(value, []).append(name)
        return domains

    def free_of(self, capacity: FreeCapacity, resource: str) -> int:
        """Return the free amount of a resource by name (``gpu`` in milli-GPU), never below 0."""
        if resource == "gpu":
            return sum(max(milli, 0) for milli in capacity.gpus)
        if resource == "gpu_memory":
            return sum(max(memory, 0) for memory in capacity.gpu_memory)
        axis = self._axes.get(resource)
        return 0 if axis is None else max(capacity.free[axis], 0)

    def free_total(self) -> Resources:
        """Return the free capacity of schedulable nodes; ``gpu_memory`` is the sum over their GPUs."""
        totals = dict.fromkeys((*_NAMED, *self._axes), 0)
        del totals[PODS]
        for one in self._classes.values():
            for resource in totals:
                totals[resource] += len(one.names) * self.free_of(one.capacity, resource)
        named = {name: totals.pop(name) for name in _NAMED}
        return Resources(**named, extended=totals)

    def allocatable_total(self) -> Resources:
        """Return the allocatable capacity of schedulable nodes; ``gpu_memory`` is the sum over their GPUs."""
        if self._allocatable is None:
            total = Resources()
            for node in (self._nodes[name] for name in self._class_of):
                gpu_memory = node.gpu_memory * (node.allocatable.gpu // GPU_MILLI)
                total += node.allocatable
                total += Resources(gpu_memory=gpu_memory - node.allocatable.gpu_memory)
            self._allocatable = total
        return self._allocatable

    def largest_free(self) -> LargestFree:
        """Return the largest free amount of each resource on any schedulable node."""
        if self._largest_free is None or self._largest_free[0] != self.change_log.end:
            largest = largest_free_of((one.capacity for one in self._classes.values()), len(self._axes))
            self._largest_free = (self.change_log.end, largest)
        return self._largest_free[1]

    def overcommitted(self) -> list[str]:
        """Return the overcommitted nodes, sorted."""
        return sorted(name for name, capacity in self._capacities.items() if is_overcommitted(capacity))

    def without_allocations(self) -> Snapshot:
        """Return the same nodes without Muster's allocations; do not change it."""
        if self._without_allocations is None:
            self._without_allocations = Snapshot(self._nodes.values())
        return self._without_allocations

    def _compute_capacity(self, node: Node, gone: Container[AllocationKey] = ()) -> FreeCapacity:
        capacity = self._empty_capacities.get(node.name)
        if capacity is None:
            capacity = self._empty_capacities[node.name] = empty_capacity(node, self._axes)
        for key, allocation in self._on_node.get(node.name, {}).items():
            if key not in gone:
                capacity = subtract(capacity, self.need(allocation.demand), allocation.gpus)
        return subtract_foreign_gpus(capacity, unindexed_foreign_gpu(node))

    def _replace_capacity(self, name: str, capacity: FreeCapacity) -> None:
        self._remove_from_class(name)
        self._capacities[name] = capacity
        self.change_log.record(name)
        node = self._nodes[name]
        if not node.ready or node.unschedulable:
            return
        taints = self._hard_taints[name]
        key = (self._taint_numbers.setdefault(taints, len(self._taint_numbers)), capacity)
        members = self._classes.get(key)
        if members is None:
            members = self._classes[key] = NodeClass(key=key, taints=taints)
        insort(members.names, name)
        self._class_of[name] = members

    def _remove_from_class(self, name: str) -> None:
        members = self._class_of.pop(name, None)
        if members is None:
            return
        del members.names[bisect_left(members.names, name)]
        if not members.names:
            del self._classes[members.key]

    def _add_axes(self, names: Iterable[str]) -> None:
        for name in names:
            self._axes[name] = len(self._axes)
        self._needs.clear()
        self._empty_capacities.clear()
        self.views.clear()
        self._classes.clear()
        self._class_of.clear()
        self._forget_scale()
        for name in self._capacities:
            self._replace_capacity(name, self._compute_capacity(self._nodes[name]))

    def _forget_scale(self) -> None:
        if self._scale is not None:
            self._scale = None
            self.change_log.record_all()
            for one in self._classes.values():
                one.slack = None

    def _close(self, mark: int) -> None:
        if not self._open or mark > len(self._log):
            raise ValueError("no transaction is open at this mark")
        self._open -= 1

    def _require_no_transaction(self) -> None:
        if self._open:
            raise ValueError("nodes must not change inside a transaction")


def _largest(resource: str, offers: Iterable[Resources]) -> int:
    """Return the largest amount of a resource in ``offers``."""
    if resource in _NAMED:
        return max(map(attrgetter(resource), offers), default=0)
    return max((offer.extended.get(resource, 0) for offer in offers), default=0)


def _filter_inputs(node: Node) -> tuple[object, ...]:
    return (node.ready, node.unschedulable, node.taints, node.labels)
