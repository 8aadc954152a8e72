"""What would let a waiting gang start now, each found by trying it on the pool: a smaller gang, more room on one node, less for others,
fewer rules.

Everything happens inside an open transaction, in which the room that is kept for others is not free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from muster_core.events import Assignment
from muster_core.scheduling.placement import Gang, Placement, Shortfall
from muster_core.scheduling.placement.roles import is_pinned
from muster_core.scheduling.placement.slot import Slot
from muster_core.scheduling.placement.words import counted, listed
from muster_core.scheduling.queues.chance import Chance
from muster_core.scheduling.queues.lacking import Wanted, closed_nodes, nearest
from muster_core.scheduling.queues.relaxing import Relaxing, slots_of
from muster_core.scheduling.queues.shrinking import Shrinking
from muster_core.scheduling.queues.sizes import reduced, smallest

_CLOSED_NAMED = 3


class WhatIf:
    """What would let a waiting job start now, by its ``chance``: each answer ends "would start now".

    ``contested`` says that others wait who may come first, so that freed room need not be the job's.
    """

    def __init__(self, chance: Chance, *, contested: bool) -> None:
        self._chance = chance
        self._trial = chance.transaction
        self._unless = ", unless another that waits takes it first" if contested else ""
        self._floor = smallest(chance.shape.gang)
        self._fewer = self._find_fewer()

    @property
    def others_come_first(self) -> bool:
        """Whether room is kept for others, who would take what becomes free."""
        return bool(self._chance.nodes_of_others)

    def fits_without_limit(self) -> bool:
        """Whether the floor finds room, whatever the limits of its queues say."""
        return self._chance.place(self._floor) is not None

    def _find_fewer(self) -> Placement | None:
        """Where as much of the gang as fits now would stand, if its floor were lower."""
        roles = tuple(
            role if is_pinned(role.name) else msgspec.structs.replace(role, min=min(role.min, 1))
            for role in self._chance.shape.gang.roles
        )
        lowered = Gang(roles=roles, policy=self._chance.shape.gang.policy)
        if lowered.floor >= self._floor.full:
            return None
        allowed = reduced(lowered, self._chance.allows)
        return self._chance.place(allowed) if allowed is not None else None

    def with_fewer(self) -> Iterator[str]:
        """``with 8 workers instead of 9``."""
        if self._fewer is None:
            return
        number = {role.name: 0 for role in self._floor.roles}
        for one in self._fewer.replicas:
            number[one.role] += 1
        less = [
            f"{counted(number[role.name], role.name)} instead of {role.replicas}"
            for role in self._floor.roles
            if number[role.name] < role.replicas
        ]
        if less:
            yield f"with {listed(less)}"

    def with_more_room(self, *, feasible: bool) -> Iterator[str]:
        """``with 1 more GPU free on n2``: what one node lacks for whatever does not fit now.

        Where rules bind replicas together one node's room would not tell. What the empty pool could hold (``feasible``) needs no
        larger node: then only room counts that is in other hands.
        """
        if self._floor.policy.topology_required or any(
            slot.peer is not None for slot in slots_of(self._floor)
        ):
            return
        fitting = self._fewer.replicas if self._fewer else ()
        mark = self._trial.checkpoint()
        try:
            self._trial.hold(self._chance.record, self._chance.record.attempt + 1, fitting)
            wanted = self._missing(fitting)
            lack = nearest(wanted, self._trial.snapshot, self._chance.nodes_of_others)
            closed = list(closed_nodes(wanted, self._trial.snapshot))
        finally:
            self._trial.rollback(mark)
        if lack is not None and lack.amounts:
            taken = lack.is_taken(self._trial.snapshot)
            if taken or not feasible:
                yield f"with {lack.in_words(taken=taken)}{self._unless}"
        for node in closed[:_CLOSED_NAMED]:
            yield f"if {node.name} were {'uncordoned' if node.ready else 'ready'}{self._unless}"

    def with_less_for_others(self) -> Iterator[str]:
        """``if a shrank by 2 workers``."""
        shrinks = Shrinking(self._floor, self._chance).in_words()
        if shrinks:
            yield f"if {shrinks}{self._unless}"

    def with_fewer_rules(self, shortfall: Shortfall) -> Iterator[str]:
        """``without its node selector disk=ssd``."""
        yield from Relaxing(self._floor, self._chance).in_words(shortfall)

    def _missing(self, fitting: Iterable[Assignment]) -> Wanted:
        """The replicas of the floor that are not among ``fitting``, by what they ask."""
        placed = {(one.role, one.index) for one in fitting}
        wanted: dict[Slot, int] = {}
        for role in self._floor.roles:
            overrides = dict(role.overrides)
            for index in range(role.replicas):
                if (role.name, index) not in placed:
                    slot = overrides.get(index, role.slot)
                    wanted[slot] = wanted.get(slot, 0) + 1
        return list(wanted.items())
