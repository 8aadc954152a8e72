"""Layouts with inter-replica affinity: replica by replica, counting replicas in the topology domains of the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from muster_core.models import Node
from muster_core.scheduling.placement.affinity import AffinityTerm, ReplicaAffinity, SpreadConstraint
from muster_core.scheduling.placement.candidates import Candidates, Cost
from muster_core.scheduling.placement.demand import ReplicaRequest
from muster_core.scheduling.placement.filters import matches_labels
from muster_core.scheduling.placement.free_capacity import FreeCapacity, count, take
from muster_core.scheduling.placement.layout import Layout, ReplicaGroup
from muster_core.scheduling.placement.snapshot import Snapshot


class AffinityState:
    """The replicas around those of ``requests``; check one with ``admit``, then ``add`` it."""

    def __init__(self, snapshot: Snapshot, requests: Iterable[ReplicaRequest]) -> None:
        self._nodes = snapshot.nodes
        self._requests = tuple(dict.fromkeys(request for request in requests if request.affinity is not None))
        self._affinities = tuple(
            dict.fromkeys(request.affinity for request in self._requests if request.affinity is not None)
        )
        term = [one for affinity in self._affinities for one in _terms_of(affinity)]
        self._counts: dict[AffinityTerm, Counter[str]] = {one: Counter() for one in term}
        self._excluded: dict[ReplicaAffinity, dict[str, set[str]]] = {
            affinity: {} for affinity in self._affinities
        }
        self._eligible: dict[tuple[ReplicaRequest, str], frozenset[str]] = {}
        for allocation in snapshot.allocations.values():
            if allocation.affinity is not None:
                self.add(allocation.affinity, allocation.node)

    def add(self, affinity: ReplicaAffinity, name: str) -> None:
        """Add a replica on node ``name``; on an unknown node it affects nothing."""
        node = self._nodes.get(name)
        if node is None:
            return
        for term, counts in self._counts.items():
            domain = node.labels.get(term.topology)
            if domain is not None and term.matches(affinity):
                counts[domain] += 1
        for anti_affinity_terms in affinity.anti_affinity_terms:
            domain = node.labels.get(anti_affinity_terms.topology)
            for other in self._affinities if domain is not None else ():
                if domain is not None and anti_affinity_terms.matches(other):
                    self._excluded[other].setdefault(anti_affinity_terms.topology, set()).add(domain)

    def feasible_for(self, request: ReplicaRequest, node: Node) -> bool:
        """Return whether a replica of ``request`` may go on ``node``: its own requirements and those of others about it."""
        affinity = request.affinity
        if affinity is None:
            return True
        barred = any(node.labels.get(label) in domains for label, domains in self._excluded[affinity].items())
        return (
            not barred
            and all(self._satisfies_affinity(one, affinity, node) for one in affinity.affinity_terms)
            and not any(self._number(one, node) for one in affinity.anti_affinity_terms)
            and all(
                self._satisfies_spread(one, request, affinity, node) for one in affinity.spread_constraints
            )
        )

    def preference(self, request: ReplicaRequest, node: Node) -> int:
        """Return the preference of a replica of ``request`` for ``node`` because of others."""
        preferred_terms = request.affinity.preferred_terms if request.affinity else ()
        return sum(weight * self._number(one, node) for weight, one in preferred_terms)

    def _number(self, term: AffinityTerm, node: Node) -> int:
        domain = node.labels.get(term.topology)
        return self._counts[term][domain] if domain is not None else 0

    def _satisfies_affinity(self, term: AffinityTerm, affinity: ReplicaAffinity, node: Node) -> bool:
        """The first of replicas that require one another may go anywhere, as in Kubernetes."""
        if term.topology not in node.labels:
            return False
        return self._number(term, node) > 0 or (
            not any(self._counts[term].values()) and term.matches(affinity)
        )

    def _satisfies_spread(
        self, term: SpreadConstraint, request: ReplicaRequest, affinity: ReplicaAffinity, node: Node
    ) -> bool:
        label = term.among.topology
        if label not in node.labels:
            return False
        domains = self._domains(request, label)
        counts = self._counts[term.among]
        fewest = (
            min((counts[domain] for domain in domains), default=0) if len(domains) >= term.min_domains else 0
        )
        return self._number(term.among, node) + int(term.among.matches(affinity)) - fewest <= term.max_skew

    def _domains(self, request: ReplicaRequest, label: str) -> frozenset[str]:
        """Return the domains that count for the spread: those of nodes that pass the replica's selector and affinity."""
        domains = self._eligible.get((request, label))
        if domains is None:
            allowed = (node for node in self._nodes.values() if matches_labels(request.rules, node))
            domains = frozenset(node.labels[label] for node in allowed if label in node.labels)
            self._eligible[request, label] = domains
        return domains


def _terms_of(affinity: ReplicaAffinity) -> Iterable[AffinityTerm]:
    yield from affinity.affinity_terms
    yield from affinity.anti_affinity_terms
    yield from (one.among for one in affinity.spread_constraints)
    yield from (one for _, one in affinity.preferred_terms)


class _NodeState:
    """A node during the search: its remaining capacity, and the replicas of each group on it."""

    __slots__ = ("capacity", "cost", "counts", "feasible_for", "name")

    def __init__(
        self, name: str, capacity: FreeCapacity, cost: Cost, feasible_for: frozenset[int], groups: int
    ) -> None:
        self.name = name
        self.capacity = capacity
        self.cost = cost
        self.feasible_for = feasible_for
        self.counts = [0] * groups


def lay_out_with_affinity(
    groups: Sequence[ReplicaGroup], candidates: Candidates, *, spread: bool
) -> Layout | None:
    """Lay out all of ``groups`` within every affinity rule, or return None."""
    layout = _Search(groups, candidates, spread=spread).layout()
    if layout is not None:
        return layout
    for label in _colocation_labels(groups):
        for _, names in sorted(candidates.snapshot.domains(label).items()):
            bound = (
                names
                if candidates.names is None
                else [name for name in names if name in set(candidates.names)]
            )
            layout = _Search(groups, candidates.within(bound), spread=spread).layout()
            if layout is not None:
                return layout
    return None


def most_with_affinity(groups: Sequence[ReplicaGroup], candidates: Candidates, *, spread: bool) -> int:
    """Return how many of the replicas fit."""
    transaction = _Search(groups, candidates, spread=spread)
    transaction.layout()
    return transaction.placed


class _Search:
    """One attempt to place the groups in turn."""

    def __init__(self, groups: Sequence[ReplicaGroup], candidates: Candidates, *, spread: bool) -> None:
        self._groups = groups
        self._nodes = candidates.snapshot.nodes
        self._spread = spread
        self._affinity_state = AffinityState(candidates.snapshot, (group.request for group in groups))
        self._nodes_left = [
            _NodeState(name, node_set.capacity, node_set.cost, node_set.feasible_for, len(groups))
            for node_set in candidates.node_sets
            for name in node_set.names
        ]
        self._used: dict[str, _NodeState] = {}

    @property
    def placed(self) -> int:
        """Return how many replicas are placed."""
        return sum(sum(state.counts) for state in self._used.values())

    def layout(self) -> Layout | None:
        """Place all replicas, or return that it does not work."""
        for position, group in enumerate(self._groups):
            if not self._place_group(position, group):
                return None
        nodes = tuple((state.name, tuple(state.counts)) for state in self._used.values())
        return Layout(groups=tuple(self._groups), nodes=nodes)

    def _place_group(self, position: int, group: ReplicaGroup) -> bool:
        fresh = [
            state
            for state in self._nodes_left
            if group.rule in state.feasible_for and state.name not in self._used
        ]
        fits = {state.name: count(state.capacity, group.need, group.count) for state in fresh}
        fresh = [state for state in fresh if fits[state.name]]
        if self._spread:
            fresh.sort(key=lambda state: (state.cost, state.name))
        else:
            fresh.sort(key=lambda state: (-fits[state.name], state.cost, state.name))
        for _ in range(group.count):
            state = self._choice(group, fresh)
            if state is None:
                return False
            state.capacity, _ = take(state.capacity, group.need, 1)
            state.counts[position] += 1
            self._used[state.name] = state
            if group.request.affinity is not None:
                self._affinity_state.add(group.request.affinity, state.name)
        return True

    def _choice(self, group: ReplicaGroup, fresh: Sequence[_NodeState]) -> _NodeState | None:
        used = [
            state
            for state in self._used.values()
            if group.rule in state.feasible_for and count(state.capacity, group.need, 1)
        ]
        if self._spread:
            used.sort(key=lambda state: (sum(state.counts), state.cost, state.name))
        ranked = [*fresh, *used] if self._spread else [*used, *fresh]
        allowed = (state for state in ranked if self._admits(group, state) and self._has_room(group, state))
        if group.request.affinity is None or not group.request.affinity.preferred_terms:
            return next(allowed, None)
        return max(
            allowed,
            key=lambda state: self._affinity_state.preference(group.request, self._nodes[state.name]),
            default=None,
        )

    def _has_room(self, group: ReplicaGroup, state: _NodeState) -> bool:
        return count(state.capacity, group.need, 1) > 0

    def _admits(self, group: ReplicaGroup, state: _NodeState) -> bool:
        return self._affinity_state.feasible_for(group.request, self._nodes[state.name])


def _colocation_labels(groups: Sequence[ReplicaGroup]) -> list[str]:
    """Return the labels in whose domains replicas of the gang must be together."""
    affinities = [group.request.affinity for group in groups if group.request.affinity is not None]
    return sorted(
        {
            one.topology
            for affinity in affinities
            for one in affinity.affinity_terms
            if any(one.matches(other) for other in affinities)
        }
    )
