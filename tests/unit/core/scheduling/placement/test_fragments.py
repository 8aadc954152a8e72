"""Shares of GPUs go where what is left stays of use; whole GPUs are never shared ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster_core.models import Resources
from muster_core.scheduling.placement import (
    Allocation,
    Placement,
    Shortfall,
    Snapshot,
    demand_of,
    gang_of,
    place,
    workload_of,
)

if TYPE_CHECKING:
    from conftest import Scene

HALF = Resources(cpu=1000, gpu=500)


def test_a_share_joins_a_gpu_that_is_shared_already_and_leaves_whole_nodes_whole(scene: Scene) -> None:
    snapshot = scene.two()
    snapshot.allocate(("other", 1, "worker", 0), Allocation("n2", demand_of(HALF), (0,)))
    found = place(gang_of(scene.job(1, ps=None, worker=HALF)), snapshot)
    assert isinstance(found, Placement)
    assert [(one.node, one.gpus) for one in found.replicas] == [("n2", (0,))]


def test_shares_take_the_node_on_which_no_whole_gang_is_lost(scene: Scene) -> None:
    """a is tighter, but all of it is what a gang of 4 GPUs needs; b has a GPU that nothing whole can use together."""
    snapshot = Snapshot([scene.node("a", cpu=8, gpu=4), scene.node("b", cpu=64, gpu=1)])
    workload = workload_of([demand_of(Resources(cpu=2000, gpu=4000)), demand_of(HALF)])
    found = place(gang_of(scene.job(1, ps=None, worker=HALF)), snapshot, workload=workload)
    assert isinstance(found, Placement)
    assert found.replicas[0].node == "b"


def test_whole_gpus_are_not_taken_from_shared_ones(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=2)])
    snapshot.allocate(("other", 1, "worker", 0), Allocation("n1", demand_of(HALF), (0,)))
    found = place(gang_of(scene.job(1, ps=None)), snapshot)
    assert isinstance(found, Placement)
    assert found.replicas[0].gpus == (1,)
    assert isinstance(scene.where(scene.job(2, floor=2, ps=None), snapshot), Shortfall)


def test_memory_bounds_how_many_share_a_gpu(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=2, gpu_memory=16 * 2**30)])
    worker = Resources(cpu=1000, gpu=100, gpu_memory=6 * 2**30)
    found = place(gang_of(scene.job(4, ps=None, worker=worker)), snapshot)
    assert isinstance(found, Placement)
    assert [one.gpus for one in found.replicas] == [(0,), (0,), (1,), (1,)]
    assert isinstance(scene.where(scene.job(5, floor=5, ps=None, worker=worker), snapshot), Shortfall)


def test_the_workload_is_what_comes_most_and_does_not_depend_on_order() -> None:
    one, two = demand_of(HALF), demand_of(Resources(cpu=1000, gpu=1000))
    cpus = demand_of(Resources(cpu=1000))
    assert workload_of([one, two, two, cpus]).demands == ((two, 2), (one, 1))
    assert workload_of([two, one]) == workload_of([one, two])
