"""The most that any node has free of each resource, one by one: what is above it fits nowhere.

Who waits for a whole node while none has half of itself free is found out by this, without a look at any node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from muster_core.scheduling.placement.room import Need, Room, whole_gpus


class Reach(NamedTuple):
    """The largest amounts by axis, number of whole GPUs on a node, and part of one GPU (milli)."""

    free: tuple[int, ...]
    gpus: int
    share: int

    def covers(self, need: Need) -> bool:
        """Whether one replica of ``need`` might fit somewhere; False only where it fits nowhere."""
        return (
            need.possible
            and need.gpus <= self.gpus
            and need.share <= self.share
            and all(amount <= self.free[axis] for axis, amount in need.amounts)
        )


def reach_of(rooms: Iterable[Room], axes: int) -> Reach:
    """The reach of ``rooms``, which have so many ``axes``; 0 of everything where there are none."""
    free = [0] * axes
    gpus = share = 0
    for room in rooms:
        free = [max(pair) for pair in zip(free, room.free, strict=True)]
        if room.gpus:
            gpus = max(gpus, whole_gpus(room))
            share = max(share, *room.gpus)
    return Reach(tuple(free), gpus, share)
