"""Candidate nodes of a gang: the pool's node classes, or some of its nodes, split by feasibility.

A class splits only if a rule looks at labels; otherwise its nodes are evaluated as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from muster_core.scheduling.placement.demand import ReplicaRequest
from muster_core.scheduling.placement.filters import FilterResults, NodeRules, tolerates
from muster_core.scheduling.placement.fit_index import FitIndex, fit_index_of
from muster_core.scheduling.placement.fragmentation import TYPICAL, Workload, fragmentation_of
from muster_core.scheduling.placement.free_capacity import FreeCapacity, Want, count, fill
from muster_core.scheduling.placement.snapshot import NodeClass, Snapshot

_UNLIMITED = 1 << 30


class Cost(NamedTuple):
    """The cost of using a node, lower is better: penalty, fragmentation, what is left of it."""

    penalty: int
    fragmentation: int
    slack: int


class NodeSet(NamedTuple):
    """Nodes that are alike to the gang: equal free capacity, and feasible for the rules with these numbers. ``names`` are sorted."""

    capacity: FreeCapacity
    cost: Cost
    names: Sequence[str]
    feasible_for: frozenset[int]


class Candidates:
    """The nodes of ``snapshot`` for replicas of ``requests``; valid until the snapshot changes.

    ``numbers`` identify the rules; ``names`` are the nodes to use, sorted, or None for all. With a ``workload``,
    everything is placed where its fragmentation grows least; without one only GPU shares are, by a typical workload, and
    everything else goes where it is tightest.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        requests: Iterable[ReplicaRequest],
        *,
        workload: Workload | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.requests = tuple(dict.fromkeys(requests))
        self.numbers = {
            rule: number
            for number, rule in enumerate(dict.fromkeys(request.rules for request in self.requests))
        }
        self.workload = workload
        self.names = names

    def within(self, names: Sequence[str]) -> Candidates:
        """Return the same on some of the nodes; ``names`` are sorted."""
        return Candidates(self.snapshot, self.requests, workload=self.workload, names=names)

    def fit_index(self, request: ReplicaRequest) -> FitIndex:
        """Return how many replicas of ``request`` fit on each node of the pool."""
        need = self.snapshot.need(request.demand)

        def measure(capacity: FreeCapacity) -> tuple[int, int]:
            times = count(capacity, need, _UNLIMITED)
            return times, self._fragmentation(capacity, (request,)) if times else 0

        key = ("one", request.demand, request.rules, self.workload)
        return fit_index_of(self.snapshot, key, (request.rules,), measure)

    def joint_fit_index(self, wants: Sequence[tuple[ReplicaRequest, int]]) -> FitIndex:
        """Return the nodes that fit all of these replicas, taken in this order."""
        needs = [Want(self.snapshot.need(request.demand), number) for request, number in wants]
        requests = tuple(request for request, _ in wants)
        rules = tuple(dict.fromkeys(request.rules for request in requests))

        def measure(capacity: FreeCapacity) -> tuple[int, int]:
            if fill(capacity, needs) != [want.limit for want in needs]:
                return 0, 0
            return 1, self._fragmentation(capacity, requests)

        demands = tuple((request.demand, number) for request, number in wants)
        key = ("all", demands, rules, self.workload)
        return fit_index_of(self.snapshot, key, rules, measure)

    @cached_property
    def node_sets(self) -> list[NodeSet]:
        """Return every spot that is feasible for at least one of the rules, in no particular order."""
        node_sets: list[NodeSet] = []
        results = {rule: self.snapshot.filter(rule) for rule in self.numbers}
        split = [rule for rule in self.numbers if rule.uses_labels or results[rule].penalties]
        by_taints = [rule for rule in self.numbers if rule not in split]
        tolerated: dict[tuple[object, ...], frozenset[int]] = {}
        for one, names in self._classes():
            feasible_for = tolerated.get(one.taints)
            if feasible_for is None:
                feasible_for = frozenset(
                    self.numbers[rule]
                    for rule in by_taints
                    if rule.supported and tolerates(rule.tolerations, one.taints)
                )
                tolerated[one.taints] = feasible_for
            if split:
                node_sets.extend(self._split(one, names, feasible_for, split))
            elif feasible_for:
                node_sets.append(NodeSet(one.capacity, self._cost(one, 0), names, feasible_for))
        return node_sets

    def _classes(self) -> Iterable[tuple[NodeClass, Sequence[str]]]:
        if self.names is None:
            return ((one, one.names) for one in self.snapshot.classes)
        members: dict[int, tuple[NodeClass, list[str]]] = {}
        for name in self.names:
            one = self.snapshot.class_of(name)
            if one is not None:
                members.setdefault(id(one), (one, []))[1].append(name)
        return members.values()

    def _split(
        self, one: NodeClass, names: Sequence[str], feasible_for: frozenset[int], rules: Sequence[NodeRules]
    ) -> list[NodeSet]:
        parts: list[tuple[frozenset[int], int, Sequence[str]]] = [(feasible_for, 0, names)]
        for rule in rules:
            also = frozenset((self.numbers[rule],))
            results = self.snapshot.filter(rule)
            parts = [
                (numbers | also if feasible else numbers, penalty + more, some)
                for numbers, penalty, members in parts
                for feasible, more, some in _evaluated(results, members)
            ]
        return [
            NodeSet(one.capacity, self._cost(one, penalty), some, numbers)
            for numbers, penalty, some in parts
            if numbers
        ]

    def _cost(self, one: NodeClass, penalty: int) -> Cost:
        return Cost(penalty, self._fragmentation(one.capacity, self.requests), self.snapshot.slack(one))

    def _fragmentation(self, capacity: FreeCapacity, requests: Iterable[ReplicaRequest]) -> int:
        fragmentation = 0
        for demand in dict.fromkeys(request.demand for request in requests):
            if self.workload is None and not demand.gpu_share:
                continue
            need = self.snapshot.need(demand)
            if count(capacity, need, 1):
                fragmentation += fragmentation_of(self.snapshot, self.workload or TYPICAL).increase(
                    capacity, need
                )
        return fragmentation


def _evaluated(results: FilterResults, names: Sequence[str]) -> Iterable[tuple[bool, int, Sequence[str]]]:
    """Yield the nodes by feasibility and penalty; each part is sorted like ``names``."""
    feasible, penalties = results.feasible, results.penalties
    inside = [name for name in names if name in feasible]
    if len(inside) < len(names):
        yield False, 0, [name for name in names if name not in feasible]
    if not penalties:
        if inside:
            yield True, 0, inside
        return
    by_penalty: dict[int, list[str]] = {}
    for name in inside:
        by_penalty.setdefault(penalties.get(name, 0), []).append(name)
    for penalty, some in by_penalty.items():
        yield True, penalty, some
