"""Which rule about nodes, if it were not there, would let a waiting gang start now: each is left out in turn, and the gang tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from muster_core.models import Toleration
from muster_core.scheduling.placement import Gang, Placement, Shortfall
from muster_core.scheduling.placement.admission import (
    NODE_AFFINITY,
    NODE_SELECTOR,
    POD_AFFINITY,
    POD_RULES,
    TAINT,
    TOPOLOGY,
    barring,
    tolerates,
)
from muster_core.scheduling.placement.slot import Slot, without_peer
from muster_core.scheduling.placement.words import listed
from muster_core.scheduling.queues.chance import Chance

_EVERY_TAINT = (Toleration(operator="Exists"),)


class Relaxing:
    """Tries ``gang`` with fewer rules."""

    def __init__(self, gang: Gang, chance: Chance) -> None:
        self._gang = gang
        self._chance = chance
        self._slots = slots_of(gang)

    def in_words(self, shortfall: Shortfall) -> Iterator[str]:
        """Without what it would fit, ``without its node selector disk=ssd``, of the rules that count in ``shortfall``."""
        broken = {constraint for constraint, _ in shortfall.ruled_out}
        if TAINT in broken and (found := self._with_rules(tolerations=_EVERY_TAINT)):
            yield f"if it tolerated {listed(self._untolerated(found))}"
        if NODE_SELECTOR in broken and self._with_rules(selector=()):
            pairs = sorted({pair for slot in self._slots for pair in slot.rules.selector})
            yield f"without its node selector {listed(f'{key}={value}' for key, value in pairs)}"
        if NODE_AFFINITY in broken and self._with_rules(terms=None):
            yield "without its required node affinity"
        if (TOPOLOGY in broken or shortfall.topology) and self._in_any_domain():
            yield f"if one domain of {self._gang.policy.topology} were preferred and not required"
        if (shortfall.apart or broken & {POD_AFFINITY, POD_RULES}) and self._without_peers():
            yield "without its rules about other pods"

    def _with_rules(self, **changes: object) -> Placement | None:
        return self._place(_changed(self._gang, **changes))

    def _in_any_domain(self) -> Placement | None:
        policy = msgspec.structs.replace(self._gang.policy, topology_required=False)
        return self._place(msgspec.structs.replace(_changed(self._gang, labels=()), policy=policy))

    def _without_peers(self) -> Placement | None:
        return self._place(_mapped(_changed(self._gang, understood=True), without_peer))

    def _place(self, gang: Gang) -> Placement | None:
        return self._chance.place(gang)

    def _untolerated(self, found: Placement) -> list[str]:
        """The taints of the nodes on which it would stand that some replica does not tolerate."""
        taints = {
            taint
            for name in {one.node for one in found.replicas}
            for taint in barring(self._chance.transaction.snapshot.nodes[name].taints)
            if not all(tolerates(slot.rules.tolerations, (taint,)) for slot in self._slots)
        }
        return sorted(f"{t.key}={t.value}:{t.effect}" if t.value else f"{t.key}:{t.effect}" for t in taints)


def slots_of(gang: Gang) -> list[Slot]:
    """What the replicas of ``gang`` ask, by role: the usual, then that of single indices."""
    return [slot for role in gang.roles for slot in (role.slot, *(slot for _, slot in role.overrides))]


def _changed(gang: Gang, **changes: object) -> Gang:
    def change(slot: Slot) -> Slot:
        return Slot(slot.demand, msgspec.structs.replace(slot.rules, **changes), slot.peer)

    return _mapped(gang, change)


def _mapped(gang: Gang, change: Callable[[Slot], Slot]) -> Gang:
    roles = tuple(
        msgspec.structs.replace(
            role,
            slot=change(role.slot),
            overrides=tuple((index, change(slot)) for index, slot in role.overrides),
        )
        for role in gang.roles
    )
    return msgspec.structs.replace(gang, roles=roles)
