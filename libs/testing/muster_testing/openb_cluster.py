"""A cluster with fractional GPUs, of the size and mix of a published trace, filled at random.

Nodes: the 1,213 GPU nodes of Alibaba's ``openb`` trace (cluster-trace-gpu-v2023), by model with GPUs, CPUs and memory;
6,212 GPUs in all. Demands: the trace's proportions of replicas (13.3 % without GPUs, 37.8 % with a fraction of one, 48.0
% with one, 0.9 % with several), each sampled from the most frequent requests in three sections of it. Constraints on GPU
models are left out.
"""

from __future__ import annotations

import random

from muster_core.models import GPU_MILLI, Job, Node, Resources, Role, Template
from muster_core.scheduling.placement import (
    Allocation,
    Gang,
    Placement,
    Snapshot,
    demand_of,
    gang_of,
    place,
    workload_of,
)

_GIB = 2**30
ALL_GPUS = 6_212
"""The number of GPUs in the cluster."""

NODE_TYPES = (
    ("g2", 549, 96, 384, 8),
    ("t4-small", 387, 104, 512, 2),
    ("p100", 112, 16, 120, 2),
    ("g3", 39, 128, 768, 8),
    ("v100-16-middle", 28, 32, 128, 4),
    ("v100-32", 22, 96, 768, 8),
    ("v100-16-small", 19, 8, 32, 1),
    ("p100-roomy", 18, 64, 256, 2),
    ("t4", 17, 96, 384, 4),
    ("v100-16", 8, 64, 256, 8),
    ("v100-32-middle", 7, 48, 368, 4),
    ("p100-small", 5, 8, 60, 1),
    ("a10", 2, 128, 256, 1),
)
"""Name, number of nodes, CPUs, GiB and GPUs of each node type."""

DEMANDS = (
    (32_000, 48, 0, 60),
    (8_000, 30, 0, 35),
    (12_500, 56, 0, 25),
    (15_400, 50, 0, 13),
    (3_152, 5, 810, 130),
    (11_908, 46, 470, 62),
    (11_908, 46, 650, 56),
    (8_000, 30, 470, 34),
    (4_000, 22, 320, 28),
    (4_000, 15, 320, 10),
    (4_000, 30, 230, 14),
    (8_000, 30, 320, 8),
    (3_152, 5, 590, 14),
    (6_000, 12, 460, 10),
    (4_152, 10, 370, 5),
    (4_000, 15, 220, 5),
    (1_000, 2, 320, 2),
    (3_152, 5, 1_000, 75),
    (11_400, 47, 1_000, 95),
    (12_000, 24, 1_000, 55),
    (16_000, 32, 1_000, 45),
    (18_708, 63, 1_000, 50),
    (8_000, 16, 1_000, 35),
    (9_810, 41, 1_000, 28),
    (4_000, 24, 1_000, 25),
    (11_908, 46, 1_000, 25),
    (15_700, 57, 1_000, 20),
    (15_200, 79, 1_000, 12),
    (24_200, 91, 1_000, 10),
    (8_200, 33, 1_000, 5),
    (16_200, 65, 2_000, 2),
    (32_200, 129, 4_000, 2),
    (64_000, 256, 8_000, 5),
)
"""Milli-CPU, GiB and milli-GPU of a replica, and its frequency per thousand."""

PUBLISHED = 0.954
"""The published fraction of allocated GPUs at 130 % demand (Weng et al., USENIX ATC 2023)."""

ALLOWANCE = 0.005
"""The tolerance for sampled instead of replayed demands."""


def allocated_share(*, seed: int, demand: float = 1.3) -> float:
    """Return the fraction of allocated GPUs after placing replicas one by one until they request ``demand`` times all
    GPUs.

    Raises:
        AssertionError: a node is overcommitted.
    """
    cluster = Snapshot(_nodes())
    requests = [Resources(cpu=cpu, memory=memory * _GIB, gpu=gpu) for cpu, memory, gpu, _ in DEMANDS]
    weights = [weight for *_, weight in DEMANDS]
    gangs = [_gang(one) for one in requests]
    workload = workload_of(
        demand_of(one) for one, weight in zip(requests, weights, strict=True) for _ in range(weight)
    )
    rng = random.Random(seed)  # noqa: S311 (nothing is secret)
    allocated = wanted = number = 0
    full: set[int] = set()
    while wanted < ALL_GPUS * GPU_MILLI * demand:
        number += 1
        (drawn,) = rng.choices(range(len(gangs)), weights)
        wanted += requests[drawn].gpu
        if drawn in full:
            continue
        found = place(gangs[drawn], cluster, feasible=True, workload=workload)
        if isinstance(found, Placement):
            (one,) = found.replicas
            cluster.allocate(
                (str(number), 1, one.role, 0), Allocation(one.node, demand_of(requests[drawn]), one.gpus)
            )
            allocated += requests[drawn].gpu
        else:
            full.add(drawn)
    if cluster.overcommitted():
        raise AssertionError(f"overcommitted nodes: {cluster.overcommitted()}")
    return allocated / (ALL_GPUS * GPU_MILLI)


def _nodes() -> list[Node]:
    return [
        Node(
            name=f"{name}-{number:04d}",
            allocatable=Resources(cpu=cpu * 1_000, memory=memory * _GIB, gpu=gpus * GPU_MILLI),
        )
        for name, nodes, cpu, memory, gpus in NODE_TYPES
        for number in range(nodes)
    ]


def _gang(requests: Resources) -> Gang:
    worker = Role(name="worker", replicas=1, min=1, max=1, template=Template(requests=requests))
    return gang_of(Job(name="replica", roles=(worker,)))
