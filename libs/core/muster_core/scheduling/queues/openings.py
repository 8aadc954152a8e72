"""After how many leavers a gang of equals fits, counted node by node instead of tried.

To try takes as many releases as there are leavers, several times over. But what a leaver gives back changes only its own nodes, and where
all replicas ask the same, the gang fits as soon as the nodes together hold enough of them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from muster_core.models import Strategy
from muster_core.scheduling.placement import AllocationKey, Gang, Snapshot
from muster_core.scheduling.placement.field import Field
from muster_core.scheduling.placement.room import Need, count, whole_gpus
from muster_core.scheduling.queues.leavers import Leaver

_AS_OFTEN_AS_IT_FITS = 1 << 30
_NEVER = -_AS_OFTEN_AS_IT_FITS


class Opening(NamedTuple):
    """The gang fits after the first ``number`` leavers, and has room on no other than ``nodes`` then."""

    number: int
    nodes: frozenset[str]


def is_countable(gang: Gang) -> bool:
    """Whether nothing matters for the gang but how many of its replicas each node holds."""
    return (
        len(gang.roles) == 1
        and not gang.roles[0].overrides
        and gang.roles[0].slot.peer is None
        and not gang.policy.topology
        and gang.policy.strategy is Strategy.PACK
    )


def opening_for(gang: Gang, leavers: Sequence[Leaver], snapshot: Snapshot) -> Opening | None:
    """The fewest of the first ``leavers`` after whom all of a countable ``gang`` fits; None where it does not after all of them."""
    slot = gang.roles[0].slot
    need = snapshot.need(slot.demand)
    if not need.possible:
        return None
    fits = Field(snapshot, (slot,)).fits(slot)
    holding = set(fits.names)
    total = fits.total
    emptying = _Emptying(need, snapshot, snapshot.verdicts(slot.rules).admitted)
    number = 0
    while total < gang.full:
        if number == len(leavers):
            return None
        for name in emptying.after(leavers[number]):
            more = emptying.gain(name, fits.times(name))
            if more:
                total += more
                holding.add(name)
        number += 1
    return Opening(number, frozenset(holding))


class _Emptying:
    """The nodes that leavers have left, of those that are ``admitted``."""

    def __init__(self, need: Need, snapshot: Snapshot, admitted: Container[str]) -> None:
        self._need = need
        self._snapshot = snapshot
        self._admitted = admitted
        self._gpus: dict[str, int] = {}
        self._gone: dict[str, set[AllocationKey]] = {}
        self._times: dict[str, int] = {}

    def after(self, leaver: Leaver) -> Iterable[str]:
        """The nodes that this one leaves and that may have the GPUs for a replica then."""
        gpus = self._gpus
        left: dict[str, None] = {}
        for key, hold in leaver.holds:
            name = hold.node
            most = gpus.get(name)
            if most is None:
                most = self._most_gpus(name)
            gpus[name] = most = most + len(hold.gpus)
            self._gone.setdefault(name, set()).add(key)
            if most >= self._need.gpus:
                left[name] = None
        return left

    def gain(self, name: str, before: int) -> int:
        """How many more replicas fit on a node than when this was asked last, or than ``before`` where it never was."""
        room = self._snapshot.room_without(name, self._gone[name])
        times = count(room, self._need, _AS_OFTEN_AS_IT_FITS)
        known = self._times.get(name, before)
        self._times[name] = times
        return times - known

    def _most_gpus(self, name: str) -> int:
        """The number of whole GPUs free on a node, or more."""
        if name not in self._admitted or self._snapshot.class_of(name) is None:
            return _NEVER
        # Which GPUs others use depends on all that is held, so that a sum would not tell.
        if self._snapshot.nodes[name].foreign.gpu > 0:
            return self._need.gpus
        return whole_gpus(self._snapshot.room(name))
