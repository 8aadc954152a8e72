"""A gang as placement sees it, and where it goes: all of it at once, or not at all.

The order of wishes is fixed: the largest size between minimum and replicas that the pool can hold; then one node for all of it, the
tightest; else the fewest nodes, with the parameter servers where most workers are.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from muster_core.facts import Assignment
from muster_core.models import Job, Role, Template
from muster_core.placement.admission import Rules, rules_of
from muster_core.placement.capacity import Snapshot
from muster_core.placement.demand import Demand, demand_of
from muster_core.placement.field import Field
from muster_core.placement.layout import Group, Layout, lay_out
from muster_core.placement.roles import is_anchor
from muster_core.placement.room import take
from muster_core.placement.shortfall import Shortfall, shortfall_of


class Slot(msgspec.Struct, frozen=True):
    """What one replica asks: so much room, on nodes of such a kind. Replicas of equal slots are interchangeable."""

    demand: Demand
    rules: Rules


class GangRole(msgspec.Struct, frozen=True, kw_only=True):
    """One role: it starts with ``min`` to ``replicas`` replicas, with indices from 0. ``overrides`` are the slots of single indices."""

    name: str
    min: int
    replicas: int
    slot: Slot
    overrides: tuple[tuple[int, Slot], ...] = ()


class Gang(msgspec.Struct, frozen=True, kw_only=True):
    """The replicas that start together. Equal gangs have equal chances, whatever jobs they come from; it hashes.

    ``min_available`` is a floor under the number of replicas in all, beside the roles' own.
    """

    roles: tuple[GangRole, ...]
    min_available: int = 0

    @property
    def full(self) -> int:
        """The number of replicas that are asked for."""
        return sum(role.replicas for role in self.roles)

    @property
    def floor(self) -> int:
        """The number of replicas below which nothing is started."""
        return min(max(sum(role.min for role in self.roles), self.min_available), self.full)


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where every replica goes, by role in the job's order, then by index; on ``nodes`` nodes, of ``full`` replicas asked for."""

    replicas: tuple[Assignment, ...]
    nodes: int
    full: int


def gang_of(job: Job) -> Gang:
    """The gang that ``job`` starts as."""
    return Gang(
        roles=tuple(_gang_role(role) for role in job.roles if role.replicas > 0),
        min_available=job.min_available or 0,
    )


def slot_of(template: Template) -> Slot:
    """What a replica of ``template`` asks."""
    return Slot(demand=demand_of(template.requests), rules=rules_of(template))


def place(gang: Gang, snapshot: Snapshot, *, feasible: bool | None = None) -> Placement | Shortfall:
    """Find room for the whole gang; ``snapshot`` is not changed.

    ``feasible`` tells whether the empty pool could hold the gang's floor, where that is known already; it is found out otherwise, and
    only if the gang does not fit.
    """
    field = Field(snapshot, [slot.rules for slot in _slots(gang)])
    layout = _largest(gang, field)
    if layout is not None:
        return _placement(gang, layout, field)
    if feasible is None:
        feasible = feasible_when_empty(gang, snapshot)
    return shortfall_of(_groups(gang, gang.floor, field), field, feasible=feasible)


def feasible_when_empty(gang: Gang, snapshot: Snapshot) -> bool:
    """Whether the pool could hold the gang's floor if nothing of ours ran on it."""
    emptied = snapshot.emptied()
    field = Field(emptied, [slot.rules for slot in _slots(gang)])
    return lay_out(_groups(gang, gang.floor, field), field) is not None


def _gang_role(role: Role) -> GangRole:
    usual = slot_of(role.template)
    overrides = ((index, slot_of(template)) for index, template in sorted(role.overrides.items()))
    return GangRole(
        name=role.name,
        min=min(role.min, role.replicas),
        replicas=role.replicas,
        slot=usual,
        overrides=tuple((i, slot) for i, slot in overrides if i < role.replicas and slot != usual),
    )


def _slots(gang: Gang) -> Iterator[Slot]:
    for role in gang.roles:
        yield role.slot
        for _, slot in role.overrides:
            yield slot


def _largest(gang: Gang, field: Field) -> Layout | None:
    """The layout of the largest size that fits: everything, else by bisection between the floor and everything."""
    layout = lay_out(_groups(gang, gang.full, field), field)
    if layout is not None or gang.floor == gang.full:
        return layout
    best = lay_out(_groups(gang, gang.floor, field), field)
    if best is None:
        return None
    fits, fails = gang.floor, gang.full
    while fails - fits > 1:
        size = (fits + fails) // 2
        layout = lay_out(_groups(gang, size, field), field)
        if layout is None:
            fails = size
        else:
            fits, best = size, layout
    return best


def _sizes(gang: Gang, size: int) -> list[int]:
    """The roles' sizes at ``size`` replicas in all: whoever is furthest above its minimum gives first, the later role where equal."""
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
    """The replicas at ``size`` by role and slot, parameter servers first."""
    groups: list[Group] = []
    for role, number in zip(gang.roles, _sizes(gang, size), strict=True):
        overrides = dict(role.overrides)
        by_slot: dict[Slot, list[int]] = {}
        for index in range(number):
            by_slot.setdefault(overrides.get(index, role.slot), []).append(index)
        for slot, indices in by_slot.items():
            groups.append(
                Group(
                    role=role.name,
                    indices=tuple(indices),
                    demand=slot.demand,
                    need=field.snapshot.need(slot.demand),
                    rules=slot.rules,
                    rule=field.numbers[slot.rules],
                    anchor=is_anchor(role.name),
                )
            )
    return sorted(groups, key=lambda group: not group.anchor)


def _placement(gang: Gang, layout: Layout, field: Field) -> Placement:
    rank = {role.name: position for position, role in enumerate(gang.roles)}
    given = [0] * len(layout.groups)
    assignments: list[Assignment] = []
    for node, counts in layout.nodes:
        room = field.snapshot.room(node)
        for position, number in enumerate(counts):
            group = layout.groups[position]
            room, gpus = take(room, group.need, number)
            indices = group.indices[given[position] : given[position] + number]
            given[position] += number
            assignments.extend(
                Assignment(role=group.role, index=index, node=node, gpus=chosen)
                for index, chosen in zip(indices, gpus, strict=True)
            )
    assignments.sort(key=lambda one: (rank[one.role], one.index))
    return Placement(replicas=tuple(assignments), nodes=len(layout.nodes), full=gang.full)
