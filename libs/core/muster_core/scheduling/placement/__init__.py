"""Placement of gangs: feasible nodes for all replicas at once, or a diagnosis in numbers.

Pure and deterministic: the same job on the same nodes gets the same placement on every machine.

``snapshot`` holds nodes, allocations and free capacity; ``free_capacity`` is the arithmetic of one node. ``filters`` has the
node rules of Kubernetes, ``affinity`` the rules between replicas, ``demand`` what one replica asks for. ``candidates`` are
the feasible nodes, ``fit_index`` how many replicas fit on each, ``fragmentation`` what a choice costs. ``gang`` places a
gang and ``growth`` the replicas added to one, by ``topology``, ``layout`` and ``affinity_layout``. ``shortfall`` diagnoses
a gang that does not fit.
"""

from muster_core.scheduling.placement.affinity import replica_affinity_of as replica_affinity_of
from muster_core.scheduling.placement.candidates import Candidates as Candidates
from muster_core.scheduling.placement.demand import (
    PODS as PODS,
    Demand as Demand,
    ReplicaRequest as ReplicaRequest,
    demand_of as demand_of,
    is_anchor as is_anchor,
    is_pinned as is_pinned,
    request_of as request_of,
    without_affinity as without_affinity,
)
from muster_core.scheduling.placement.filters import (
    FILTERS as FILTERS,
    NODE_AFFINITY as NODE_AFFINITY,
    NODE_SELECTOR as NODE_SELECTOR,
    POD_AFFINITY as POD_AFFINITY,
    POD_RULES as POD_RULES,
    TAINT as TAINT,
    TOPOLOGY as TOPOLOGY,
    excluding_filter as excluding_filter,
    hard_taints as hard_taints,
    node_rules_of as node_rules_of,
    tolerates as tolerates,
)
from muster_core.scheduling.placement.fragmentation import Workload as Workload, workload_of as workload_of
from muster_core.scheduling.placement.free_capacity import (
    FreeCapacity as FreeCapacity,
    Need as Need,
    Want as Want,
    fit_count as fit_count,
    fit_counts as fit_counts,
    unused_gpus as unused_gpus,
)
from muster_core.scheduling.placement.gang import (
    Gang as Gang,
    GangRole as GangRole,
    Placement as Placement,
    feasible_when_empty as feasible_when_empty,
    find_placement as find_placement,
    gang_of as gang_of,
    may_fit as may_fit,
    place as place,
)
from muster_core.scheduling.placement.growth import place_more as place_more
from muster_core.scheduling.placement.shortfall import (
    INSUFFICIENT_RESOURCES as INSUFFICIENT_RESOURCES,
    NO_MATCHING_NODE as NO_MATCHING_NODE,
    Miss as Miss,
    Shortfall as Shortfall,
    nearest_miss as nearest_miss,
    to_reason as to_reason,
)
from muster_core.scheduling.placement.snapshot import (
    Allocation as Allocation,
    AllocationKey as AllocationKey,
    Snapshot as Snapshot,
    allocation_of as allocation_of,
)
