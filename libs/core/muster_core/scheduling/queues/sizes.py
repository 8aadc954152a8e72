"""How large a gang may start where a queue's limit allows less than the pool has room for."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import msgspec

from muster_core.models import Role
from muster_core.scheduling.placement import Gang, GangRole, demand_of
from muster_core.scheduling.queues.ledger import Amounts, demand_amounts


@lru_cache(maxsize=4096)
def smallest(gang: Gang) -> Gang:
    """The gang at its floor: what must start together, and no more."""
    while (smaller := _one_less(gang)) is not None:
        gang = smaller
    return gang


def reduced(gang: Gang, allowed: Callable[[Amounts], bool]) -> Gang | None:
    """The largest size of ``gang`` from its floor that is ``allowed``, or None: whoever is furthest above its minimum gives first."""
    while not allowed(gang_amounts(gang)):
        smaller = _one_less(gang)
        if smaller is None:
            return None
        gang = smaller
    return gang


@lru_cache(maxsize=4096)
def gang_amounts(gang: Gang) -> Amounts:
    """What the whole of ``gang`` counts against its queue; the same object each time, not to be changed."""
    total: Amounts = {}
    for role in gang.roles:
        different = [slot for index, slot in role.overrides if index < role.replicas]
        for slot, number in ((role.slot, role.replicas - len(different)), *((slot, 1) for slot in different)):
            for name, amount in demand_amounts(slot.demand):
                total[name] = total.get(name, 0) + amount * number
    return total


def dearest_amounts(role: Role) -> Amounts:
    """What a replica of ``role`` may count against its queue, whatever its index: the most of every resource."""
    most: Amounts = {}
    for template in (role.template, *role.overrides.values()):
        for name, amount in demand_amounts(demand_of(template.requests)):
            most[name] = max(most.get(name, 0), amount)
    return most


def _one_less(gang: Gang) -> Gang | None:
    """The gang with one replica less; None at its floor."""
    if gang.full <= gang.floor:
        return None
    spare = [role.replicas - role.min for role in gang.roles]
    giver = max(range(len(spare)), key=lambda position: (spare[position], position))
    roles = tuple(_smaller(role) if i == giver else role for i, role in enumerate(gang.roles))
    return msgspec.structs.replace(gang, roles=roles, min_available=gang.floor)


def _smaller(role: GangRole) -> GangRole:
    number = role.replicas - 1
    overrides = tuple((index, slot) for index, slot in role.overrides if index < number)
    return msgspec.structs.replace(role, replicas=number, overrides=overrides)
