"""How many replicas of each group go on which node: one node for all of them, else as few as a greedy search finds.

The search takes the node that holds most of what is still missing, the tightest where several hold the same. Which group a node is offered
first matters, so that a few orders are tried and the best outcome is kept: fewest nodes, then most replicas beside an anchor.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

import msgspec

from muster_core.models import GPU_MILLI
from muster_core.placement.admission import Rules
from muster_core.placement.demand import Demand
from muster_core.placement.field import Field, Spot
from muster_core.placement.room import Need, Room, Want, fill, whole_gpus


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Interchangeable replicas of one role, lowest index first."""

    role: str
    indices: tuple[int, ...]
    demand: Demand
    need: Need
    rules: Rules
    anchor: bool = False

    @property
    def count(self) -> int:
        """The number of replicas."""
        return len(self.indices)


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """``nodes`` are (name, replicas of each of ``groups``), in the order in which the nodes were chosen."""

    groups: tuple[Group, ...]
    nodes: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def beside_anchors(self) -> int:
        """How many replicas share a node with an anchor."""
        anchors = [position for position, group in enumerate(self.groups) if group.anchor]
        return sum(sum(counts) for _, counts in self.nodes if any(counts[position] for position in anchors))


def lay_out(groups: Sequence[Group], field: Field) -> Layout | None:
    """Room for all of ``groups``, or None; deterministic, whatever the order of the field's spots."""
    on_one = _on_one(groups, field.spots)
    if on_one is not None:
        return on_one
    found = [layout for order in _orders(groups) if (layout := _on_several(order, field.spots)) is not None]
    return min(found, key=lambda layout: (len(layout.nodes), -layout.beside_anchors), default=None)


def most_that_fit(groups: Sequence[Group], field: Field) -> int:
    """How many of the replicas the search finds room for, all of them or not."""
    best = 0
    for order in _orders(groups):
        remaining, _ = _search(order, field.spots)
        best = max(best, sum(group.count for group in order) - sum(remaining))
    return best


def _on_one(groups: Sequence[Group], spots: Iterable[Spot]) -> Layout | None:
    rules = {group.rules for group in groups}
    if not all(group.need.possible for group in groups):
        return None
    total: dict[int, int] = {}
    for group in groups:
        for axis, amount in group.need.amounts:
            total[axis] = total.get(axis, 0) + amount * group.count
    gpus = sum(group.need.gpus * group.count for group in groups)
    demands = tuple(total.items())
    fitting = [
        (spot.slack, spot.names[0], spot.room)
        for spot in spots
        if _covers(spot.room, demands, gpus) and rules <= spot.admits
    ]
    heapq.heapify(fitting)
    while fitting:
        _, name, room = heapq.heappop(fitting)
        counts, _ = fill(room, (Want(group.need, group.count) for group in groups))
        if all(number == group.count for number, group in zip(counts, groups, strict=True)):
            return Layout(groups=tuple(groups), nodes=((name, tuple(counts)),))
    return None


def _covers(room: Room, demands: tuple[tuple[int, int], ...], gpus: int) -> bool:
    free = room.free
    for axis, amount in demands:
        if free[axis] < amount:
            return False
    return not gpus or whole_gpus(room) >= gpus


def _orders(groups: Sequence[Group]) -> list[Sequence[Group]]:
    """Anchors first, anchors last, and the largest demands first; equal orders once."""
    largest = sorted(groups, key=_bulk, reverse=True)
    orders = [tuple(groups), tuple(sorted(groups, key=lambda group: group.anchor)), tuple(largest)]
    return list(dict.fromkeys(orders))


def _bulk(group: Group) -> tuple[int, int, int]:
    amounts = dict(group.demand.amounts)
    gpu = group.need.gpus * GPU_MILLI + group.need.share
    return (gpu, amounts.get("cpu", 0), amounts.get("memory", 0))


def _on_several(groups: Sequence[Group], spots: Sequence[Spot]) -> Layout | None:
    remaining, nodes = _search(groups, spots)
    return None if any(remaining) else Layout(groups=tuple(groups), nodes=tuple(nodes))


def _search(
    groups: Sequence[Group], spots: Sequence[Spot]
) -> tuple[list[int], list[tuple[str, tuple[int, ...]]]]:
    """What is still missing in the end, and the nodes chosen.

    A heap holds what each spot could take when it was last asked; it is asked again when it comes to the top, and all of
    them are when a group is complete, because the others may then have more room.
    """
    remaining = [group.count for group in groups]
    nodes: list[tuple[str, tuple[int, ...]]] = []
    used = [0] * len(spots)
    heap = _offers(groups, spots, remaining, used)
    while heap and any(remaining):
        taken, slack, name, position = heapq.heappop(heap)
        spot = spots[position]
        counts = _offer(spot, groups, remaining)
        if sum(counts) != -taken:
            if any(counts):
                heapq.heappush(heap, (-sum(counts), slack, name, position))
            continue
        nodes.append((name, tuple(counts)))
        used[position] += 1
        completed = any(
            number and number == missing for missing, number in zip(remaining, counts, strict=True)
        )
        remaining = [missing - number for missing, number in zip(remaining, counts, strict=True)]
        if completed:
            heap = _offers(groups, spots, remaining, used)
        elif used[position] < len(spot.names):
            heapq.heappush(heap, (taken, slack, spot.names[used[position]], position))
    return remaining, nodes


def _offers(
    groups: Sequence[Group], spots: Sequence[Spot], remaining: Sequence[int], used: Sequence[int]
) -> list[tuple[int, int, str, int]]:
    heap: list[tuple[int, int, str, int]] = []
    for position, spot in enumerate(spots):
        if used[position] < len(spot.names):
            taken = sum(_offer(spot, groups, remaining))
            if taken:
                heap.append((-taken, spot.slack, spot.names[used[position]], position))
    heapq.heapify(heap)
    return heap


def _offer(spot: Spot, groups: Sequence[Group], remaining: Sequence[int]) -> list[int]:
    wants = (
        Want(group.need, missing if group.rules in spot.admits else 0)
        for group, missing in zip(groups, remaining, strict=True)
    )
    return fill(spot.room, wants)[0]
