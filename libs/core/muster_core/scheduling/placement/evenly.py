"""The strategy ``spread``: as many nodes as possible, evenly, for jobs that need a node's links for themselves.

Replicas are assigned one by one to the cheapest node with the fewest of the gang.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from muster_core.scheduling.placement.field import Cost, Field
from muster_core.scheduling.placement.layout import Group, Layout
from muster_core.scheduling.placement.room import Room, count, take


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
