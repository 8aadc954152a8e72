"""The free capacity of one node and its arithmetic, its NVLink domains, and the largest free amounts of a pool.

Capacities are immutable tuples, so that a checkpoint is a reference and nodes with equal capacity form one class by hashing.

NVLink domains are GPUs of a node that one fast link (NVLink, xGMI) joins, from a node label. Kubernetes has no standard for
it, and label values allow neither commas nor colons, hence the notation: ``0-3_4-7`` means two domains of four, ``0.2_1.3``
two of two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from muster_core.models import GPU_MILLI, Node
from muster_core.scheduling.placement.demand import PODS, Demand

GPU_ISLANDS = "muster.dev/gpu-islands"
"""The label: domains separated by ``_``, each of indices and ranges separated by ``.``."""

Islands = tuple[tuple[int, ...], ...]
"""GPU indices by domain, lowest first."""


def islands_of(node: Node) -> Islands:
    """Return the NVLink domains of ``node``; empty without the label, every GPU by itself if it cannot be parsed."""
    said = node.labels.get(GPU_ISLANDS, "")
    return _read(said, max(node.allocatable.gpu, 0) // GPU_MILLI) if said else ()


@lru_cache(maxsize=1024)
def _read(said: str, gpus: int) -> Islands:
    """GPUs that no domain lists stand alone, and so do all if an index is repeated or invalid."""
    alone = tuple((index,) for index in range(gpus))
    try:
        islands = [tuple(sorted(_indices(one))) for one in said.split("_")]
    except ValueError:
        return alone
    named = [index for island in islands for index in island]
    if len(set(named)) != len(named) or any(not 0 <= index < gpus for index in named):
        return alone
    islands += [(index,) for index in range(gpus) if index not in set(named)]
    return tuple(sorted(islands))


def _indices(island: str) -> list[int]:
    indices: list[int] = []
    for part in island.split("."):
        first, _, last = part.partition("-")
        indices += range(int(first), int(last or first) + 1)
    return indices


BASE_AXES = ("cpu", "memory", "ephemeral_storage", PODS)
"""The resources that every node has; extended ones follow in order of appearance."""

CPU_AXIS = BASE_AXES.index("cpu")
"""The position of milli-CPU."""


class Room(NamedTuple):
    """Free capacity of a node: ``free`` by axis (negative if overcommitted), ``gpus`` in milli-GPU and ``gpu_memory`` in
    bytes by GPU index. ``islands`` are its NVLink domains; empty if unspecified.
    """

    free: tuple[int, ...]
    gpus: tuple[int, ...]
    gpu_memory: tuple[int, ...]
    islands: Islands = ()


class Need(NamedTuple):
    """A demand by axis; ``possible`` is false if it needs a resource that no node has."""

    amounts: tuple[tuple[int, int], ...]
    gpus: int
    share: int
    memory: int
    possible: bool
    together: bool = False


class Want(NamedTuple):
    """Up to ``limit`` replicas of one need."""

    need: Need
    limit: int


def need_of(demand: Demand, axes: dict[str, int]) -> Need:
    """Return ``demand`` on ``axes`` (resource -> position)."""
    return Need(
        amounts=tuple((axes[name], amount) for name, amount in demand.amounts if name in axes),
        gpus=demand.gpus,
        share=demand.gpu_share,
        memory=demand.gpu_memory,
        possible=all(name in axes for name, _ in demand.amounts),
        together=demand.together,
    )


def empty_room(node: Node, axes: dict[str, int]) -> Room:
    """Return the capacity of ``node`` without replicas and before ``foreign`` GPUs are subtracted."""
    amounts = {**node.allocatable.amounts(), PODS: node.pods}
    foreign = node.foreign.amounts()
    gpus = max(node.allocatable.gpu, 0) // GPU_MILLI
    return Room(
        free=tuple(amounts.get(name, 0) - foreign.get(name, 0) for name in axes),
        gpus=(GPU_MILLI,) * gpus,
        gpu_memory=(node.gpu_memory,) * gpus,
        islands=islands_of(node),
    )


def take_foreign_gpus(room: Room, foreign: int) -> Room:
    """Subtract ``foreign`` milli-GPU from the highest GPUs without a replica, then from what is left.

    Which GPUs others use is unknown; taking the highest keeps the lowest, which replicas get first, stable.
    """
    if foreign <= 0:
        return room
    gpus, memory = list(room.gpus), list(room.gpu_memory)
    for untouched in (True, False):
        for index in reversed(range(len(gpus))):
            if foreign > 0 and gpus[index] > 0 and (gpus[index] == GPU_MILLI) is untouched:
                taken = min(foreign, gpus[index])
                memory[index] -= memory[index] * taken // gpus[index]
                gpus[index] -= taken
                foreign -= taken
    return room._replace(gpus=tuple(gpus), gpu_memory=tuple(memory))


def subtract(room: Room, need: Need, gpus: Sequence[int]) -> Room:
    """Return ``room`` after one replica of ``need`` took the GPUs ``gpus``; may be negative."""
    free = list(room.free)
    for axis, amount in need.amounts:
        free[axis] -= amount
    if not gpus:
        return room._replace(free=tuple(free))
    milli, memory = list(room.gpus), list(room.gpu_memory)
    for index in gpus:
        if index >= len(milli):
            continue
        milli[index] -= need.share or GPU_MILLI
        memory[index] -= need.memory if need.share else memory[index]
    return Room(tuple(free), tuple(milli), tuple(memory), room.islands)


def count(room: Room, need: Need, limit: int) -> int:
    """Return how many replicas of ``need`` fit into ``room``, at most ``limit``."""
    if not need.possible:
        return 0
    fit = limit
    free = room.free
    for axis, amount in need.amounts:
        if free[axis] < fit * amount:
            fit = free[axis] // amount
            if fit <= 0:
                return 0
    if need.gpus:
        fit = min(fit, _whole_fit(room, need))
    elif need.share:
        fit = min(fit, sum(_shares(room, need, index) for index in range(len(room.gpus))))
    return fit


def choose_gpus(room: Room, need: Need) -> tuple[int, ...]:
    """Return the GPUs of one replica of ``need`` that fits.

    Whole ones: the lowest, of the fullest NVLink domain that holds them if they must be together; a share: the fullest
    GPU that holds it.
    """
    if need.gpus:
        return tuple(_chosen_whole(room, need, 1))
    if need.share:
        holding = (i for i in range(len(room.gpus)) if _shares(room, need, i))
        return (min(holding, key=lambda i: (room.gpus[i], room.gpu_memory[i], i)),)
    return ()


def take(room: Room, need: Need, number: int) -> tuple[Room, list[tuple[int, ...]]]:
    """Take ``number`` replicas of ``need`` that fit; returns the remaining capacity and each replica's GPUs."""
    if not need.gpus and not need.share:
        free = list(room.free)
        for axis, amount in need.amounts:
            free[axis] -= amount * number
        return room._replace(free=tuple(free)), [()] * number
    if need.gpus:
        return _take_whole(room, need, number)
    chosen: list[tuple[int, ...]] = []
    for _ in range(number):
        gpus = choose_gpus(room, need)
        room = subtract(room, need, gpus)
        chosen.append(gpus)
    return room, chosen


def fill(room: Room, wants: Sequence[Want]) -> list[int]:
    """Return how many replicas of each want fit when taken in this order."""
    counts: list[int] = []
    last = len(wants) - 1
    for position, (need, limit) in enumerate(wants):
        fit = count(room, need, limit) if limit else 0
        if fit and position != last:
            room, _ = take(room, need, fit)
        counts.append(fit)
    return counts


def is_overfull(room: Room) -> bool:
    """Return whether the node is overcommitted."""
    return any(amount < 0 for amounts in (room.free, room.gpus, room.gpu_memory) for amount in amounts)


def whole_gpus(room: Room) -> int:
    """Return the number of unused GPUs."""
    return room.gpus.count(GPU_MILLI)


def _take_whole(room: Room, need: Need, number: int) -> tuple[Room, list[tuple[int, ...]]]:
    free, gpus, memory = list(room.free), list(room.gpus), list(room.gpu_memory)
    for axis, amount in need.amounts:
        free[axis] -= amount * number
    indices = _chosen_whole(room, need, number)
    for index in indices:
        gpus[index] = memory[index] = 0
    chosen = [tuple(indices[at : at + need.gpus]) for at in range(0, len(indices), need.gpus)]
    return Room(tuple(free), tuple(gpus), tuple(memory), room.islands), chosen


def _whole(room: Room, need: Need) -> list[int]:
    """Return the unused GPUs with enough memory, lowest first."""
    memory = room.gpu_memory
    return [i for i, milli in enumerate(room.gpus) if milli == GPU_MILLI and memory[i] >= need.memory]


def _whole_fit(room: Room, need: Need) -> int:
    if need.together and room.islands:
        return sum(len(free) // need.gpus for free in _free_by_island(room, need))
    return (len(_whole(room, need)) if need.memory else whole_gpus(room)) // need.gpus


def _chosen_whole(room: Room, need: Need, number: int) -> list[int]:
    """Return the GPUs of ``number`` replicas, one after the other."""
    if not need.together or not room.islands:
        return _whole(room, need)[: need.gpus * number]
    chosen: list[int] = []
    islands = _free_by_island(room, need)
    for _ in range(number):
        island = min((free for free in islands if len(free) >= need.gpus), key=lambda free: (len(free), free))
        chosen += island[: need.gpus]
        del island[: need.gpus]
    return chosen


def _free_by_island(room: Room, need: Need) -> list[list[int]]:
    free = set(_whole(room, need))
    return [[index for index in island if index in free] for island in room.islands]


def _shares(room: Room, need: Need, index: int) -> int:
    # An overcommitted GPU has 0 free, not a negative amount.
    fit = max(room.gpus[index], 0) // need.share
    return min(fit, max(room.gpu_memory[index], 0) // need.memory) if need.memory else fit


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
