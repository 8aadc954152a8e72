"""Placement: a gang on feasible nodes, all at once, or a shortfall in numbers.

Pure and deterministic: the same job on the same nodes gets the same placement on every machine.
"""

from muster_core.scheduling.placement.demand import Demand, demand_of
from muster_core.scheduling.placement.fragmentation import TYPICAL, Workload, workload_of
from muster_core.scheduling.placement.gang import (
    Gang,
    GangRole,
    Placement,
    feasible_when_empty,
    find_room,
    gang_of,
    has_chance,
    place,
)
from muster_core.scheduling.placement.growth import place_more
from muster_core.scheduling.placement.shortfall import Shortfall, to_reason
from muster_core.scheduling.placement.snapshot import Allocation, AllocationKey, Snapshot, allocation_of

__all__ = [
    "TYPICAL",
    "Allocation",
    "AllocationKey",
    "Demand",
    "Gang",
    "GangRole",
    "Placement",
    "Shortfall",
    "Snapshot",
    "Workload",
    "allocation_of",
    "demand_of",
    "feasible_when_empty",
    "find_room",
    "gang_of",
    "has_chance",
    "place",
    "place_more",
    "to_reason",
    "workload_of",
]
