"""The request of one replica: its demand, node rules and affinity; and the roles that placement treats specially.

Replicas with equal requests are interchangeable, so placement handles a few requests instead of every replica.
"""

from __future__ import annotations

import msgspec

from muster_core.models import GPU_MILLI, PlacementPolicy, Resources, Template
from muster_core.scheduling.placement.affinity import ReplicaAffinity, replica_affinity_of
from muster_core.scheduling.placement.filters import NodeRules, node_rules_of

PODS = "pods"
"""The resource that bounds the number of replicas on a node; every replica takes one."""

_ON_GPUS = frozenset({"gpu", "gpu_memory"})


class Demand(msgspec.Struct, frozen=True, gc=False, kw_only=True, cache_hash=True):
    """One replica's demand.

    ``amounts`` are (resource, amount) pairs above 0, sorted by resource, one pod included, without GPUs. ``gpus`` are
    whole GPUs; ``gpu_share`` is a share of one GPU in milli-GPU (0 < share < 1000); at most one of the two is set.
    ``gpu_memory`` is in bytes on each GPU. ``together`` keeps whole GPUs within one NVLink domain.
    """

    amounts: tuple[tuple[str, int], ...]
    gpus: int = 0
    gpu_share: int = 0
    gpu_memory: int = 0
    together: bool = False


def demand_of(requests: Resources, *, together: bool = False) -> Demand:
    """Return the demand of ``requests``; ``together`` requires GPUs of one NVLink domain.

    A fractional request above one GPU is rounded up: a share never spans GPUs. A request for GPU memory alone takes 1
    milli-GPU as well, so that its GPU counts as shared.
    """
    amounts = {
        name: amount for name, amount in requests.amounts().items() if amount > 0 and name not in _ON_GPUS
    }
    amounts[PODS] = 1
    whole = -(-requests.gpu // GPU_MILLI) if requests.gpu >= GPU_MILLI else 0
    share = 0 if whole else max(requests.gpu, 1 if requests.gpu_memory > 0 else 0)
    return Demand(
        amounts=tuple(sorted(amounts.items())),
        gpus=whole,
        gpu_share=share,
        gpu_memory=max(requests.gpu_memory, 0),
        together=together and whole > 1,
    )


class ReplicaRequest(msgspec.Struct, frozen=True, cache_hash=True):
    """What one replica asks for. ``affinity`` is None if no replica of its gang has inter-replica affinity."""

    demand: Demand
    rules: NodeRules
    affinity: ReplicaAffinity | None = None


def request_of(template: Template, policy: PlacementPolicy, namespace: str) -> ReplicaRequest:
    """Return the request of a replica of ``template`` in a job with the placement ``policy``."""
    affinity = replica_affinity_of(template, namespace)
    required = (policy.topology,) if policy.topology and policy.topology_required else ()
    return ReplicaRequest(
        demand=demand_of(template.requests, together=policy.gpu_topology),
        rules=node_rules_of(template, labels=required, supported=affinity.supported),
        affinity=affinity,
    )


def without_affinity(request: ReplicaRequest) -> ReplicaRequest:
    """Return the request without affinity, so that pod labels do not distinguish gangs that have no rules about them."""
    return ReplicaRequest(request.demand, request.rules)


ANCHOR_ROLES = frozenset({"ps", "server"})
"""The roles of parameter servers; workers are placed near them."""

PINNED_ROLES = ANCHOR_ROLES | {"chief", "master", "launcher", "scheduler"}
"""The roles without which a job cannot continue; no policy resizes them."""


def is_anchor(role: str) -> bool:
    """Return whether workers of the gang are placed near this role."""
    return role.lower() in ANCHOR_ROLES


def is_pinned(role: str) -> bool:
    """Return whether this role keeps its size."""
    return role.lower() in PINNED_ROLES
