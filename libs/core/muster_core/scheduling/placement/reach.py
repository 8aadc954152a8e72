"""The largest free amount of each resource on any node: what exceeds it fits nowhere.

This detects without a node scan that a job needs a whole node while none is half free.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from muster_core.scheduling.placement.room import Need, Room, whole_gpus


class Reach(NamedTuple):
    """The largest amounts by axis, whole GPUs on a node, and part of one GPU (milli)."""

    free: tuple[int, ...]
    gpus: int
    share: int

    def covers(self, need: Need) -> bool:
        """Return whether one replica of ``need`` might fit somewhere; False is definite."""
        return (
            need.possible
            and need.gpus <= self.gpus
            and need.share <= self.share
            and all(amount <= self.free[axis] for axis, amount in need.amounts)
        )


def reach_of(rooms: Iterable[Room], axes: int) -> Reach:
    """Return the reach of ``rooms`` with this many ``axes``; all 0 if there are none."""
    free = [0] * axes
    gpus = share = 0
    for room in rooms:
        free = [max(pair) for pair in zip(free, room.free, strict=True)]
        if room.gpus:
            gpus = max(gpus, whole_gpus(room))
            share = max(share, *room.gpus)
    return Reach(tuple(free), gpus, share)
