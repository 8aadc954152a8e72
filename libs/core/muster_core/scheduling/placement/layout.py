"""Layouts of groups of replicas: packed on few nodes, or spread evenly over many.

Packed: one node for all of them, else as few as a greedy search finds. The search takes the node that holds most of what is
missing, the cheapest of equals. The order of groups matters, so a few orders are tried and the best result is kept: fewest
nodes, then most replicas beside a parameter server.

Spread: as many nodes as possible, for jobs that need a node's links for themselves. Replicas are assigned one by one to the
cheapest node with the fewest of the gang.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from muster_core.models import GPU_MILLI
from muster_core.scheduling.placement.candidates import Cost, Field, Spot
from muster_core.scheduling.placement.demand import Slot
from muster_core.scheduling.placement.fit_index import pack_among
from muster_core.scheduling.placement.free_capacity import Need, Room, Want, count, fill, take, whole_gpus


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Interchangeable replicas of one role, lowest index first; ``need`` and ``rule`` refer to the field."""

    role: str
    indices: Sequence[int]
    slot: Slot
    need: Need
    rule: int
    anchor: bool = False

    @property
    def count(self) -> int:
        """The number of replicas."""
        return len(self.indices)


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """``nodes`` are (name, replicas of each of ``groups``), in the order of choice."""

    groups: tuple[Group, ...]
    nodes: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def beside_anchors(self) -> int:
        """How many replicas share a node with an anchor."""
        anchors = [position for position, group in enumerate(self.groups) if group.anchor]
        return sum(sum(counts) for _, counts in self.nodes if any(counts[position] for position in anchors))


_FEWEST = 2
"""The least number of nodes if one does not suffice."""


class _Total(NamedTuple):
    """Return what groups take in total: by axis, and in whole GPUs."""

    amounts: tuple[tuple[int, int], ...]
    gpus: int


def lay_out(groups: Sequence[Group], field: Field) -> Layout | None:
    """Lay out all of ``groups`` on as few nodes as possible, or return None; deterministic, whatever the order of spots."""
    if not all(group.need.possible for group in groups):
        return None
    if len(groups) == 1:
        return _one_group(groups[0], field)
    on_one = on_one_node(groups, field)
    if on_one is not None:
        return on_one
    if not _enough_in_all(_total(groups), field.spots):
        return None
    alone = _alone(groups, field.spots)
    best: Layout | None = None
    for order in _orders(groups):
        layout = _on_several(groups, order, field.spots, alone)
        if layout is not None and (best is None or _rank(layout) < _rank(best)):
            best = layout
        if best is not None and len(best.nodes) <= _FEWEST:
            break
    return best


def on_one_node(groups: Sequence[Group], field: Field) -> Layout | None:
    """Lay out all of ``groups`` on the cheapest node that holds them, or return None."""
    if not all(group.need.possible for group in groups):
        return None
    if field.names is not None:
        return _on_one(groups, _total(groups), field.spots)
    if len(groups) == 1:
        best = field.fits(groups[0].slot).best(groups[0].count)
    else:
        best = field.fits_all([(group.slot, group.count) for group in groups]).best(1)
    if best is None:
        return None
    return Layout(groups=tuple(groups), nodes=((best.name, tuple(group.count for group in groups)),))


def most_that_fit(groups: Sequence[Group], field: Field) -> int:
    """Return how many of the replicas the search places."""
    if len(groups) == 1 and field.names is None:
        return min(field.fits(groups[0].slot).total, groups[0].count)
    remaining, _ = _search(groups, field.spots, _alone(groups, field.spots))
    return sum(group.count for group in groups) - sum(remaining)


def _one_group(group: Group, field: Field) -> Layout | None:
    fits = field.fits(group.slot)
    chosen = (
        fits.pack(group.count) if field.names is None else pack_among(fits.among(field.names), group.count)
    )
    if chosen is None:
        return None
    return Layout(groups=(group,), nodes=tuple((name, (number,)) for name, number in chosen))


def _total(groups: Sequence[Group]) -> _Total:
    total: dict[int, int] = {}
    for group in groups:
        for axis, amount in group.need.amounts:
            total[axis] = total.get(axis, 0) + amount * group.count
    return _Total(tuple(total.items()), sum(group.need.gpus * group.count for group in groups))


def _enough_in_all(total: _Total, spots: Iterable[Spot]) -> bool:
    """Return whether all spots together have enough capacity; most misfits are detected here."""
    missing, gpus = dict(total.amounts), total.gpus
    for spot in spots:
        nodes = len(spot.names)
        gpus -= whole_gpus(spot.room) * nodes if gpus > 0 else 0
        free = spot.room.free
        for axis in tuple(missing):
            if free[axis] > 0:
                missing[axis] -= free[axis] * nodes
                if missing[axis] <= 0:
                    del missing[axis]
        if not missing and gpus <= 0:
            return True
    return False


def _on_one(groups: Sequence[Group], total: _Total, spots: Iterable[Spot]) -> Layout | None:
    rules = {group.rule for group in groups}
    fitting = [
        (spot.cost, spot.names[0], spot.room)
        for spot in spots
        if _covers(spot.room, total) and rules <= spot.admits
    ]
    heapq.heapify(fitting)
    while fitting:
        _, name, room = heapq.heappop(fitting)
        counts = fill(room, [Want(group.need, group.count) for group in groups])
        if all(number == group.count for number, group in zip(counts, groups, strict=True)):
            return Layout(groups=tuple(groups), nodes=((name, tuple(counts)),))
    return None


def _covers(room: Room, total: _Total) -> bool:
    free = room.free
    for axis, amount in total.amounts:
        if free[axis] < amount:
            return False
    return not total.gpus or whole_gpus(room) >= total.gpus


def _rank(layout: Layout) -> tuple[int, int]:
    return (len(layout.nodes), -layout.beside_anchors)


def _orders(groups: Sequence[Group]) -> list[tuple[int, ...]]:
    """Return the positions of ``groups`` with anchors first, with anchors last, and with the largest demands first, without repetitions."""
    positions = range(len(groups))
    orders = (
        tuple(positions),
        tuple(sorted(positions, key=lambda position: groups[position].anchor)),
        tuple(sorted(positions, key=lambda position: _bulk(groups[position]), reverse=True)),
    )
    return list(dict.fromkeys(orders))


def _bulk(group: Group) -> tuple[int, int, int]:
    amounts = dict(group.slot.demand.amounts)
    gpu = group.need.gpus * GPU_MILLI + group.need.share
    return (gpu, amounts.get("cpu", 0), amounts.get("memory", 0))


def _alone(groups: Sequence[Group], spots: Sequence[Spot]) -> list[list[int]]:
    """Return for each group how many of its replicas each spot could take alone."""
    return [
        [count(spot.room, group.need, group.count) if group.rule in spot.admits else 0 for spot in spots]
        for group in groups
    ]


def _on_several(
    groups: Sequence[Group], order: tuple[int, ...], spots: Sequence[Spot], alone: list[list[int]]
) -> Layout | None:
    ordered = tuple(groups[position] for position in order)
    remaining, nodes = _search(ordered, spots, [alone[position] for position in order])
    return None if any(remaining) else Layout(groups=ordered, nodes=tuple(nodes))


def _search(
    groups: Sequence[Group], spots: Sequence[Spot], alone: list[list[int]]
) -> tuple[list[int], list[tuple[str, tuple[int, ...]]]]:
    """Return what is still missing at the end, and the nodes chosen.

    A heap holds upper bounds of what each spot could take; the exact number is computed at the top. When a group is
    complete the bounds change, so the heap is rebuilt.
    """
    remaining = [group.count for group in groups]
    nodes: list[tuple[str, tuple[int, ...]]] = []
    used = [0] * len(spots)
    heap = _bounds(spots, alone, remaining, used)
    while heap and any(remaining):
        bound, cost, name, position = heapq.heappop(heap)
        spot = spots[position]
        counts = _offer(spot, groups, remaining)
        if sum(counts) != -bound:
            if any(counts):
                heapq.heappush(heap, (-sum(counts), cost, name, position))
            continue
        nodes.append((name, tuple(counts)))
        used[position] += 1
        completed = any(
            number and number == missing for missing, number in zip(remaining, counts, strict=True)
        )
        remaining = [missing - number for missing, number in zip(remaining, counts, strict=True)]
        if completed:
            heap = _bounds(spots, alone, remaining, used)
        elif used[position] < len(spot.names):
            heapq.heappush(heap, (bound, cost, spot.names[used[position]], position))
    return remaining, nodes


def _bounds(
    spots: Sequence[Spot], alone: list[list[int]], remaining: Sequence[int], used: Sequence[int]
) -> list[tuple[int, Cost, str, int]]:
    heap: list[tuple[int, Cost, str, int]] = []
    wanted = [(fits, missing) for fits, missing in zip(alone, remaining, strict=True) if missing]
    if not wanted:
        return heap
    for position, spot in enumerate(spots):
        if used[position] < len(spot.names):
            bound = 0
            for fits, missing in wanted:
                fit = fits[position]
                bound += fit if fit < missing else missing
            if bound:
                heap.append((-bound, spot.cost, spot.names[used[position]], position))
    heapq.heapify(heap)
    return heap


def _offer(spot: Spot, groups: Sequence[Group], remaining: Sequence[int]) -> list[int]:
    wants = [
        Want(group.need, missing if group.rule in spot.admits else 0)
        for group, missing in zip(groups, remaining, strict=True)
    ]
    return fill(spot.room, wants)


def lay_out_evenly(groups: Sequence[Group], field: Field) -> Layout | None:
    """Lay out all of ``groups`` on as many nodes as possible, or return None."""
    dealt = _deal(groups, field)
    wanted = sum(group.count for group in groups)
    if sum(sum(counts) for counts in dealt.values()) != wanted:
        return None
    return Layout(groups=tuple(groups), nodes=tuple((name, tuple(counts)) for name, counts in dealt.items()))


def _deal(groups: Sequence[Group], field: Field) -> dict[str, list[int]]:
    """Return the replicas of each group by node, as far as they fit."""
    rooms, admits, heap = _nodes(groups, field)
    dealt: dict[str, list[int]] = {}
    for position, group in enumerate(groups):
        heap, passed = _fitting(group, heap, rooms, admits)
        for _ in range(group.count):
            if not heap:
                return dealt
            number, cost, name = heapq.heappop(heap)
            rooms[name], _ = take(rooms[name], group.need, 1)
            dealt.setdefault(name, [0] * len(groups))[position] += 1
            again = (number + 1, cost, name)
            if count(rooms[name], group.need, 1):
                heapq.heappush(heap, again)
            else:
                passed.append(again)
        heap += passed
    return dealt


_Heap = list[tuple[int, Cost, str]]


def _nodes(groups: Sequence[Group], field: Field) -> tuple[dict[str, Room], dict[str, frozenset[int]], _Heap]:
    """Return free capacities, feasible rules, and a heap of nodes; no more nodes of each spot than there are replicas."""
    most = sum(group.count for group in groups)
    rooms: dict[str, Room] = {}
    admits: dict[str, frozenset[int]] = {}
    heap: _Heap = []
    for spot in field.spots:
        for name in spot.names[:most]:
            rooms[name], admits[name] = spot.room, spot.admits
            heap.append((0, spot.cost, name))
    return rooms, admits, heap


def _fitting(
    group: Group, heap: _Heap, rooms: dict[str, Room], admits: dict[str, frozenset[int]]
) -> tuple[_Heap, _Heap]:
    """Return the nodes that take a replica of ``group`` as a heap, and the others."""
    fitting: _Heap = []
    passed: _Heap = []
    for one in heap:
        name = one[2]
        takes = group.rule in admits[name] and count(rooms[name], group.need, 1)
        (fitting if takes else passed).append(one)
    heapq.heapify(fitting)
    return fitting, passed
