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

NVLINK_DOMAINS_LABEL = "muster.dev/nvlink-domains"
"""The label: domains separated by ``_``, each of indices and ranges separated by ``.``."""

NvlinkDomains = tuple[tuple[int, ...], ...]
"""GPU indices by domain, lowest first."""


def nvlink_domains_of(node: Node) -> NvlinkDomains:
    """Return the NVLink domains of ``node``; empty without the label, every GPU by itself if it cannot be parsed."""
    raw = node.labels.get(NVLINK_DOMAINS_LABEL, "")
    return _read(raw, max(node.allocatable.gpu, 0) // GPU_MILLI) if raw else ()


@lru_cache(maxsize=1024)
def _read(raw: str, gpus: int) -> NvlinkDomains:
    """GPUs that no domain lists stand alone, and so do all if an index is repeated or invalid."""
    alone = tuple((index,) for index in range(gpus))
    try:
        nvlink_domains = [tuple(sorted(_indices(one))) for one in raw.split("_")]
    except ValueError:
        return alone
    named = [index for domain in nvlink_domains for index in domain]
    if len(set(named)) != len(named) or any(not 0 <= index < gpus for index in named):
        return alone
    nvlink_domains += [(index,) for index in range(gpus) if index not in set(named)]
    return tuple(sorted(nvlink_domains))


def _indices(domain: str) -> list[int]:
    indices: list[int] = []
    for part in domain.split("."):
        first, _, last = part.partition("-")
        indices += range(int(first), int(last or first) + 1)
    return indices


BASE_AXES = ("cpu", "memory", "ephemeral_storage", PODS)
"""The resources that every node has; extended ones follow in order of appearance."""

CPU_AXIS = BASE_AXES.index("cpu")
"""The position of milli-CPU."""


class FreeCapacity(NamedTuple):
    """Free capacity of a node: ``free`` by axis (negative if overcommitted), ``gpus`` in milli-GPU and ``gpu_memory`` in
    bytes by GPU index. ``nvlink_domains`` are its NVLink domains; empty if unspecified.
    """

    free: tuple[int, ...]
    gpus: tuple[int, ...]
    gpu_memory: tuple[int, ...]
    nvlink_domains: NvlinkDomains = ()


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


def empty_capacity(node: Node, axes: dict[str, int]) -> FreeCapacity:
    """Return the capacity of ``node`` without replicas and before ``foreign`` GPUs are subtracted."""
    amounts = {**node.allocatable.amounts(), PODS: node.pods}
    foreign = node.foreign.amounts()
    gpus = max(node.allocatable.gpu, 0) // GPU_MILLI
    return FreeCapacity(
        free=tuple(amounts.get(name, 0) - foreign.get(name, 0) for name in axes),
        gpus=(GPU_MILLI,) * gpus,
        gpu_memory=(node.gpu_memory,) * gpus,
        nvlink_domains=nvlink_domains_of(node),
    )


def subtract_foreign_gpus(capacity: FreeCapacity, foreign: int) -> FreeCapacity:
    """Subtract ``foreign`` milli-GPU from the highest GPUs without a replica, then from what is left.

    Which GPUs others use is unknown; taking the highest keeps the lowest, which replicas get first, stable.
    """
    if foreign <= 0:
        return capacity
    gpus, memory = list(capacity.gpus), list(capacity.gpu_memory)
    for untouched in (True, False):
        for index in reversed(range(len(gpus))):
            if foreign > 0 and gpus[index] > 0 and (gpus[index] == GPU_MILLI) is untouched:
                taken = min(foreign, gpus[index])
                memory[index] -= memory[index] * taken // gpus[index]
                gpus[index] -= taken
                foreign -= taken
    return capacity._replace(gpus=tuple(gpus), gpu_memory=tuple(memory))


def subtract(capacity: FreeCapacity, need: Need, gpus: Sequence[int]) -> FreeCapacity:
    """Return ``capacity`` after one replica of ``need`` took the GPUs ``gpus``; may be negative."""
    free = list(capacity.free)
    for axis, amount in need.amounts:
        free[axis] -= amount
    if not gpus:
        return capacity._replace(free=tuple(free))
    milli, memory = list(capacity.gpus), list(capacity.gpu_memory)
    for index in gpus:
        if index >= len(milli):
            continue
        milli[index] -= need.share or GPU_MILLI
        memory[index] -= need.memory if need.share else memory[index]
    return FreeCapacity(tuple(free), tuple(milli), tuple(memory), capacity.nvlink_domains)


def count(capacity: FreeCapacity, need: Need, limit: int) -> int:
    """Return how many replicas of ``need`` fit into ``capacity``, at most ``limit``."""
    if not need.possible:
        return 0
    fit = limit
    free = capacity.free
    for axis, amount in need.amounts:
        if free[axis] < fit * amount:
            fit = free[axis] // amount
            if fit <= 0:
                return 0
    if need.gpus:
        fit = min(fit, _whole_fit(capacity, need))
    elif need.share:
        fit = min(fit, sum(_shares(capacity, need, index) for index in range(len(capacity.gpus))))
    return fit


def choose_gpus(capacity: FreeCapacity, need: Need) -> tuple[int, ...]:
    """Return the GPUs of one replica of ``need`` that fits.

    Whole ones: the lowest, of the fullest NVLink domain that holds them if they must be together; a share: the fullest
    GPU that holds it.
    """
    if need.gpus:
        return tuple(_chosen_whole(capacity, need, 1))
    if need.share:
        at_least = (i for i in range(len(capacity.gpus)) if _shares(capacity, need, i))
        return (min(at_least, key=lambda i: (capacity.gpus[i], capacity.gpu_memory[i], i)),)
    return ()


def take(capacity: FreeCapacity, need: Need, number: int) -> tuple[FreeCapacity, list[tuple[int, ...]]]:
    """Take ``number`` replicas of ``need`` that fit; returns the remaining capacity and each replica's GPUs."""
    if not need.gpus and not need.share:
        free = list(capacity.free)
        for axis, amount in need.amounts:
            free[axis] -= amount * number
        return capacity._replace(free=tuple(free)), [()] * number
    if need.gpus:
        return _take_whole(capacity, need, number)
    chosen: list[tuple[int, ...]] = []
    for _ in range(number):
        gpus = choose_gpus(capacity, need)
        capacity = subtract(capacity, need, gpus)
        chosen.append(gpus)
    return capacity, chosen


def fill(capacity: FreeCapacity, wants: Sequence[Want]) -> list[int]:
    """Return how many replicas of each want fit when taken in this order."""
    counts: list[int] = []
    last = len(wants) - 1
    for position, (need, limit) in enumerate(wants):
        fit = count(capacity, need, limit) if limit else 0
        if fit and position != last:
            capacity, _ = take(capacity, need, fit)
        counts.append(fit)
    return counts


def is_overcommitted(capacity: FreeCapacity) -> bool:
    """Return whether the node is overcommitted."""
    return any(
        amount < 0 for amounts in (capacity.free, capacity.gpus, capacity.gpu_memory) for amount in amounts
    )


def unused_gpus(capacity: FreeCapacity) -> int:
    """Return the number of unused GPUs."""
    return capacity.gpus.count(GPU_MILLI)


def _take_whole(
    capacity: FreeCapacity, need: Need, number: int
) -> tuple[FreeCapacity, list[tuple[int, ...]]]:
    free, gpus, memory = list(capacity.free), list(capacity.gpus), list(capacity.gpu_memory)
    for axis, amount in need.amounts:
        free[axis] -= amount * number
    indices = _chosen_whole(capacity, need, number)
    for index in indices:
        gpus[index] = memory[index] = 0
    chosen = [tuple(indices[at : at + need.gpus]) for at in range(0, len(indices), need.gpus)]
    return FreeCapacity(tuple(free), tuple(gpus), tuple(memory), capacity.nvlink_domains), chosen


def _whole(capacity: FreeCapacity, need: Need) -> list[int]:
    """Return the unused GPUs with enough memory, lowest first."""
    memory = capacity.gpu_memory
    return [i for i, milli in enumerate(capacity.gpus) if milli == GPU_MILLI and memory[i] >= need.memory]


def _whole_fit(capacity: FreeCapacity, need: Need) -> int:
    if need.together and capacity.nvlink_domains:
        return sum(len(free) // need.gpus for free in _free_by_domain(capacity, need))
    return (len(_whole(capacity, need)) if need.memory else unused_gpus(capacity)) // need.gpus


def _chosen_whole(capacity: FreeCapacity, need: Need, number: int) -> list[int]:
    """Return the GPUs of ``number`` replicas, one after the other."""
    if not need.together or not capacity.nvlink_domains:
        return _whole(capacity, need)[: need.gpus * number]
    chosen: list[int] = []
    nvlink_domains = _free_by_domain(capacity, need)
    for _ in range(number):
        domain = min(
            (free for free in nvlink_domains if len(free) >= need.gpus), key=lambda free: (len(free), free)
        )
        chosen += domain[: need.gpus]
        del domain[: need.gpus]
    return chosen


def _free_by_domain(capacity: FreeCapacity, need: Need) -> list[list[int]]:
    free = set(_whole(capacity, need))
    return [[index for index in domain if index in free] for domain in capacity.nvlink_domains]


def _shares(capacity: FreeCapacity, need: Need, index: int) -> int:
    # An overcommitted GPU has 0 free, not a negative amount.
    fit = max(capacity.gpus[index], 0) // need.share
    return min(fit, max(capacity.gpu_memory[index], 0) // need.memory) if need.memory else fit


class LargestFree(NamedTuple):
    """The largest amounts by axis, whole GPUs on a node, and part of one GPU (milli)."""

    free: tuple[int, ...]
    gpus: int
    share: int

    def may_fit(self, need: Need) -> bool:
        """Return whether one replica of ``need`` might fit somewhere; False is definite."""
        return (
            need.possible
            and need.gpus <= self.gpus
            and need.share <= self.share
            and all(amount <= self.free[axis] for axis, amount in need.amounts)
        )


def largest_free_of(capacities: Iterable[FreeCapacity], axes: int) -> LargestFree:
    """Return the reach of ``capacities`` with this many ``axes``; all 0 if there are none."""
    free = [0] * axes
    gpus = share = 0
    for capacity in capacities:
        free = [max(pair) for pair in zip(free, capacity.free, strict=True)]
        if capacity.gpus:
            gpus = max(gpus, unused_gpus(capacity))
            share = max(share, *capacity.gpus)
    return LargestFree(tuple(free), gpus, share)
