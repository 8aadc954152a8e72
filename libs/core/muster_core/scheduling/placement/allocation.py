"""The allocation of a placed replica, with its labels and affinity."""

from __future__ import annotations

from muster_core.models import Job
from muster_core.scheduling.placement.capacity import Allocation
from muster_core.scheduling.placement.demand import demand_of
from muster_core.scheduling.placement.peers import peer_of


def allocation_of(job: Job, role: str, index: int, node: str, gpus: tuple[int, ...] = ()) -> Allocation:
    """Return the allocation of one replica of ``job`` on ``node``; raises KeyError for an unknown role."""
    known = job.role(role)
    if known is None:
        raise KeyError(role)
    template = known.template_of(index)
    demand = demand_of(template.requests, together=job.placement.gpu_topology)
    return Allocation(node, demand, gpus, peer_of(template, job.namespace))
