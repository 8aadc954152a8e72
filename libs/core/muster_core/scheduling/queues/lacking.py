"""How much more room a node would need to take certain replicas: the nearest miss, node by node."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from muster_core.models import GPU_MILLI, Node
from muster_core.scheduling.placement import Snapshot
from muster_core.scheduling.placement.admission import refusal
from muster_core.scheduling.placement.field import Field
from muster_core.scheduling.placement.room import Room, Want, fill, whole_gpus
from muster_core.scheduling.placement.slot import Slot
from muster_core.scheduling.placement.words import demand_in_words

Wanted = Sequence[tuple[Slot, int]]
"""Replicas by what they ask, and how many of each."""

_UNIT = 1_000_000


class Lack(NamedTuple):
    """What ``node`` lacks, by resource."""

    rank: tuple[int, int, str]
    node: str
    amounts: tuple[tuple[str, int], ...]

    def in_words(self, *, taken: bool) -> str:
        """``1 more CPU and 2 more GiB of memory on n1``; ``1 more GPU free on n2`` where it is only ``taken``."""
        parts = [demand_in_words(name, amount).replace(" ", " more ", 1) for name, amount in self.amounts]
        return f"{' and '.join(parts)}{' free' if taken else ''} on {self.node}"

    def is_taken(self, snapshot: Snapshot) -> bool:
        """Whether the node has as much in other hands, so that it only has to become free."""
        node, room = snapshot.nodes[self.node], snapshot.room(self.node)
        offered = {**node.allocatable.amounts(), "pods": node.pods, "gpu": len(room.gpus) * GPU_MILLI}
        free = {name: snapshot.free_of(room, name) for name, _ in self.amounts}
        free["gpu"] = whole_gpus(room) * GPU_MILLI
        return all(offered.get(name, 0) - free[name] >= amount for name, amount in self.amounts)


def nearest(wanted: Wanted, snapshot: Snapshot, but: Container[str]) -> Lack | None:
    """The node that lacks least for all of ``wanted`` at once, of those that admit them; None where none admits them, or what is lacking
    cannot be said as an amount. The nodes ``but`` are left out."""
    field = Field(snapshot, (slot for slot, _ in wanted))
    numbers = set(field.numbers.values())
    spots = (spot for spot in field.spots if spot.admits >= numbers)
    rooms = ((next((name for name in spot.names if name not in but), ""), spot.room) for spot in spots)
    found = (_lack(name, room, wanted, snapshot) for name, room in rooms if name)
    return min((one for one in found if one is not None), default=None)


def closed_nodes(wanted: Wanted, snapshot: Snapshot) -> Iterator[Node]:
    """The nodes that would take all of ``wanted`` if they were ready and not cordoned, by name."""
    needs = [Want(snapshot.need(slot.demand), number) for slot, number in wanted]
    limits = [want.limit for want in needs]
    for name in sorted(snapshot.nodes):
        node = snapshot.nodes[name]
        if node.ready and not node.unschedulable:
            continue
        opened = _opened(node)
        admitted = not any(refusal(slot.rules, opened) for slot, _ in wanted)
        if admitted and fill(snapshot.room(name), needs) == limits:
            yield node


def _opened(node: Node) -> Node:
    return Node(name=node.name, allocatable=node.allocatable, labels=node.labels, taints=node.taints)


def _lack(name: str, room: Room, wanted: Wanted, snapshot: Snapshot) -> Lack | None:
    """What the node lacks; None where more of the resources would not help."""
    if any(slot.demand.together for slot, _ in wanted):
        return None
    needed: dict[str, int] = {}
    for slot, number in wanted:
        for resource, amount in slot.demand.amounts:
            needed[resource] = needed.get(resource, 0) + amount * number
    short = {name: amount - snapshot.free_of(room, name) for name, amount in needed.items()}
    short = {name: amount for name, amount in short.items() if amount > 0}
    gpus = _gpus_short(name, room, wanted, snapshot)
    if gpus is None:
        return None
    relative = sum(amount * _UNIT // needed[one] for one, amount in short.items())
    if gpus:
        short["gpu"] = gpus * GPU_MILLI
        relative += gpus * _UNIT
    return Lack((relative, len(short), name), name, tuple(sorted(short.items())))


def _gpus_short(name: str, room: Room, wanted: Wanted, snapshot: Snapshot) -> int | None:
    """How many more whole GPUs would do, were there enough of everything else; None where none would."""
    needs = [
        Want(snapshot.need(slot.demand)._replace(amounts=(), possible=True), number)
        for slot, number in wanted
        if slot.demand.gpus or slot.demand.gpu_share
    ]
    limits = [want.limit for want in needs]
    memory = max((want.need.memory for want in needs), default=0)
    of_one = max(memory, snapshot.nodes[name].gpu_memory)

    def do(more: int) -> bool:
        gpus, gpu_memory = (GPU_MILLI,) * more, (of_one,) * more
        larger = room._replace(gpus=room.gpus + gpus, gpu_memory=room.gpu_memory + gpu_memory, islands=())
        return fill(larger, needs) == limits

    most = sum(want.limit * max(want.need.gpus, 1) for want in needs)
    more = bisect_left(range(most + 1), True, key=do)
    return more if more <= most else None
