"""A gang as placement sees it, and its placement: all at once, or not at all.

Preferences in order: the largest size between minimum and replicas that fits; then one node for all of it, the tightest;
else the fewest nodes, with parameter servers where most workers are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from muster_core.events import Assignment
from muster_core.models import Job, PlacementPolicy, Role
from muster_core.scheduling.placement.candidates import Field
from muster_core.scheduling.placement.demand import Slot, is_anchor, is_pinned, slot_of, without_peer
from muster_core.scheduling.placement.fragmentation import Workload
from muster_core.scheduling.placement.free_capacity import Room, take
from muster_core.scheduling.placement.layout import Group, Layout
from muster_core.scheduling.placement.shortfall import Shortfall, shortfall_of
from muster_core.scheduling.placement.snapshot import Snapshot
from muster_core.scheduling.placement.topology import arrange


class GangRole(msgspec.Struct, frozen=True, kw_only=True):
    """One role: it starts with ``min`` to ``replicas`` replicas, with indices from 0. ``overrides`` are the slots of single indices."""

    name: str
    min: int
    replicas: int
    slot: Slot
    overrides: tuple[tuple[int, Slot], ...] = ()


class Gang(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """The replicas that start together. Hashable: equal gangs of different jobs are interchangeable.

    ``min_available`` is the least number of replicas in total, besides the roles' minima. ``policy`` is the placement
    policy.
    """

    roles: tuple[GangRole, ...]
    min_available: int = 0
    policy: PlacementPolicy = PlacementPolicy()

    @property
    def full(self) -> int:
        """The requested number of replicas."""
        return sum(role.replicas for role in self.roles)

    @property
    def floor(self) -> int:
        """The least number of replicas that starts."""
        return min(max(sum(role.min for role in self.roles), self.min_available), self.full)


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where every replica goes, by role in the job's order, then by index; on ``nodes`` nodes, of ``full`` requested replicas."""

    replicas: tuple[Assignment, ...]
    nodes: int
    full: int


def gang_of(job: Job) -> Gang:
    """Return the gang of ``job``."""
    roles = [_gang_role(role, job) for role in job.roles if role.replicas > 0]
    if not any(slot.peer is not None and slot.peer.asks for role in roles for slot in _slots_of(role)):
        roles = [_without_peers(role) for role in roles]
    return Gang(roles=tuple(roles), min_available=job.min_available or 0, policy=job.placement)


def place(
    gang: Gang, snapshot: Snapshot, *, feasible: bool | None = None, workload: Workload | None = None
) -> Placement | Shortfall:
    """Place the whole gang; ``snapshot`` is not changed.

    ``feasible`` is whether the empty pool could hold the gang's minimum, if known; otherwise it is computed when the gang
    does not fit. ``workload`` is the typical workload (``workload_of`` running and waiting demands), so that remaining
    GPUs stay useful; without one only GPU shares are placed so.
    """
    field = Field(snapshot, _slots(gang), workload=workload)
    layout = _largest(gang, field)
    if layout is not None:
        return _placement(gang, layout, field)
    if feasible is None:
        feasible = feasible_when_empty(gang, snapshot)
    groups = _groups(gang, gang.floor, field)
    return shortfall_of(groups, field, gang.policy, feasible=feasible, fits_now=_fits_now(gang, field))


def find_room(gang: Gang, snapshot: Snapshot) -> Placement | None:
    """Return the placement like ``place``, or None without a diagnosis, which is cheaper."""
    field = Field(snapshot, _slots(gang))
    layout = _largest(gang, field)
    return None if layout is None else _placement(gang, layout, field)


def has_chance(gang: Gang, snapshot: Snapshot) -> bool:
    """Return whether some node has enough of each single resource for a replica of each role; if not, the gang does not
    fit.

    Nearly free while the snapshot is unchanged.
    """
    reach = snapshot.reach()
    return all(reach.covers(snapshot.need(slot.demand)) for slot in _least_slots(gang))


def feasible_when_empty(gang: Gang, snapshot: Snapshot) -> bool:
    """Return whether the pool without Muster's allocations could hold the gang's minimum."""
    field = Field(snapshot.emptied(), _slots(gang))
    return arrange(_groups(gang, gang.floor, field), field, gang.policy) is not None


def _gang_role(role: Role, job: Job) -> GangRole:
    usual = slot_of(role.template, job.placement, job.namespace)
    overrides = (
        (index, slot_of(template, job.placement, job.namespace))
        for index, template in sorted(role.overrides.items())
    )
    return GangRole(
        name=role.name,
        min=min(role.min, role.replicas),
        replicas=role.replicas,
        slot=usual,
        overrides=tuple((i, slot) for i, slot in overrides if i < role.replicas and slot != usual),
    )


def _without_peers(role: GangRole) -> GangRole:
    usual = without_peer(role.slot)
    overrides = ((index, without_peer(slot)) for index, slot in role.overrides)
    different = tuple((index, slot) for index, slot in overrides if slot != usual)
    return msgspec.structs.replace(role, slot=usual, overrides=different)


def _slots(gang: Gang) -> Iterator[Slot]:
    for role in gang.roles:
        yield from _slots_of(role)


def _slots_of(role: GangRole) -> Iterator[Slot]:
    yield role.slot
    for _, slot in role.overrides:
        yield slot


def _least_slots(gang: Gang) -> Iterator[Slot]:
    """Yield the slots of the replicas that start in any case."""
    for role in gang.roles:
        if role.min:
            overrides = dict(role.overrides)
            for index in range(role.min) if overrides else (0,):
                yield overrides.get(index, role.slot)


def _largest(gang: Gang, field: Field) -> Layout | None:
    """Return the layout of the largest size that fits: everything, else by bisection between minimum and everything."""
    layout = arrange(_groups(gang, gang.full, field), field, gang.policy)
    if layout is not None or gang.floor == gang.full:
        return layout
    best = arrange(_groups(gang, gang.floor, field), field, gang.policy)
    return best and _largest_above(gang, field, best)


def _largest_above(gang: Gang, field: Field, best: Layout) -> Layout:
    """Return the layout of the largest size from the minimum, whose layout is ``best``, to below everything."""
    fits, fails = gang.floor, gang.full
    while fails - fits > 1:
        size = (fits + fails) // 2
        layout = arrange(_groups(gang, size, field), field, gang.policy)
        if layout is None:
            fails = size
        else:
            fits, best = size, layout
    return best


def _fits_now(gang: Gang, field: Field) -> int:
    """Return the largest number of replicas that would start if the minimum, which does not fit, were lower; 0 if none."""
    roles = (
        role if is_pinned(role.name) else msgspec.structs.replace(role, min=min(role.min, 1))
        for role in gang.roles
    )
    lowered = Gang(roles=tuple(roles), policy=gang.policy)
    if lowered.floor >= gang.floor:
        return 0
    smallest = arrange(_groups(lowered, lowered.floor, field), field, gang.policy)
    if smallest is None:
        return 0
    sizes = _sizes(gang, gang.floor)
    reduced = (
        msgspec.structs.replace(role, replicas=size) for role, size in zip(lowered.roles, sizes, strict=True)
    )
    best = _largest_above(msgspec.structs.replace(lowered, roles=tuple(reduced)), field, smallest)
    return sum(sum(counts) for _, counts in best.nodes)


def _sizes(gang: Gang, size: int) -> list[int]:
    """Return the roles' sizes at ``size`` replicas in total: the role furthest above its minimum shrinks first, the later one of equals."""
    sizes = [role.replicas for role in gang.roles]
    surplus = sum(sizes) - size
    while surplus > 0:
        spare = [sizes[i] - role.min for i, role in enumerate(gang.roles)]
        most = max(spare)
        giver = max(i for i, one in enumerate(spare) if one == most)
        others = max((one for i, one in enumerate(spare) if i != giver), default=0)
        given = max(1, min(surplus, most - others))
        sizes[giver] -= given
        surplus -= given
    return sizes


def _groups(gang: Gang, size: int, field: Field) -> list[Group]:
    """Return the replicas at ``size`` by role and slot, parameter servers first."""
    groups: list[Group] = []
    for role, number in zip(gang.roles, _sizes(gang, size), strict=True):
        for slot, indices in _by_slot(role, number):
            groups.append(
                Group(
                    role=role.name,
                    indices=indices,
                    slot=slot,
                    need=field.snapshot.need(slot.demand),
                    rule=field.numbers[slot.rules],
                    anchor=is_anchor(role.name),
                )
            )
    return sorted(groups, key=lambda group: not group.anchor)


def _by_slot(role: GangRole, number: int) -> Iterable[tuple[Slot, Sequence[int]]]:
    """Return the first ``number`` indices of ``role`` by slot, in order of first appearance."""
    if not role.overrides:
        return ((role.slot, range(number)),) if number else ()
    overrides = dict(role.overrides)
    by_slot: dict[Slot, list[int]] = {}
    for index in range(number):
        by_slot.setdefault(overrides.get(index, role.slot), []).append(index)
    return by_slot.items()


def _placement(gang: Gang, layout: Layout, field: Field) -> Placement:
    nodes: list[list[str]] = [[] for _ in layout.groups]
    gpus: list[list[tuple[int, ...]]] = [[] for _ in layout.groups]
    known: dict[tuple[Room, tuple[int, ...]], list[list[tuple[int, ...]]]] = {}
    for node, counts in layout.nodes:
        alike = (field.snapshot.room(node), counts)
        chosen = known.get(alike)
        if chosen is None:
            chosen = known[alike] = _gpus(layout.groups, *alike)
        for position, number in enumerate(counts):
            if number:
                nodes[position] += [node] * number
                gpus[position] += chosen[position]
    assignments: list[Assignment] = []
    for position, group in enumerate(layout.groups):
        seats = zip(group.indices, nodes[position], gpus[position], strict=True)
        role = group.role
        assignments += [
            Assignment(role=role, index=index, node=node, gpus=chosen) for index, node, chosen in seats
        ]
    if len(layout.groups) > 1:
        rank = {role.name: position for position, role in enumerate(gang.roles)}
        assignments.sort(key=lambda one: (rank[one.role], one.index))
    return Placement(replicas=tuple(assignments), nodes=len(layout.nodes), full=gang.full)


def _gpus(groups: Sequence[Group], room: Room, counts: Sequence[int]) -> list[list[tuple[int, ...]]]:
    """Return the GPUs of every replica of each group, taken in turn."""
    gpus: list[list[tuple[int, ...]]] = []
    for group, number in zip(groups, counts, strict=True):
        room, chosen = take(room, group.need, number)
        gpus.append(chosen)
    return gpus
