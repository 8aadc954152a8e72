"""Placement of replicas that are added to a running job.

They go beside its parameter servers, else beside its other replicas, else on as few nodes as possible. Growth is not all or
nothing: as many start as fit, lowest free index first. The rules of the start hold: a required topology keeps the job in its
domain, a preferred one is left last; a spread job uses the nodes with the fewest of its replicas; inter-replica affinity
applies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence

from muster_core.events import Assignment
from muster_core.models import Job, ReplicaRecord, Role, Strategy
from muster_core.scheduling.placement.affinity_layout import AffinityState
from muster_core.scheduling.placement.candidates import Candidates
from muster_core.scheduling.placement.demand import ReplicaRequest, is_anchor, request_of, without_affinity
from muster_core.scheduling.placement.fit_index import pack_among
from muster_core.scheduling.placement.fragmentation import Workload
from muster_core.scheduling.placement.free_capacity import choose_gpus, fit_count
from muster_core.scheduling.placement.snapshot import Snapshot, allocation_of

_FAR = 3


def place_more(
    job: Job,
    replicas: Iterable[ReplicaRecord],
    role: str,
    target: int,
    snapshot: Snapshot,
    *,
    workload: Workload | None = None,
) -> tuple[Assignment, ...]:
    """Place more replicas of ``role``, up to ``target`` in total, as far as they fit.

    Args:
        job: The running job.
        replicas: All its known replicas. The index of one that runs or is still terminating is not free.
        role: The name of the role; an unknown one gets no replicas.
        target: The size of the role afterwards; at most its maximum.
        snapshot: The pool; it is not changed.
        workload: The typical workload, as in ``place``.
    """
    known = tuple(replicas)
    grown = job.role(role)
    if grown is None:
        return ()
    size = sum(1 for one in known if one.role == role and not one.terminating)
    taken = {one.index for one in known if one.role == role and not (one.terminating and one.ended)}
    free = [index for index in range(grown.max) if index not in taken]
    growth = _Growth(job, grown, known, snapshot, workload)
    mark = snapshot.checkpoint()
    try:
        for index in free[: max(min(target, grown.max) - size, 0)]:
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
        replicas: Sequence[ReplicaRecord],
        snapshot: Snapshot,
        workload: Workload | None,
    ) -> None:
        self.added: list[Assignment] = []
        self._job = job
        self._role = role
        self._alive = [one for one in replicas if not one.ended]
        self._snapshot = snapshot
        self._workload = workload
        self._spread = job.placement.strategy is Strategy.SPREAD

    def add(self, index: int) -> bool:
        """Place one more replica and allocate it; returns whether it fits."""
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
        domain_nodes = self._domain_nodes() if self._job.placement.topology else []
        bound = domain_nodes if domain_nodes and self._job.placement.topology_required else None
        candidates = Candidates(self._snapshot, [request], workload=self._workload, names=bound)
        if request.affinity is not None or self._spread:
            return self._by_rank(request, candidates, frozenset(domain_nodes))
        index = candidates.fit_index(request)
        nearest = [
            (rank, name)
            for name, rank in self._ranks().items()
            if index.times(name) and (bound is None or name in bound)
        ]
        if nearest:
            return min(nearest)[1]
        most = min(self._role.max, index.total)
        some = index.among(domain_nodes)
        chosen = pack_among(some, min(most, sum(fit.times for fit in some)))
        if not chosen and bound is None:
            chosen = index.pack(most)
        return chosen[0][0] if chosen else None

    def _domain_nodes(self) -> list[str]:
        """Return the nodes in the job's topology domains, sorted."""
        label = self._job.placement.topology
        nodes = (self._snapshot.nodes.get(one.node) for one in (*self._alive, *self.added))
        domains = {node.labels[label] for node in nodes if node is not None and label in node.labels}
        return sorted(name for domain in domains for name in self._snapshot.domains(label)[domain])

    def _by_rank(
        self, request: ReplicaRequest, candidates: Candidates, domain_nodes: Container[str]
    ) -> str | None:
        """Return the best single node: the highest preference, then the fewest replicas (spread), then the nearest."""
        need = self._snapshot.need(request.demand)
        nodes = self._snapshot.nodes
        state = AffinityState(self._snapshot, (request,))
        ranks = self._ranks()
        numbers = Counter(one.node for one in (*self._alive, *self.added) if self._spread)
        best = min(
            (
                (
                    -state.preference(request, nodes[name]),
                    numbers[name],
                    ranks.get(name, _FAR),
                    name not in domain_nodes,
                    node_set.cost,
                    name,
                )
                for node_set in candidates.node_sets
                if fit_count(node_set.capacity, need, 1)
                for name in node_set.names
                if state.is_feasible(request, nodes[name])
            ),
            default=None,
        )
        return best and best[-1]

    def _ranks(self) -> dict[str, int]:
        """Return the distance of nodes: 0 beside a parameter server, 1 beside another replica, 2 beside an added one."""
        ranks = {one.node: 2 for one in self.added}
        ranks |= {one.node: 1 for one in self._alive}
        return ranks | {one.node: 0 for one in self._alive if is_anchor(one.role)}
