"""Candidate nodes of a gang: the pool's node classes, or some of its nodes, split by feasibility.

A class is split only if a rule uses labels; otherwise its nodes are evaluated as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from muster_core.scheduling.placement.demand import ReplicaRequest
from muster_core.scheduling.placement.filters import FilterResults, tolerates
from muster_core.scheduling.placement.fit_index import FitIndex, fit_index_of
from muster_core.scheduling.placement.fragmentation import TYPICAL, Workload, fragmentation_of
from muster_core.scheduling.placement.free_capacity import FreeCapacity, Want, fit_count, fit_counts
from muster_core.scheduling.placement.snapshot import NodeClass, Snapshot

_UNLIMITED = 1 << 30


class Cost(NamedTuple):
    """The cost of using a node, lower is better: ``slack`` is what is left of the node, in parts of the largest one."""

    penalty: int
    fragmentation: int
    slack: int


class NodeSet(NamedTuple):
    """Nodes with equal free capacity that pass the same rules, by number; ``names`` are sorted."""

    capacity: FreeCapacity
    cost: Cost
    names: Sequence[str]
    feasible_for: frozenset[int]


class Candidates:
    """The nodes of ``snapshot`` for replicas of ``requests``; valid until the snapshot changes.

    ``numbers`` identify the rules; ``names`` are the nodes to use, sorted, or None for all. With a ``workload``, a replica
    goes where that workload's fragmentation increases least. Without one only GPU shares do, by a typical workload, and
    other replicas go to the tightest node.
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
            rules: number for number, rules in enumerate(dict.fromkeys(one.rules for one in self.requests))
        }
        self.workload = workload
        self.names = names

    def within(self, names: Sequence[str]) -> Candidates:
        """Return the candidates among ``names``, which are sorted."""
        if self.names is not None:
            own = frozenset(self.names)
            names = [name for name in names if name in own]
        return Candidates(self.snapshot, self.requests, workload=self.workload, names=names)

    def fit_index(self, request: ReplicaRequest) -> FitIndex:
        """Return how many replicas of ``request`` fit on each node of the pool."""
        need = self.snapshot.need(request.demand)

        def measure(capacity: FreeCapacity) -> tuple[int, int]:
            times = fit_count(capacity, need, _UNLIMITED)
            return times, self._fragmentation(capacity, (request,)) if times else 0

        key = ("one", request.demand, request.rules, self.workload)
        return fit_index_of(self.snapshot, key, (request.rules,), measure)

    def joint_fit_index(self, wanted: Sequence[tuple[ReplicaRequest, int]]) -> FitIndex:
        """Return on which nodes of the pool all of these replicas fit, taken in this order."""
        wants = [Want(self.snapshot.need(request.demand), number) for request, number in wanted]
        requests = tuple(request for request, _ in wanted)
        rules = tuple(dict.fromkeys(request.rules for request in requests))

        def measure(capacity: FreeCapacity) -> tuple[int, int]:
            if fit_counts(capacity, wants) != [want.limit for want in wants]:
                return 0, 0
            return 1, self._fragmentation(capacity, requests)

        demands = tuple((request.demand, number) for request, number in wanted)
        return fit_index_of(self.snapshot, ("all", demands, rules, self.workload), rules, measure)

    @cached_property
    def node_sets(self) -> list[NodeSet]:
        """The nodes that pass at least one of the rules, in no particular order of sets."""
        found: list[NodeSet] = []
        results = {rules: self.snapshot.filter(rules) for rules in self.numbers}
        split = [rules for rules in self.numbers if rules.uses_labels or results[rules].penalties]
        by_taints = [rules for rules in self.numbers if rules not in split]
        tolerated: dict[tuple[object, ...], frozenset[int]] = {}
        for one, names in self._classes():
            numbers = tolerated.get(one.taints)
            if numbers is None:
                numbers = tolerated[one.taints] = frozenset(
                    self.numbers[rules]
                    for rules in by_taints
                    if rules.supported and tolerates(rules.tolerations, one.taints)
                )
            parts: list[tuple[frozenset[int], int, Sequence[str]]] = [(numbers, 0, names)]
            for rules in split:
                also = frozenset((self.numbers[rules],))
                parts = [
                    (passed | also if feasible else passed, penalty + more, some)
                    for passed, penalty, members in parts
                    for feasible, more, some in _split(results[rules], members)
                ]
            found += [
                NodeSet(one.capacity, self._cost(one, penalty), some, passed)
                for passed, penalty, some in parts
                if passed
            ]
        return found

    def _classes(self) -> Iterable[tuple[NodeClass, Sequence[str]]]:
        if self.names is None:
            return ((one, one.names) for one in self.snapshot.classes)
        members: dict[int, tuple[NodeClass, list[str]]] = {}
        for name in self.names:
            one = self.snapshot.class_of(name)
            if one is not None:
                members.setdefault(id(one), (one, []))[1].append(name)
        return members.values()

    def _cost(self, one: NodeClass, penalty: int) -> Cost:
        return Cost(penalty, self._fragmentation(one.capacity, self.requests), self.snapshot.slack(one))

    def _fragmentation(self, capacity: FreeCapacity, requests: Iterable[ReplicaRequest]) -> int:
        """Return the increase by one replica of each demand that fits."""
        increase = 0
        for demand in dict.fromkeys(request.demand for request in requests):
            if self.workload is None and not demand.gpu_share:
                continue
            need = self.snapshot.need(demand)
            if fit_count(capacity, need, 1):
                index = fragmentation_of(self.snapshot, self.workload or TYPICAL)
                increase += index.increase(capacity, need)
        return increase


def _split(results: FilterResults, names: Sequence[str]) -> Iterable[tuple[bool, int, Sequence[str]]]:
    """Yield the nodes by feasibility and penalty; each part is sorted like ``names``."""
    passed, penalties = results.feasible, results.penalties
    feasible = [name for name in names if name in passed]
    if len(feasible) < len(names):
        yield False, 0, [name for name in names if name not in passed]
    if not penalties and feasible:
        yield True, 0, feasible
    elif feasible:
        by_penalty: dict[int, list[str]] = {}
        for name in feasible:
            by_penalty.setdefault(penalties.get(name, 0), []).append(name)
        for penalty, some in by_penalty.items():
            yield True, penalty, some
