"""The gang of a job, and its placement: all of it or nothing.

Preferences in order: the most replicas that fit, between the minimum and all; then a single node, by best fit; else the
fewest nodes, with parameter servers where most workers are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from muster_core.events import Assignment
from muster_core.models import Job, PlacementPolicy, Role
from muster_core.scheduling.placement.candidates import Candidates
from muster_core.scheduling.placement.demand import (
    ReplicaRequest,
    is_anchor,
    is_pinned,
    request_of,
    without_affinity,
)
from muster_core.scheduling.placement.fragmentation import Workload
from muster_core.scheduling.placement.free_capacity import FreeCapacity, take
from muster_core.scheduling.placement.layout import Layout, ReplicaGroup
from muster_core.scheduling.placement.shortfall import Shortfall, shortfall_of
from muster_core.scheduling.placement.snapshot import Snapshot
from muster_core.scheduling.placement.topology import find_layout


class GangRole(msgspec.Struct, frozen=True, kw_only=True):
    """One role: it starts with ``min`` to ``replicas`` replicas, with indices from 0. ``overrides`` are the requests of single
    indices.
    """

    name: str
    min: int
    replicas: int
    request: ReplicaRequest
    overrides: tuple[tuple[int, ReplicaRequest], ...] = ()

    @property
    def requests(self) -> tuple[ReplicaRequest, ...]:
        """The request of the role and those of single indices."""
        return (self.request, *(request for _, request in self.overrides))


class Gang(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """The replicas that start together; equal gangs of different jobs are interchangeable.

    ``min_available`` is the least number of replicas in total, besides the minima of the roles.
    """

    roles: tuple[GangRole, ...]
    min_available: int = 0
    policy: PlacementPolicy = PlacementPolicy()

    @property
    def full(self) -> int:
        """The requested number of replicas."""
        return sum(role.replicas for role in self.roles)

    @property
    def minimum(self) -> int:
        """The least number of replicas that starts."""
        return min(max(sum(role.min for role in self.roles), self.min_available), self.full)


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The replicas with their nodes, by role in the job's order, then by index; on ``nodes`` nodes, of ``full`` requested."""

    replicas: tuple[Assignment, ...]
    nodes: int
    full: int


def gang_of(job: Job) -> Gang:
    """Return the gang of ``job``; without affinity if no replica has a rule about others."""
    roles = [_gang_role(role, job) for role in job.roles if role.replicas > 0]
    affinities = (request.affinity for role in roles for request in role.requests)
    if not any(affinity is not None and affinity.has_rules for affinity in affinities):
        roles = [_without_affinity(role) for role in roles]
    return Gang(roles=tuple(roles), min_available=job.min_available or 0, policy=job.placement)


def place(
    gang: Gang, snapshot: Snapshot, *, feasible: bool | None = None, workload: Workload | None = None
) -> Placement | Shortfall:
    """Place the whole gang; ``snapshot`` is not changed.

    Args:
        gang: What to place.
        snapshot: The pool.
        feasible: Whether the empty pool could hold the gang's minimum; computed on demand if None.
        workload: The typical workload (``workload_of`` the running and waiting demands), so that the remaining GPUs stay
            useful for it; without one this applies to GPU shares only.
    """
    candidates = _candidates(gang, snapshot, workload)
    layout = _largest(gang, candidates)
    if layout is not None:
        return _placement(gang, layout, candidates)
    if feasible is None:
        feasible = feasible_when_empty(gang, snapshot)
    groups = _groups(gang, gang.minimum, candidates)
    fits_now = _fits_now(gang, candidates)
    return shortfall_of(groups, candidates, gang.policy, feasible=feasible, fits_now=fits_now)


def find_placement(gang: Gang, snapshot: Snapshot) -> Placement | None:
    """Return the placement like ``place``, or None without a diagnosis, which is cheaper."""
    candidates = _candidates(gang, snapshot)
    layout = _largest(gang, candidates)
    return None if layout is None else _placement(gang, layout, candidates)


def may_fit(gang: Gang, snapshot: Snapshot) -> bool:
    """Return whether some node has enough of each single resource for a replica of each role; False is definite.

    Nearly free while the snapshot is unchanged.
    """
    largest = snapshot.largest_free()
    return all(largest.may_fit(snapshot.need(request.demand)) for request in _minimum_requests(gang))


def feasible_when_empty(gang: Gang, snapshot: Snapshot) -> bool:
    """Return whether the pool without Muster's allocations could hold the gang's minimum."""
    return _layout(gang, gang.minimum, _candidates(gang, snapshot.without_allocations())) is not None


def _gang_role(role: Role, job: Job) -> GangRole:
    usual = request_of(role.template, job.placement, job.namespace)
    overrides = (
        (index, request_of(template, job.placement, job.namespace))
        for index, template in sorted(role.overrides.items())
        if index < role.replicas
    )
    return GangRole(
        name=role.name,
        min=min(role.min, role.replicas),
        replicas=role.replicas,
        request=usual,
        overrides=tuple((index, request) for index, request in overrides if request != usual),
    )


def _without_affinity(role: GangRole) -> GangRole:
    usual = without_affinity(role.request)
    overrides = ((index, without_affinity(request)) for index, request in role.overrides)
    different = tuple((index, request) for index, request in overrides if request != usual)
    return msgspec.structs.replace(role, request=usual, overrides=different)


def _minimum_requests(gang: Gang) -> Iterator[ReplicaRequest]:
    """Yield the requests of the replicas that start in any case."""
    for role in gang.roles:
        if role.min:
            overrides = dict(role.overrides)
            for index in range(role.min) if overrides else (0,):
                yield overrides.get(index, role.request)


def _candidates(gang: Gang, snapshot: Snapshot, workload: Workload | None = None) -> Candidates:
    requests = (request for role in gang.roles for request in role.requests)
    return Candidates(snapshot, requests, workload=workload)


def _layout(gang: Gang, size: int, candidates: Candidates) -> Layout | None:
    return find_layout(_groups(gang, size, candidates), candidates, gang.policy)


def _largest(gang: Gang, candidates: Candidates) -> Layout | None:
    """Return the layout of the largest size that fits: everything, else by bisection between minimum and everything."""
    layout = _layout(gang, gang.full, candidates)
    if layout is not None or gang.minimum == gang.full:
        return layout
    best = _layout(gang, gang.minimum, candidates)
    return best and _largest_above(gang, candidates, best)


def _largest_above(gang: Gang, candidates: Candidates, best: Layout) -> Layout:
    """Return the layout of the largest size from the minimum, whose layout is ``best``, to below everything."""
    fits, fails = gang.minimum, gang.full
    while fails - fits > 1:
        size = (fits + fails) // 2
        layout = _layout(gang, size, candidates)
        if layout is None:
            fails = size
        else:
            fits, best = size, layout
    return best


def _fits_now(gang: Gang, candidates: Candidates) -> int:
    """Return the largest number of replicas that would start if the minimum, which does not fit, were lower; 0 if none."""
    roles = [
        role if is_pinned(role.name) else msgspec.structs.replace(role, min=min(role.min, 1))
        for role in gang.roles
    ]
    lowered = Gang(roles=tuple(roles), policy=gang.policy)
    if lowered.minimum >= gang.minimum:
        return 0
    smallest = _layout(lowered, lowered.minimum, candidates)
    if smallest is None:
        return 0
    sizes = _sizes(gang, gang.minimum)
    reduced = tuple(
        msgspec.structs.replace(role, replicas=size) for role, size in zip(roles, sizes, strict=True)
    )
    best = _largest_above(Gang(roles=reduced, policy=gang.policy), candidates, smallest)
    return sum(sum(counts) for _, counts in best.nodes)


def _sizes(gang: Gang, size: int) -> list[int]:
    """Return the roles' sizes at ``size`` replicas in total.

    The role furthest above its minimum shrinks first; of equals the later one.
    """
    sizes = [role.replicas for role in gang.roles]
    surplus = sum(sizes) - size
    while surplus > 0:
        spare = [sizes[i] - role.min for i, role in enumerate(gang.roles)]
        most = max(spare)
        largest = max(i for i, one in enumerate(spare) if one == most)
        others = max((one for i, one in enumerate(spare) if i != largest), default=0)
        step = max(1, min(surplus, most - others))
        sizes[largest] -= step
        surplus -= step
    return sizes


def _groups(gang: Gang, size: int, candidates: Candidates) -> list[ReplicaGroup]:
    """Return the replicas at ``size`` by role and request, parameter servers first."""
    groups = [
        ReplicaGroup(
            role=role.name,
            indices=indices,
            request=request,
            need=candidates.snapshot.need(request.demand),
            rule=candidates.numbers[request.rules],
            anchor=is_anchor(role.name),
        )
        for role, number in zip(gang.roles, _sizes(gang, size), strict=True)
        for request, indices in _by_request(role, number)
    ]
    return sorted(groups, key=lambda group: not group.anchor)


def _by_request(role: GangRole, number: int) -> Iterable[tuple[ReplicaRequest, Sequence[int]]]:
    """Return the first ``number`` indices of ``role`` by request, in order of first appearance."""
    if not role.overrides:
        return ((role.request, range(number)),) if number else ()
    overrides = dict(role.overrides)
    by_slot: dict[ReplicaRequest, list[int]] = {}
    for index in range(number):
        by_slot.setdefault(overrides.get(index, role.request), []).append(index)
    return by_slot.items()


def _placement(gang: Gang, layout: Layout, candidates: Candidates) -> Placement:
    nodes: list[list[str]] = [[] for _ in layout.groups]
    gpus: list[list[tuple[int, ...]]] = [[] for _ in layout.groups]
    known: dict[tuple[FreeCapacity, tuple[int, ...]], list[list[tuple[int, ...]]]] = {}
    for node, counts in layout.nodes:
        key = (candidates.snapshot.free_capacity(node), counts)
        chosen = known.get(key)
        if chosen is None:
            chosen = known[key] = _gpus(layout.groups, *key)
        for position, number in enumerate(counts):
            if number:
                nodes[position] += [node] * number
                gpus[position] += chosen[position]
    assignments: list[Assignment] = []
    for position, group in enumerate(layout.groups):
        role = group.role
        assignments += [
            Assignment(role=role, index=index, node=node, gpus=chosen)
            for index, node, chosen in zip(group.indices, nodes[position], gpus[position], strict=True)
        ]
    if len(layout.groups) > 1:
        rank = {role.name: position for position, role in enumerate(gang.roles)}
        assignments.sort(key=lambda one: (rank[one.role], one.index))
    return Placement(replicas=tuple(assignments), nodes=len(layout.nodes), full=gang.full)


def _gpus(
    groups: Sequence[ReplicaGroup], capacity: FreeCapacity, counts: Sequence[int]
) -> list[list[tuple[int, ...]]]:
    """Return the GPUs of every replica of each group on a node with this capacity."""
    gpus: list[list[tuple[int, ...]]] = []
    for group, number in zip(groups, counts, strict=True):
        capacity, chosen = take(capacity, group.need, number)
        gpus.append(chosen)
    return gpus
