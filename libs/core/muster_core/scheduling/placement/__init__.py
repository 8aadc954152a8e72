"""Placement of gangs: feasible nodes for all replicas at once, or a diagnosis in numbers.

Pure and deterministic: the same job on the same nodes gets the same placement on every machine.

``snapshot`` holds nodes, allocations and free capacity; ``free_capacity`` is the arithmetic of one node. ``filters`` has the
node rules of Kubernetes, ``affinity`` the rules between replicas, ``demand`` what one replica asks for. ``candidates`` are
the feasible nodes, ``fit_index`` how many replicas fit on each, ``fragmentation`` what a choice costs. ``gang`` places a
gang and ``growth`` the replicas added to one, by ``topology``, ``layout`` and ``affinity_layout``. ``shortfall`` diagnoses
a gang that does not fit.
"""

from muster_core.scheduling.placement.affinity import replica_affinity_of
from muster_core.scheduling.placement.candidates import Candidates
from muster_core.scheduling.placement.demand import (
    PODS,
    Demand,
    ReplicaRequest,
    demand_of,
    is_anchor,
    is_pinned,
    request_of,
    without_affinity,
)
from muster_core.scheduling.placement.filters import (
    FILTERS,
    NODE_AFFINITY,
    NODE_SELECTOR,
    POD_AFFINITY,
    POD_RULES,
    TAINT,
    TOPOLOGY,
    excluding_filter,
    hard_taints,
    node_rules_of,
    tolerates,
)
from muster_core.scheduling.placement.fragmentation import Workload, workload_of
from muster_core.scheduling.placement.free_capacity import (
    FreeCapacity,
    Need,
    Want,
    fit_count,
    fit_counts,
    unused_gpus,
)
from muster_core.scheduling.placement.gang import (
    Gang,
    GangRole,
    Placement,
    feasible_when_empty,
    find_placement,
    gang_of,
    may_fit,
    place,
)
from muster_core.scheduling.placement.growth import place_more
from muster_core.scheduling.placement.shortfall import (
    NO_MATCHING_NODE,
    Miss,
    Shortfall,
    nearest_miss,
    to_reason,
)
from muster_core.scheduling.placement.snapshot import Allocation, AllocationKey, Snapshot, allocation_of

__all__ = [
    "FILTERS",
    "NODE_AFFINITY",
    "NODE_SELECTOR",
    "NO_MATCHING_NODE",
    "PODS",
    "POD_AFFINITY",
    "POD_RULES",
    "TAINT",
    "TOPOLOGY",
    "Allocation",
    "AllocationKey",
    "Candidates",
    "Demand",
    "FreeCapacity",
    "Gang",
    "GangRole",
    "Miss",
    "Need",
    "Placement",
    "ReplicaRequest",
    "Shortfall",
    "Snapshot",
    "Want",
    "Workload",
    "allocation_of",
    "demand_of",
    "excluding_filter",
    "feasible_when_empty",
    "find_placement",
    "fit_count",
    "fit_counts",
    "gang_of",
    "hard_taints",
    "is_anchor",
    "is_pinned",
    "may_fit",
    "nearest_miss",
    "node_rules_of",
    "place",
    "place_more",
    "replica_affinity_of",
    "request_of",
    "to_reason",
    "tolerates",
    "unused_gpus",
    "without_affinity",
    "workload_of",
]
