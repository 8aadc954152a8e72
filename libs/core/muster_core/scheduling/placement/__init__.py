"""Placement of gangs: feasible nodes for all replicas at once, or a diagnosis in numbers.

Pure and deterministic: the same job on the same nodes gets the same placement on every machine.

``snapshot`` holds nodes, allocations and free capacity; ``free_capacity`` is the arithmetic of one node. ``filters`` has the
node rules of Kubernetes, ``affinity`` the rules between replicas, ``demand`` what one replica asks for. ``candidates`` are
the feasible nodes, ``fit_index`` how many replicas fit on each, ``fragmentation`` what a choice costs. ``gang`` places a
gang and ``growth`` the replicas added to one, by ``topology``, ``layout`` and ``affinity_layout``. ``shortfall`` diagnoses
a gang that does not fit.
"""

from muster_core.scheduling.placement.affinity import peer_of
from muster_core.scheduling.placement.candidates import Field
from muster_core.scheduling.placement.demand import (
    PODS,
    Demand,
    Slot,
    demand_of,
    is_anchor,
    is_pinned,
    slot_of,
    without_peer,
)
from muster_core.scheduling.placement.filters import (
    NODE_AFFINITY,
    NODE_SELECTOR,
    POD_AFFINITY,
    POD_RULES,
    TAINT,
    TOPOLOGY,
    barring,
    refusal,
    rules_of,
    tolerates,
)
from muster_core.scheduling.placement.fragmentation import TYPICAL, Workload, workload_of
from muster_core.scheduling.placement.free_capacity import Need, Room, Want, count, fill, whole_gpus
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
from muster_core.scheduling.placement.shortfall import (
    NO_MATCHING_NODE,
    Miss,
    Shortfall,
    constraint_in_words,
    nearest_miss,
    to_reason,
)
from muster_core.scheduling.placement.snapshot import Allocation, AllocationKey, Snapshot, allocation_of

__all__ = [
    "NODE_AFFINITY",
    "NODE_SELECTOR",
    "NO_MATCHING_NODE",
    "PODS",
    "POD_AFFINITY",
    "POD_RULES",
    "TAINT",
    "TOPOLOGY",
    "TYPICAL",
    "Allocation",
    "AllocationKey",
    "Demand",
    "Field",
    "Gang",
    "GangRole",
    "Miss",
    "Need",
    "Placement",
    "Room",
    "Shortfall",
    "Slot",
    "Snapshot",
    "Want",
    "Workload",
    "allocation_of",
    "barring",
    "constraint_in_words",
    "count",
    "demand_of",
    "feasible_when_empty",
    "fill",
    "find_room",
    "gang_of",
    "has_chance",
    "is_anchor",
    "is_pinned",
    "nearest_miss",
    "peer_of",
    "place",
    "place_more",
    "refusal",
    "rules_of",
    "slot_of",
    "to_reason",
    "tolerates",
    "whole_gpus",
    "without_peer",
    "workload_of",
]
