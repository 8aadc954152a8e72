"""Gangs that stand in one topology domain, or in few; islands of GPUs inside a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core.models import Job, Node, PlacementPolicy, Resources
from muster_core.scheduling.placement import (
    Allocation,
    Placement,
    Shortfall,
    Snapshot,
    demand_of,
    gang_of,
    place,
    to_reason,
)
from muster_core.scheduling.placement.free_capacity import NVLINK_DOMAINS_LABEL, nvlink_domains_of

if TYPE_CHECKING:
    from conftest import Scene

RACK = "example.com/rack"
IN_ONE = PlacementPolicy(topology=RACK, topology_required=True)
RATHER_IN_ONE = PlacementPolicy(topology=RACK)


def racks(scene: Scene, **sizes: int) -> Snapshot:
    """Racks of so many nodes of 4 GPUs each."""
    return Snapshot(
        scene.node(f"{rack}{number}", labels={RACK: rack})
        for rack, size in sizes.items()
        for number in range(size)
    )


def domains_of(found: Placement | Shortfall, snapshot: Snapshot) -> set[str]:
    assert isinstance(found, Placement)
    return {snapshot.nodes[one.node].labels.get(RACK, "") for one in found.replicas}


def tried(job: Job, snapshot: Snapshot) -> Placement | Shortfall:
    return place(gang_of(job), snapshot)


def test_the_smallest_domain_that_holds_the_gang_is_taken(scene: Scene) -> None:
    snapshot = racks(scene, a=4, b=2, c=3)
    for policy in (IN_ONE, RATHER_IN_ONE):
        assert domains_of(tried(scene.job(8, placement=policy), snapshot), snapshot) == {"b"}
        assert domains_of(tried(scene.job(12, placement=policy), snapshot), snapshot) == {"c"}


def test_one_node_is_enough_of_a_domain(scene: Scene) -> None:
    snapshot = racks(scene, a=2, b=2)
    found = tried(scene.job(4, placement=RATHER_IN_ONE), snapshot)
    assert isinstance(found, Placement)
    assert found.nodes == 1


def test_a_preferred_domain_that_does_not_exist_becomes_few_domains(scene: Scene) -> None:
    snapshot = racks(scene, a=2, b=3, c=1)
    assert domains_of(tried(scene.job(16, placement=RATHER_IN_ONE), snapshot), snapshot) == {"b", "c"}


def test_a_required_domain_makes_a_gang_smaller_or_wait(scene: Scene) -> None:
    snapshot = racks(scene, a=2, b=2)
    smaller = tried(scene.job(12, floor=4, placement=IN_ONE), snapshot)
    assert isinstance(smaller, Placement)
    assert len(smaller.replicas) == 9
    waiting = tried(scene.job(12, floor=12, placement=IN_ONE), snapshot)
    assert isinstance(waiting, Shortfall)
    reason = to_reason(waiting)
    assert reason.message.startswith(
        f"of 2 domains of {RACK}, the best (a) holds 9 of the 13 replicas that start together"
    )
    assert "9 replicas would fit now" in reason.message
    assert (reason.numbers["domains"], reason.numbers["in_best_domain"]) == (2, 9)


def test_nodes_without_the_label_are_in_no_required_domain(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("bare", gpu=8), scene.node("a0", labels={RACK: "a"})])
    assert isinstance(tried(scene.job(6, floor=6, placement=IN_ONE), snapshot), Shortfall)
    assert isinstance(tried(scene.job(6, floor=6, placement=RATHER_IN_ONE), snapshot), Placement)
    reason = (
        to_reason(found)
        if isinstance(found := tried(scene.job(6, floor=6, placement=IN_ONE), snapshot), Shortfall)
        else None
    )
    assert reason is not None
    assert reason.numbers["filtered.Topology"] == 1


def test_a_domain_is_as_large_as_what_is_free_in_it(scene: Scene) -> None:
    snapshot = racks(scene, a=2, b=3)
    for number in range(2):
        hold = Allocation(f"b{number}", demand_of(Resources(gpu=4000)), (0, 1, 2, 3))
        snapshot.allocate(("other", 1, "worker", number), hold)
    assert domains_of(tried(scene.job(8, floor=8, placement=IN_ONE), snapshot), snapshot) == {"a"}
    snapshot.release(("other", 1, "worker", 0))
    snapshot.put_node(scene.node("a1", labels={RACK: "elsewhere"}))
    assert domains_of(tried(scene.job(8, floor=8, placement=IN_ONE), snapshot), snapshot) == {"b"}


@pytest.mark.parametrize(
    ("said", "islands"),
    [
        ("0-3_4-7", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("0.2_1.3-7", ((0, 2), (1, 3, 4, 5, 6, 7))),
        ("0-5", ((0, 1, 2, 3, 4, 5), (6,), (7,))),
        ("0-3_3-7", tuple((index,) for index in range(8))),
        ("0-8", tuple((index,) for index in range(8))),
        ("all", tuple((index,) for index in range(8))),
        ("", ()),
    ],
)
def test_islands_are_read_from_a_label(said: str, islands: tuple[tuple[int, ...], ...]) -> None:
    node = Node(name="n", allocatable=Resources(gpu=8000), labels={NVLINK_DOMAINS_LABEL: said})
    assert nvlink_domains_of(node) == islands


def test_the_gpus_of_a_replica_stay_in_one_island(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=8, labels={NVLINK_DOMAINS_LABEL: "0-3_4-7"})])
    snapshot.allocate(("other", 1, "worker", 0), Allocation("n1", demand_of(Resources(gpu=2000)), (0, 1)))
    worker = Resources(cpu=1000, gpu=3000)
    together = PlacementPolicy(gpu_topology=True)
    found = tried(scene.job(1, ps=None, worker=worker, placement=together), snapshot)
    assert isinstance(found, Placement)
    assert found.replicas[0].gpus == (4, 5, 6)
    assert isinstance(
        tried(scene.job(2, floor=2, ps=None, worker=worker, placement=together), snapshot), Shortfall
    )
    assert isinstance(tried(scene.job(2, floor=2, ps=None, worker=worker), snapshot), Placement)


def test_the_fullest_island_that_still_holds_a_replica_is_taken(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=8, labels={NVLINK_DOMAINS_LABEL: "0-3_4-7"})])
    snapshot.allocate(("other", 1, "worker", 0), Allocation("n1", demand_of(Resources(gpu=2000)), (4, 5)))
    job = scene.job(
        1, ps=None, worker=Resources(cpu=1000, gpu=2000), placement=PlacementPolicy(gpu_topology=True)
    )
    found = tried(job, snapshot)
    assert isinstance(found, Placement)
    assert found.replicas[0].gpus == (6, 7)


def test_without_islands_a_node_is_one(scene: Scene) -> None:
    job = scene.job(
        1, ps=None, worker=Resources(cpu=1000, gpu=4000), placement=PlacementPolicy(gpu_topology=True)
    )
    assert isinstance(tried(job, scene.two()), Placement)
