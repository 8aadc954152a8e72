"""The free room of one node, and the arithmetic of taking from it.

Rooms are immutable tuples, so that a checkpoint is a reference and nodes with equal rooms fall into one class by hashing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from muster_core.models import GPU_MILLI, Node
from muster_core.scheduling.placement.demand import PODS, Demand
from muster_core.scheduling.placement.islands import Islands, islands_of

BASE_AXES = ("cpu", "memory", "ephemeral_storage", PODS)
"""The resources that every node has; extended ones follow in the order in which they were met."""

CPU_AXIS = BASE_AXES.index("cpu")
"""The position of milli-CPU."""


class Room(NamedTuple):
    """What is free on a node: ``free`` by axis (negative where others took too much), ``gpus`` in milli-GPU and ``gpu_memory`` in bytes by
    GPU index. ``islands`` are the GPUs that one fast link joins; empty where the node does not say."""

    free: tuple[int, ...]
    gpus: tuple[int, ...]
    gpu_memory: tuple[int, ...]
    islands: Islands = ()


class Need(NamedTuple):
    """A demand by axis; ``possible`` is false where it asks for a resource that no node has."""

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
    """``demand`` on ``axes`` (resource -> position)."""
    return Need(
        amounts=tuple((axes[name], amount) for name, amount in demand.amounts if name in axes),
        gpus=demand.gpus,
        share=demand.gpu_share,
        memory=demand.gpu_memory,
        possible=all(name in axes for name, _ in demand.amounts),
        together=demand.together,
    )


def empty_room(node: Node, axes: dict[str, int]) -> Room:
    """The room of ``node`` without any replica and before ``foreign`` GPUs are taken off."""
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
    """Take ``foreign`` milli-GPU off the highest GPUs that no replica uses, then off whatever is left.

    Nobody says which GPUs others use; taking the highest keeps the lowest, which replicas are given first, stable.
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
    """``room`` after one replica of ``need`` took the GPUs ``gpus``; may go negative."""
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
    """How many replicas of ``need`` fit in ``room``, at most ``limit``."""
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
    """The GPUs for one replica of ``need``, which ``count`` found to fit.

    Whole ones: the lowest, of the fullest island that still holds them where they must be together; a share: the fullest GPU
    that still holds it.
    """
    if need.gpus:
        return tuple(_chosen_whole(room, need, 1))
    if need.share:
        holding = (i for i in range(len(room.gpus)) if _shares(room, need, i))
        return (min(holding, key=lambda i: (room.gpus[i], room.gpu_memory[i], i)),)
    return ()


def take(room: Room, need: Need, number: int) -> tuple[Room, list[tuple[int, ...]]]:
    """Take ``number`` replicas of ``need``, which ``count`` found to fit; the room left and each replica's GPUs."""
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
    """How many replicas of each want fit when they are taken in this order."""
    counts: list[int] = []
    last = len(wants) - 1
    for position, (need, limit) in enumerate(wants):
        fit = count(room, need, limit) if limit else 0
        if fit and position != last:
            room, _ = take(room, need, fit)
        counts.append(fit)
    return counts


def is_overfull(room: Room) -> bool:
    """Whether more was taken than there was."""
    return any(amount < 0 for amounts in (room.free, room.gpus, room.gpu_memory) for amount in amounts)


def whole_gpus(room: Room) -> int:
    """The number of GPUs that nobody uses."""
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
    """The GPUs that nobody uses and that have the memory, lowest first."""
    memory = room.gpu_memory
    return [i for i, milli in enumerate(room.gpus) if milli == GPU_MILLI and memory[i] >= need.memory]


def _whole_fit(room: Room, need: Need) -> int:
    if need.together and room.islands:
        return sum(len(free) // need.gpus for free in _free_by_island(room, need))
    return (len(_whole(room, need)) if need.memory else whole_gpus(room)) // need.gpus


def _chosen_whole(room: Room, need: Need, number: int) -> list[int]:
    """The GPUs of ``number`` replicas, one replica's after the other's."""
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
    # A GPU of which too much was taken holds nothing, and not a negative number.
    fit = max(room.gpus[index], 0) // need.share
    return min(fit, max(room.gpu_memory[index], 0) // need.memory) if need.memory else fit
