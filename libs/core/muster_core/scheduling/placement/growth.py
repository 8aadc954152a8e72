"""Placement of added replicas of a running job: beside its parameter servers, else beside other members, else on as few
nodes as possible.

Growth is not all or nothing: as many start as fit, lowest free index first. The rules of the start hold: a required
topology keeps the job in its domain, a preferred one is left last; a spread job uses the nodes with the fewest of its
members; inter-replica affinity applies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from muster_core.events import Assignment
from muster_core.models import Job, ReplicaRecord, Role, Strategy
from muster_core.scheduling.placement.affinity_layout import AffinityState
from muster_core.scheduling.placement.candidates import Candidates, Cost, NodeSet
from muster_core.scheduling.placement.demand import ReplicaRequest, is_anchor, request_of, without_affinity
from muster_core.scheduling.placement.fit_index import FitIndex, pack_among
from muster_core.scheduling.placement.fragmentation import Workload
from muster_core.scheduling.placement.free_capacity import choose_gpus, fit_count
from muster_core.scheduling.placement.snapshot import Snapshot, allocation_of

_NO_COST = Cost(0, 0, 0)
_FAR = 3


def place_more(
    job: Job,
    members: Iterable[ReplicaRecord],
    role: str,
    target: int,
    snapshot: Snapshot,
    *,
    workload: Workload | None = None,
) -> tuple[Assignment, ...]:
    """Place ``role`` up to ``target`` members, as far as it fits; ``snapshot`` is not changed.

    ``members`` are all known replicas of the job: an index is free if no replica with it is a member or still
    terminating. Indices stay below the role's maximum. ``workload`` is the typical workload, as in ``place``.
    """
    known = tuple(members)
    grown = job.role(role)
    if grown is None:
        return ()
    size = sum(1 for one in known if one.role == role and not one.terminating)
    taken = {one.index for one in known if one.role == role and not (one.terminating and one.ended)}
    indices = [index for index in range(grown.max) if index not in taken][
        : max(min(target, grown.max) - size, 0)
    ]
    growth = _Growth(job, grown, known, snapshot, workload)
    mark = snapshot.checkpoint()
    try:
        for index in indices:
            if not growth.add(index):
                break
    finally:
        snapshot.rollback(mark)
    return tuple(growth.added)


class _Growth:
    """Replicas added one by one, each on the capacity that the previous ones left."""

    def __init__(
        self,
        job: Job,
        role: Role,
        members: Sequence[ReplicaRecord],
        snapshot: Snapshot,
        workload: Workload | None,
    ) -> None:
        self.added: list[Assignment] = []
        self._job = job
        self._role = role
        self._alive = [one for one in members if not one.ended]
        self._snapshot = snapshot
        self._workload = workload

    def add(self, index: int) -> bool:
        """Place one more and allocate it; returns whether it fits."""
        request = request_of(self._role.template_of(index), self._job.placement, self._job.namespace)
        has_rules = request.affinity is not None and request.affinity.has_rules
        node = self._node(request if has_rules else without_affinity(request))
        if node is None:
            return False
        gpus = choose_gpus(self._snapshot.free_capacity(node), self._snapshot.need(request.demand))
        allocation = allocation_of(self._job, self._role.name, index, node, gpus)
        self._snapshot.allocate(("", len(self.added), self._role.name, index), allocation)
        self.added.append(Assignment(role=self._role.name, index=index, node=node, gpus=gpus))
        return True

    def _node(self, request: ReplicaRequest) -> str | None:
        """Return the node that takes the replica, or None."""
        domain_nodes = self._job_domain() if self._job.placement.topology else []
        bound = domain_nodes if domain_nodes and self._job.placement.topology_required else None
        candidates = Candidates(self._snapshot, [request], workload=self._workload, names=bound)
        if request.affinity is not None or self._job.placement.strategy is Strategy.SPREAD:
            return self._by_rank(request, candidates)
        fits = candidates.fit_index(request)
        nearest = [(rank, name) for name, rank in self._ranks().items() if fits.times(name)]
        nearest = [one for one in nearest if bound is None or one[1] in bound]
        if nearest:
            return min(nearest)[1]
        most = min(self._role.max, fits.total)
        for chosen in (_first_among(fits, domain_nodes, most), fits.pack(most) if bound is None else None):
            if chosen:
                return chosen[0][0]
        return None

    def _job_domain(self) -> list[str]:
        """Return the nodes in the job's topology domains, sorted."""
        label = self._job.placement.topology
        nodes = self._snapshot.nodes
        standing = (nodes.get(one.node) for one in (*self._alive, *self.added))
        domains = {node.labels[label] for node in standing if node is not None and label in node.labels}
        return sorted(name for domain in domains for name in self._snapshot.domains(label)[domain])

    def _allowed(self, request: ReplicaRequest, node_sets: Iterable[NodeSet]) -> list[NodeSet]:
        """Return one spot for each node that satisfies the affinity; the most preferred ones."""
        state = AffinityState(self._snapshot, (request,))
        nodes = self._snapshot.nodes
        allowed = [
            node_set._replace(names=[name])
            for node_set in node_sets
            for name in node_set.names
            if state.is_feasible(request, nodes[name])
        ]
        preferred_terms = {
            node_set.names[0]: state.preference(request, nodes[node_set.names[0]]) for node_set in allowed
        }
        most = max(preferred_terms.values(), default=0)
        return [node_set for node_set in allowed if preferred_terms[node_set.names[0]] == most]

    def _by_rank(self, request: ReplicaRequest, candidates: Candidates) -> str | None:
        """For spread jobs and inter-replica affinity: node by node, fewest members or nearest first."""
        need = self._snapshot.need(request.demand)
        node_sets = [node_set for node_set in candidates.node_sets if fit_count(node_set.capacity, need, 1)]
        ranks = self._ranks()
        numbers = Counter(one.node for one in (*self._alive, *self.added))
        domain_nodes = frozenset(self._job_domain() if self._job.placement.topology else ())
        spread = self._job.placement.strategy is Strategy.SPREAD
        return min(
            (
                (
                    numbers[name] if spread else 0,
                    ranks.get(name, _FAR),
                    name not in domain_nodes,
                    node_set.cost,
                    name,
                )
                for node_set in (node_sets if request.affinity is None else self._allowed(request, node_sets))
                for name in node_set.names
            ),
            default=(0, 0, False, _NO_COST, None),
        )[-1]

    def _ranks(self) -> dict[str, int]:
        """Return preferred nodes, nearest first: 0 beside an anchor, 1 beside another member, 2 beside an added one."""
        ranks = {one.node: 2 for one in self.added}
        ranks |= {one.node: 1 for one in self._alive}
        return ranks | {one.node: 0 for one in self._alive if is_anchor(one.role)}


def _first_among(fits: FitIndex, names: Sequence[str], most: int) -> list[tuple[str, int]] | None:
    """Return the nodes of ``names`` for as many as fit there, at most ``most``."""
    some = fits.among(names)
    return pack_among(some, min(most, sum(fit.times for fit in some)))
