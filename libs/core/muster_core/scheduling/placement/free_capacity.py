"""The free capacity of one node and its arithmetic, its NVLink domains, and the largest free amounts of a pool.

Capacities are immutable tuples, so that a checkpoint is a reference and nodes with equal capacity form one class by hashing.

An NVLink domain is the GPUs of a node that one fast link (NVLink, xGMI) joins, from a node label. Kubernetes has no standard
label, and label values allow neither commas nor colons: ``0-3_4-7`` means two domains of four, ``0.2_1.3`` two of two.
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
    """Return the NVLink domains of ``node``; empty without the label.

    A GPU that is not listed is a domain by itself, and so is every GPU if the label is invalid or repeats an index.
    """
    label = node.labels.get(NVLINK_DOMAINS_LABEL, "")
    return _parse_domains(label, max(node.allocatable.gpu, 0) // GPU_MILLI) if label else ()


@lru_cache(maxsize=1024)
def _parse_domains(label: str, gpus: int) -> NvlinkDomains:
    try:
        domains = [tuple(sorted(_indices(one))) for one in label.split("_")]
    except ValueError:
        domains = []
    listed = [index for domain in domains for index in domain]
    if len(set(listed)) != len(listed) or any(not 0 <= index < gpus for index in listed):
        domains, listed = [], []
    return tuple(sorted(domains + [(index,) for index in range(gpus) if index not in listed]))


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
    """Free capacity of a node, negative if overcommitted: ``free`` by axis, ``gpus`` in milli-GPU and ``gpu_memory`` in
    bytes by GPU index. ``nvlink_domains`` is empty if the node has no label for it.
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
    """Return the capacity of ``node`` without replicas, before the GPUs of unknown index that others use are subtracted."""
    amounts = {**node.allocatable.amounts(), PODS: node.pods}
    foreign = node.foreign.amounts()
    gpus = [GPU_MILLI - node.foreign_gpus.get(index, 0) for index in range(_gpu_count(node))]
    return FreeCapacity(
        free=tuple(amounts.get(name, 0) - foreign.get(name, 0) for name in axes),
        gpus=tuple(gpus),
        gpu_memory=tuple(node.gpu_memory * max(free, 0) // GPU_MILLI for free in gpus),
        nvlink_domains=nvlink_domains_of(node),
    )


def unindexed_foreign_gpu(node: Node) -> int:
    """Return the milli-GPU that others use of GPUs whose index is unknown."""
    return node.foreign.gpu - sum(node.foreign_gpus.values())


def _gpu_count(node: Node) -> int:
    return max(node.allocatable.gpu, 0) // GPU_MILLI


def subtract_foreign_gpus(capacity: FreeCapacity, foreign: int) -> FreeCapacity:
    """Subtract ``foreign`` milli-GPU, which other pods use, from the highest GPUs without a replica, then from the others.

    Which GPUs they use is unknown. Replicas get the lowest first, so that these stay stable.
    """
    if foreign <= 0:
        return capacity
    gpus, memory = list(capacity.gpus), list(capacity.gpu_memory)
    for unused in (True, False):
        for index in reversed(range(len(gpus))):
            if foreign > 0 and gpus[index] > 0 and (gpus[index] == GPU_MILLI) is unused:
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


def fit_count(capacity: FreeCapacity, need: Need, limit: int) -> int:
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
        fit = min(fit, _count_whole(capacity, need))
    elif need.share:
        fit = min(fit, sum(_shares(capacity, need, index) for index in range(len(capacity.gpus))))
    return fit


def fit_counts(capacity: FreeCapacity, wants: Sequence[Want]) -> list[int]:
    """Return how many replicas of each want fit when taken in this order."""
    counts: list[int] = []
    last = len(wants) - 1
    for position, (need, limit) in enumerate(wants):
        fit = fit_count(capacity, need, limit) if limit else 0
        if fit and position != last:
            capacity, _ = take(capacity, need, fit)
        counts.append(fit)
    return counts


def choose_gpus(capacity: FreeCapacity, need: Need) -> tuple[int, ...]:
    """Return the GPUs of one replica of ``need``, which fits.

    Whole GPUs are the lowest, of the fullest NVLink domain that has enough if they must be together. A share goes to the
    fullest GPU that has enough.
    """
    if need.gpus:
        return tuple(_choose_whole(capacity, need, 1))
    if need.share:
        feasible = (i for i in range(len(capacity.gpus)) if _shares(capacity, need, i))
        return (min(feasible, key=lambda i: (capacity.gpus[i], capacity.gpu_memory[i], i)),)
    return ()


def take(capacity: FreeCapacity, need: Need, number: int) -> tuple[FreeCapacity, list[tuple[int, ...]]]:
    """Take ``number`` replicas of ``need`` that fit; returns the remaining capacity and each replica's GPUs."""
    if need.share:
        shares: list[tuple[int, ...]] = []
        for _ in range(number):
            shares.append(choose_gpus(capacity, need))
            capacity = subtract(capacity, need, shares[-1])
        return capacity, shares
    free = list(capacity.free)
    for axis, amount in need.amounts:
        free[axis] -= amount * number
    if not need.gpus:
        return capacity._replace(free=tuple(free)), [()] * number
    gpus, memory = list(capacity.gpus), list(capacity.gpu_memory)
    indices = _choose_whole(capacity, need, number)
    for index in indices:
        gpus[index] = memory[index] = 0
    chosen = [tuple(indices[at : at + need.gpus]) for at in range(0, len(indices), need.gpus)]
    return FreeCapacity(tuple(free), tuple(gpus), tuple(memory), capacity.nvlink_domains), chosen


def is_overcommitted(capacity: FreeCapacity) -> bool:
    """Return whether some free amount is negative."""
    return any(amount < 0 for amounts in capacity[:3] for amount in amounts)


def unused_gpus(capacity: FreeCapacity) -> int:
    """Return the number of unused GPUs."""
    return capacity.gpus.count(GPU_MILLI)


def _whole(capacity: FreeCapacity, need: Need) -> list[int]:
    """Return the unused GPUs with enough memory, lowest first."""
    memory = capacity.gpu_memory
    return [i for i, milli in enumerate(capacity.gpus) if milli == GPU_MILLI and memory[i] >= need.memory]


def _count_whole(capacity: FreeCapacity, need: Need) -> int:
    if need.together and capacity.nvlink_domains:
        return sum(len(free) // need.gpus for free in _free_by_domain(capacity, need))
    return (len(_whole(capacity, need)) if need.memory else unused_gpus(capacity)) // need.gpus


def _choose_whole(capacity: FreeCapacity, need: Need, number: int) -> list[int]:
    """Return the GPUs of ``number`` replicas, one after the other."""
    if not need.together or not capacity.nvlink_domains:
        return _whole(capacity, need)[: need.gpus * number]
    chosen: list[int] = []
    domains = _free_by_domain(capacity, need)
    for _ in range(number):
        fullest = min(
            (free for free in domains if len(free) >= need.gpus), key=lambda free: (len(free), free)
        )
        chosen += fullest[: need.gpus]
        del fullest[: need.gpus]
    return chosen


def _free_by_domain(capacity: FreeCapacity, need: Need) -> list[list[int]]:
    free = set(_whole(capacity, need))
    return [[index for index in domain if index in free] for domain in capacity.nvlink_domains]


def _shares(capacity: FreeCapacity, need: Need, index: int) -> int:
    # An overcommitted GPU has 0 free, not a negative amount.
    fit = max(capacity.gpus[index], 0) // need.share
    return min(fit, max(capacity.gpu_memory[index], 0) // need.memory) if need.memory else fit


class LargestFree(NamedTuple):
    """The largest free amounts on any node: by axis, in whole GPUs, and of one GPU (milli)."""

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
    """Return the largest free amounts of ``capacities`` on this many ``axes``; all 0 if there are none."""
    free = [0] * axes
    gpus = share = 0
    for capacity in capacities:
        free = [max(pair) for pair in zip(free, capacity.free, strict=True)]
        gpus = max(gpus, unused_gpus(capacity))
        share = max(share, *capacity.gpus, 0)
    return LargestFree(tuple(free), gpus, share)
