"""GPU fragmentation: shares go where the remaining GPUs stay useful, also in a cluster as large as a published one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core.models import Resources
from muster_core.scheduling.placement import Placement, Snapshot, demand_of, gang_of, place, workload_of
from muster_testing.openb_cluster import ALL_GPUS, ALLOWANCE, NODE_TYPES, PUBLISHED, allocated_share

if TYPE_CHECKING:
    from conftest import Scene

HALF = Resources(cpu=1000, gpu=500)


def test_a_share_joins_a_shared_gpu_and_leaves_unused_nodes_unused(scene: Scene) -> None:
    snapshot = scene.two()
    scene.allocate(snapshot, "n2", HALF, 0)
    found = scene.place(scene.job(1, ps=None, worker=HALF), snapshot)
    assert [(one.node, one.gpus) for one in found.replicas] == [("n2", (0,))]


def test_a_share_takes_the_node_that_the_workload_needs_least(scene: Scene) -> None:
    """Node a is tighter, but a demand of 4 GPUs needs all of it; the single GPU of b is useless to that demand."""
    snapshot = Snapshot([scene.node("a", cpu=8, gpu=4), scene.node("b", cpu=64, gpu=1)])
    workload = workload_of([demand_of(Resources(cpu=2000, gpu=4000)), demand_of(HALF)])
    found = place(gang_of(scene.job(1, ps=None, worker=HALF)), snapshot, workload=workload)
    assert isinstance(found, Placement)
    assert found.replicas[0].node == "b"


def test_the_workload_ranks_demands_by_number_in_any_order() -> None:
    one, two = demand_of(HALF), demand_of(Resources(cpu=1000, gpu=1000))
    cpus = demand_of(Resources(cpu=1000))
    assert workload_of([one, two, two, cpus]).demands == ((two, 2), (one, 1))
    assert workload_of([two, one]) == workload_of([one, two])


def test_the_inventory_is_the_published_one() -> None:
    assert sum(nodes for _, nodes, *_ in NODE_TYPES) == 1_213
    assert sum(nodes * gpus for _, nodes, _, _, gpus in NODE_TYPES) == ALL_GPUS


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_shared_cluster_filled_at_random_to_130_percent_allocates_its_gpus() -> None:
    assert allocated_share(seed=1) >= PUBLISHED - ALLOWANCE
