"""Layouts with inter-replica affinity: replica by replica, counting replicas in the topology domains of the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from muster_core.models import Node
from muster_core.scheduling.placement.affinity import AffinityTerm, ReplicaAffinity, SpreadConstraint
from muster_core.scheduling.placement.candidates import Candidates, NodeSet
from muster_core.scheduling.placement.demand import ReplicaRequest
from muster_core.scheduling.placement.filters import matches_labels
from muster_core.scheduling.placement.free_capacity import fit_count, take
from muster_core.scheduling.placement.layout import Layout, ReplicaGroup
from muster_core.scheduling.placement.snapshot import Snapshot


class AffinityState:
    """The replicas that count for the affinity of ``requests``: those of ``snapshot`` and those added."""

    def __init__(self, snapshot: Snapshot, requests: Iterable[ReplicaRequest]) -> None:
        self._nodes = snapshot.nodes
        affinities = dict.fromkeys(one.affinity for one in requests if one.affinity is not None)
        self._counts: dict[AffinityTerm, Counter[str]] = {
            term: Counter() for one in affinities for term in one.terms
        }
        self._excluded: dict[ReplicaAffinity, dict[str, set[str]]] = {one: {} for one in affinities}
        self._eligible: dict[tuple[ReplicaRequest, str], frozenset[str]] = {}
        for allocation in snapshot.allocations.values() if affinities else ():
            if allocation.affinity is not None:
                self.add(allocation.affinity, allocation.node)

    def add(self, replica: ReplicaAffinity, name: str) -> None:
        """Add a replica on node ``name``; a replica on an unknown node does not count."""
        node = self._nodes.get(name)
        if node is None:
            return
        for term, counts in self._counts.items():
            domain = node.labels.get(term.topology)
            if domain is not None and term.matches(replica):
                counts[domain] += 1
        for term in replica.anti_affinity_terms:
            domain = node.labels.get(term.topology)
            for other, excluded in self._excluded.items():
                if domain is not None and term.matches(other):
                    excluded.setdefault(term.topology, set()).add(domain)

    def is_feasible(self, request: ReplicaRequest, node: Node) -> bool:
        """Return whether ``node`` satisfies the rules of a replica of ``request`` and those of others about it."""
        affinity = request.affinity
        if affinity is None:
            return True
        return (
            not any(node.labels.get(label) in names for label, names in self._excluded[affinity].items())
            and all(self._satisfies_affinity(term, affinity, node) for term in affinity.affinity_terms)
            and not any(self._count(term, node) for term in affinity.anti_affinity_terms)
            and all(
                self._satisfies_spread(one, request, affinity, node) for one in affinity.spread_constraints
            )
        )

    def preference(self, request: ReplicaRequest, node: Node) -> int:
        """Return the score of ``node`` by the preferred terms of ``request``; higher is better."""
        terms = request.affinity.preferred_terms if request.affinity else ()
        return sum(weight * self._count(term, node) for weight, term in terms)

    def _count(self, term: AffinityTerm, node: Node) -> int:
        domain = node.labels.get(term.topology)
        return self._counts[term][domain] if domain is not None else 0

    def _satisfies_affinity(self, term: AffinityTerm, affinity: ReplicaAffinity, node: Node) -> bool:
        """The first of replicas that require one another may go to any domain, as in Kubernetes."""
        if term.topology not in node.labels:
            return False
        return self._count(term, node) > 0 or (
            not any(self._counts[term].values()) and term.matches(affinity)
        )

    def _satisfies_spread(
        self, spread: SpreadConstraint, request: ReplicaRequest, affinity: ReplicaAffinity, node: Node
    ) -> bool:
        term = spread.term
        if term.topology not in node.labels:
            return False
        domains = self._eligible_domains(request, term.topology)
        counts = (self._counts[term][domain] for domain in domains)
        fewest = min(counts, default=0) if len(domains) >= spread.min_domains else 0
        return self._count(term, node) + int(term.matches(affinity)) - fewest <= spread.max_skew

    def _eligible_domains(self, request: ReplicaRequest, label: str) -> frozenset[str]:
        """Return the domains of the nodes that pass the replica's selector and node affinity."""
        domains = self._eligible.get((request, label))
        if domains is None:
            nodes = (node for node in self._nodes.values() if matches_labels(request.rules, node))
            domains = frozenset(node.labels[label] for node in nodes if label in node.labels)
            self._eligible[request, label] = domains
        return domains


def lay_out_with_affinity(
    groups: Sequence[ReplicaGroup], candidates: Candidates, *, spread: bool
) -> Layout | None:
    """Return a layout of all of ``groups`` that satisfies every affinity rule, or None if the search finds none.

    If the whole pool has none, each domain in which replicas of the gang must be together is tried.
    """
    layout = _Search(groups, candidates, spread=spread).layout()
    if layout is not None:
        return layout
    for label in _colocation_labels(groups):
        for _, names in sorted(candidates.snapshot.domains(label).items()):
            layout = _Search(groups, candidates.within(names), spread=spread).layout()
            if layout is not None:
                return layout
    return None


def most_with_affinity(groups: Sequence[ReplicaGroup], candidates: Candidates, *, spread: bool) -> int:
    """Return how many of the replicas the search places."""
    search = _Search(groups, candidates, spread=spread)
    search.layout()
    return search.placed


class _NodeState:
    """A node during the search: its remaining capacity, and how many replicas of each group it has."""

    __slots__ = ("capacity", "cost", "counts", "name", "rules")

    def __init__(self, name: str, nodes: NodeSet, groups: int) -> None:
        self.name = name
        self.capacity = nodes.capacity
        self.cost = nodes.cost
        self.rules = nodes.feasible_for
        self.counts = [0] * groups


class _Search:
    """One attempt to place the groups in turn, replica by replica."""

    def __init__(self, groups: Sequence[ReplicaGroup], candidates: Candidates, *, spread: bool) -> None:
        self._groups = groups
        self._nodes = candidates.snapshot.nodes
        self._spread = spread
        self._affinity = AffinityState(candidates.snapshot, (group.request for group in groups))
        self._states = [
            _NodeState(name, nodes, len(groups)) for nodes in candidates.node_sets for name in nodes.names
        ]
        self._used: dict[str, _NodeState] = {}

    @property
    def placed(self) -> int:
        """How many replicas are placed."""
        return sum(sum(state.counts) for state in self._used.values())

    def layout(self) -> Layout | None:
        """Place all replicas; returns None if one has no node."""
        if not all(self._place_group(position, group) for position, group in enumerate(self._groups)):
            return None
        nodes = tuple((state.name, tuple(state.counts)) for state in self._used.values())
        return Layout(groups=tuple(self._groups), nodes=nodes)

    def _place_group(self, position: int, group: ReplicaGroup) -> bool:
        unused = [one for one in self._states if group.rule in one.rules and one.name not in self._used]
        fits = {one.name: fit_count(one.capacity, group.need, group.count) for one in unused}
        unused = [one for one in unused if fits[one.name]]
        unused.sort(key=lambda one: (0 if self._spread else -fits[one.name], one.cost, one.name))
        for _ in range(group.count):
            state = self._choice(group, unused)
            if state is None:
                return False
            state.capacity, _ = take(state.capacity, group.need, 1)
            state.counts[position] += 1
            self._used[state.name] = state
            if group.request.affinity is not None:
                self._affinity.add(group.request.affinity, state.name)
        return True

    def _choice(self, group: ReplicaGroup, unused: Sequence[_NodeState]) -> _NodeState | None:
        request = group.request
        used = [one for one in self._used.values() if group.rule in one.rules]
        if self._spread:
            used.sort(key=lambda one: (sum(one.counts), one.cost, one.name))
        feasible = (
            one
            for one in ((*unused, *used) if self._spread else (*used, *unused))
            if fit_count(one.capacity, group.need, 1)
            and self._affinity.is_feasible(request, self._nodes[one.name])
        )
        if request.affinity is None or not request.affinity.preferred_terms:
            return next(feasible, None)
        return max(
            feasible, key=lambda one: self._affinity.preference(request, self._nodes[one.name]), default=None
        )


def _colocation_labels(groups: Sequence[ReplicaGroup]) -> list[str]:
    """Return the labels in whose domains replicas of the gang must be together."""
    affinities = [group.request.affinity for group in groups if group.request.affinity is not None]
    terms = (term for affinity in affinities for term in affinity.affinity_terms)
    return sorted({term.topology for term in terms if any(term.matches(other) for other in affinities)})
