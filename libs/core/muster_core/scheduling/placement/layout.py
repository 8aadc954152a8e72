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
from muster_core.scheduling.placement.candidates import Candidates, Cost, NodeSet
from muster_core.scheduling.placement.demand import ReplicaRequest
from muster_core.scheduling.placement.fit_index import pack_among
from muster_core.scheduling.placement.free_capacity import (
    FreeCapacity,
    Need,
    Want,
    fit_count,
    fit_counts,
    take,
    unused_gpus,
)

_FEWEST = 2
"""The least number of nodes if one does not suffice."""


class ReplicaGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Interchangeable replicas of one role, lowest index first; ``rule`` is the number of their rules in the candidates."""

    role: str
    indices: Sequence[int]
    request: ReplicaRequest
    need: Need
    rule: int
    anchor: bool = False

    @property
    def count(self) -> int:
        """The number of replicas."""
        return len(self.indices)


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """``nodes`` are (name, replicas of each of ``groups``), in the order of choice."""

    groups: tuple[ReplicaGroup, ...]
    nodes: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def rank(self) -> tuple[int, int]:
        """The number of nodes, and minus the number of replicas that share a node with an anchor; less is better."""
        anchors = [position for position, group in enumerate(self.groups) if group.anchor]
        near = sum(sum(counts) for _, counts in self.nodes if any(counts[position] for position in anchors))
        return (len(self.nodes), -near)


class _Total(NamedTuple):
    """What groups take in total: by axis, and in whole GPUs."""

    amounts: tuple[tuple[int, int], ...]
    gpus: int


def lay_out(groups: Sequence[ReplicaGroup], candidates: Candidates) -> Layout | None:
    """Return a layout of all of ``groups`` on as few nodes as possible, or None; independent of the order of node sets."""
    if len(groups) == 1:
        return _one_group(groups[0], candidates)
    on_one = on_one_node(groups, candidates)
    if on_one is not None:
        return on_one
    node_sets = candidates.node_sets
    if not _enough_in_all(_total(groups), node_sets):
        return None
    alone = _alone(groups, node_sets)
    best: Layout | None = None
    for order in _orders(groups):
        ordered = tuple(groups[position] for position in order)
        remaining, nodes = _search(ordered, node_sets, [alone[position] for position in order])
        layout = None if any(remaining) else Layout(groups=ordered, nodes=tuple(nodes))
        if layout is not None and (best is None or layout.rank < best.rank):
            best = layout
        if best is not None and len(best.nodes) <= _FEWEST:
            break
    return best


def on_one_node(groups: Sequence[ReplicaGroup], candidates: Candidates) -> Layout | None:
    """Return a layout of all of ``groups`` on the cheapest node that holds them, or None."""
    if candidates.names is not None:
        return _on_one(groups, _total(groups), candidates.node_sets)
    if len(groups) == 1:
        best = candidates.fit_index(groups[0].request).best(groups[0].count)
    else:
        best = candidates.joint_fit_index([(group.request, group.count) for group in groups]).best(1)
    if best is None:
        return None
    return Layout(groups=tuple(groups), nodes=((best.name, tuple(group.count for group in groups)),))


def most_that_fit(groups: Sequence[ReplicaGroup], candidates: Candidates) -> int:
    """Return how many of the replicas the search places."""
    if len(groups) == 1 and candidates.names is None:
        return min(candidates.fit_index(groups[0].request).total, groups[0].count)
    remaining, _ = _search(groups, candidates.node_sets, _alone(groups, candidates.node_sets))
    return sum(group.count for group in groups) - sum(remaining)


def lay_out_spread(groups: Sequence[ReplicaGroup], candidates: Candidates) -> Layout | None:
    """Return a layout of all of ``groups`` on as many nodes as possible, or None."""
    most = sum(group.count for group in groups)
    heap: list[tuple[int, Cost, str]] = []
    capacities: dict[str, FreeCapacity] = {}
    rules: dict[str, frozenset[int]] = {}
    for node_set in candidates.node_sets:
        # Nodes of a set are equal, so no more of them are used than there are replicas.
        for name in node_set.names[:most]:
            heap.append((0, node_set.cost, name))
            capacities[name], rules[name] = node_set.capacity, node_set.feasible_for
    counts: dict[str, list[int]] = {}
    for position, group in enumerate(groups):
        need = group.need
        feasible = {
            n for n, free in capacities.items() if group.rule in rules[n] and fit_count(free, need, 1)
        }
        full = [one for one in heap if one[2] not in feasible]
        heap = [one for one in heap if one[2] in feasible]
        heapq.heapify(heap)
        for _ in range(group.count):
            if not heap:
                return None
            number, cost, name = heapq.heappop(heap)
            capacities[name], _ = take(capacities[name], need, 1)
            counts.setdefault(name, [0] * len(groups))[position] += 1
            if fit_count(capacities[name], need, 1):
                heapq.heappush(heap, (number + 1, cost, name))
            else:
                full.append((number + 1, cost, name))
        heap += full
    return Layout(groups=tuple(groups), nodes=tuple((name, tuple(some)) for name, some in counts.items()))


def _one_group(group: ReplicaGroup, candidates: Candidates) -> Layout | None:
    index = candidates.fit_index(group.request)
    names = candidates.names
    chosen = index.pack(group.count) if names is None else pack_among(index.among(names), group.count)
    if chosen is None:
        return None
    return Layout(groups=(group,), nodes=tuple((name, (number,)) for name, number in chosen))


def _total(groups: Sequence[ReplicaGroup]) -> _Total:
    total: dict[int, int] = {}
    for group in groups:
        for axis, amount in group.need.amounts:
            total[axis] = total.get(axis, 0) + amount * group.count
    return _Total(tuple(total.items()), sum(group.need.gpus * group.count for group in groups))


def _enough_in_all(total: _Total, node_sets: Iterable[NodeSet]) -> bool:
    """Return whether all nodes together have enough capacity, which is cheap and detects most misfits."""
    missing, gpus = dict(total.amounts), total.gpus
    for node_set in node_sets:
        nodes = len(node_set.names)
        gpus -= unused_gpus(node_set.capacity) * nodes if gpus > 0 else 0
        free = node_set.capacity.free
        for axis in tuple(missing):
            if free[axis] > 0:
                missing[axis] -= free[axis] * nodes
                if missing[axis] <= 0:
                    del missing[axis]
        if not missing and gpus <= 0:
            return True
    return False


def _on_one(groups: Sequence[ReplicaGroup], total: _Total, node_sets: Iterable[NodeSet]) -> Layout | None:
    rules = {group.rule for group in groups}
    fitting = [
        (node_set.cost, node_set.names[0], node_set.capacity)
        for node_set in node_sets
        if _covers(node_set.capacity, total) and rules <= node_set.feasible_for
    ]
    heapq.heapify(fitting)
    while fitting:
        _, name, capacity = heapq.heappop(fitting)
        counts = fit_counts(capacity, [Want(group.need, group.count) for group in groups])
        if all(number == group.count for number, group in zip(counts, groups, strict=True)):
            return Layout(groups=tuple(groups), nodes=((name, tuple(counts)),))
    return None


def _covers(capacity: FreeCapacity, total: _Total) -> bool:
    free = capacity.free
    for axis, amount in total.amounts:
        if free[axis] < amount:
            return False
    return not total.gpus or unused_gpus(capacity) >= total.gpus


def _orders(groups: Sequence[ReplicaGroup]) -> list[tuple[int, ...]]:
    """Return distinct orders of ``groups``, as positions: as given (anchors first), anchors last, largest demands first."""
    positions = range(len(groups))
    orders = (
        tuple(positions),
        tuple(sorted(positions, key=lambda position: groups[position].anchor)),
        tuple(sorted(positions, key=lambda position: _bulk(groups[position]), reverse=True)),
    )
    return list(dict.fromkeys(orders))


def _bulk(group: ReplicaGroup) -> tuple[int, int, int]:
    amounts = dict(group.request.demand.amounts)
    gpu = group.need.gpus * GPU_MILLI + group.need.share
    return (gpu, amounts.get("cpu", 0), amounts.get("memory", 0))


def _alone(groups: Sequence[ReplicaGroup], node_sets: Sequence[NodeSet]) -> list[list[int]]:
    """Return for each group how many of its replicas a node of each set could take alone."""
    return [
        [
            fit_count(node_set.capacity, group.need, group.count)
            if group.rule in node_set.feasible_for
            else 0
            for node_set in node_sets
        ]
        for group in groups
    ]


def _search(
    groups: Sequence[ReplicaGroup], node_sets: Sequence[NodeSet], alone: list[list[int]]
) -> tuple[list[int], list[tuple[str, tuple[int, ...]]]]:
    """Return the replicas of each group that are still missing, and the chosen nodes.

    A heap holds upper bounds of what each node could take; the exact number is computed at the top. When a group is
    complete the bounds change, so the heap is rebuilt.
    """
    remaining = [group.count for group in groups]
    nodes: list[tuple[str, tuple[int, ...]]] = []
    used = [0] * len(node_sets)
    heap = _bounds(node_sets, alone, remaining, used)
    while heap and any(remaining):
        bound, cost, name, position = heapq.heappop(heap)
        node_set = node_sets[position]
        counts = _offer(node_set, groups, remaining)
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
            heap = _bounds(node_sets, alone, remaining, used)
        elif used[position] < len(node_set.names):
            heapq.heappush(heap, (bound, cost, node_set.names[used[position]], position))
    return remaining, nodes


def _bounds(
    node_sets: Sequence[NodeSet], alone: list[list[int]], remaining: Sequence[int], used: Sequence[int]
) -> list[tuple[int, Cost, str, int]]:
    heap: list[tuple[int, Cost, str, int]] = []
    wanted = [(fits, missing) for fits, missing in zip(alone, remaining, strict=True) if missing]
    if not wanted:
        return heap
    for position, node_set in enumerate(node_sets):
        if used[position] < len(node_set.names):
            bound = 0
            for fits, missing in wanted:
                fit = fits[position]
                bound += fit if fit < missing else missing
            if bound:
                heap.append((-bound, node_set.cost, node_set.names[used[position]], position))
    heapq.heapify(heap)
    return heap


def _offer(node_set: NodeSet, groups: Sequence[ReplicaGroup], remaining: Sequence[int]) -> list[int]:
    wants = [
        Want(group.need, missing if group.rule in node_set.feasible_for else 0)
        for group, missing in zip(groups, remaining, strict=True)
    ]
    return fit_counts(node_set.capacity, wants)
