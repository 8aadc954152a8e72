"""GPU fragmentation: how much of the free GPUs typical demands cannot use, and where a demand increases it least.

Fragmentation gradient descent: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent", USENIX ATC 2023. A free piece of a GPU is a fragment to a demand that cannot use it: all pieces of a
node that lacks CPU or GPUs for the demand, else the GPUs with too little left. Weighted by the frequency of each demand,
that is a node's waste; a replica goes where the waste grows least.

One term is added: GPUs in excess of what the node's CPUs can serve at the workload's mean. The published gradient notices
missing CPUs only when one more demand does not fit, which is too late: CPU-heavy demands belong on CPU-rich nodes from
the beginning.

Amounts are milli-GPU, in integers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from muster_core.models import GPU_MILLI, Resources
from muster_core.scheduling.placement.demand import Demand, demand_of
from muster_core.scheduling.placement.free_capacity import (
    CPU_AXIS,
    FreeCapacity,
    Need,
    choose_gpus,
    fit_count,
    subtract,
)
from muster_core.scheduling.placement.snapshot import Snapshot

_DEMANDS_KEPT = 32
_CAPACITIES_KEPT = 1 << 16
_COARSE = 20


class Workload(msgspec.Struct, frozen=True, cache_hash=True):
    """Demands for GPUs and their relative frequencies; sorted, so that equal ones hash alike."""

    demands: tuple[tuple[Demand, int], ...]


def workload_of(demands: Iterable[Demand]) -> Workload:
    """Return the distribution of running and waiting demands: the most frequent demands for GPUs with their numbers."""
    numbers = Counter(demand for demand in demands if demand.gpus or demand.gpu_share)
    ranked = sorted(numbers.items(), key=lambda one: (-one[1], msgspec.json.encode(one[0])))
    return Workload(tuple(ranked[:_DEMANDS_KEPT]))


TYPICAL = Workload(
    tuple(
        (demand_of(Resources(cpu=cpu, gpu=gpu)), times)
        for cpu, gpu, times in (
            (4_000, 250, 12),
            (6_000, 500, 10),
            (8_000, 800, 8),
            (8_000, 1_000, 50),
            (16_000, 2_000, 6),
            (32_000, 4_000, 4),
            (64_000, 8_000, 10),
        )
    )
)
"""The default workload: mostly single GPUs, many shares, a few whole nodes, as in published traces of shared clusters."""


class Fragmentation:
    """The waste of free capacities of ``snapshot`` under ``workload``."""

    def __init__(self, snapshot: Snapshot, workload: Workload) -> None:
        self._needs = [(snapshot.need(demand), times) for demand, times in workload.demands]
        self._times = sum(times for _, times in self._needs) or 1
        self._cpu = sum(dict(demand.amounts).get("cpu", 0) * times for demand, times in workload.demands)
        self._gpu = sum(
            (demand.gpus * GPU_MILLI + demand.gpu_share) * times for demand, times in workload.demands
        )
        self._wasted: dict[FreeCapacity, int] = {}

    @property
    def weight(self) -> int:
        """How many capacities are cached."""
        return len(self._wasted)

    def wasted(self, capacity: FreeCapacity) -> int:
        """Return the milli-GPU that demands are expected to leave unused."""
        known = self._wasted.get(capacity)
        if known is None:
            if len(self._wasted) >= _CAPACITIES_KEPT:
                self._wasted.clear()
            expected = sum(times * _wasted_on(capacity, need) for need, times in self._needs) // self._times
            known = self._wasted[capacity] = expected + self._stranded(capacity)
        return known

    def increase(self, capacity: FreeCapacity, need: Need) -> int:
        """Return by how much one replica of ``need`` increases the waste, in units of 20 milli-GPU; may be negative."""
        after = subtract(capacity, need, choose_gpus(capacity, need))
        return (self.wasted(after) - self.wasted(capacity)) // _COARSE

    def _stranded(self, capacity: FreeCapacity) -> int:
        """Return the milli-GPU without CPUs, at the workload's CPUs for each GPU."""
        if not self._cpu:
            return 0
        return max(sum(capacity.gpus) - capacity.free[CPU_AXIS] * self._gpu // self._cpu, 0)


def fragmentation_of(snapshot: Snapshot, workload: Workload) -> Fragmentation:
    """Return the fragmentation of ``snapshot`` under ``workload``, cached with the snapshot."""
    key = ("fragmentation", workload)
    known = snapshot.views.pop(key, None)
    index = known if isinstance(known, Fragmentation) else Fragmentation(snapshot, workload)
    snapshot.views[key] = index
    return index


def _wasted_on(capacity: FreeCapacity, need: Need) -> int:
    if not fit_count(capacity, need, 1):
        return sum(milli for milli in capacity.gpus if milli > 0)
    wanted = need.share or GPU_MILLI
    return sum(milli for milli in capacity.gpus if 0 < milli < wanted)
