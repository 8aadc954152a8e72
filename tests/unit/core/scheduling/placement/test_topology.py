"""Topology domains and the strategy ``spread``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core.models import Job, PlacementPolicy, Resources, Strategy
from muster_core.scheduling.placement import Snapshot, to_reason

if TYPE_CHECKING:
    from conftest import Scene

RACK = "example.com/rack"
REQUIRED = PlacementPolicy(topology=RACK, topology_required=True)
PREFERRED = PlacementPolicy(topology=RACK)
SPREAD = PlacementPolicy(strategy=Strategy.SPREAD)


def _racks(scene: Scene, **sizes: int) -> Snapshot:
    """Racks of so many nodes of 4 GPUs each."""
    return Snapshot(
        scene.node(f"{rack}{number}", labels={RACK: rack})
        for rack, size in sizes.items()
        for number in range(size)
    )


def _domains(scene: Scene, job: Job, snapshot: Snapshot) -> set[str]:
    return {snapshot.nodes[name].labels[RACK] for name in scene.nodes(job, snapshot)}


@pytest.mark.parametrize("policy", [REQUIRED, PREFERRED])
@pytest.mark.parametrize(("workers", "rack"), [(8, "b"), (12, "c")])
def test_the_smallest_domain_that_holds_the_gang_is_taken(
    scene: Scene, policy: PlacementPolicy, workers: int, rack: str
) -> None:
    assert _domains(scene, scene.job(workers, placement=policy), _racks(scene, a=4, b=2, c=3)) == {rack}


def test_a_gang_that_fits_on_one_node_of_a_domain_takes_one_node(scene: Scene) -> None:
    assert scene.place(scene.job(4, placement=PREFERRED), _racks(scene, a=2, b=2)).nodes == 1


def test_a_gang_too_large_for_a_preferred_domain_takes_few_domains(scene: Scene) -> None:
    assert _domains(scene, scene.job(16, placement=PREFERRED), _racks(scene, a=2, b=3, c=1)) == {"b", "c"}


def test_a_gang_too_large_for_a_required_domain_shrinks_or_waits(scene: Scene) -> None:
    snapshot = _racks(scene, a=2, b=2)
    assert len(scene.place(scene.job(12, minimum=4, placement=REQUIRED), snapshot).replicas) == 9
    reason = to_reason(scene.shortfall(scene.job(12, minimum=12, placement=REQUIRED), snapshot))
    assert reason.message.startswith(
        f"of 2 domains of {RACK}, the best (a) holds 9 of the 13 replicas that start together"
    )
    assert "9 replicas would fit now" in reason.message
    assert (reason.numbers["domains"], reason.numbers["in_best_domain"]) == (2, 9)


def test_nodes_without_the_label_are_in_no_required_domain(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("bare", gpu=8), scene.node("a0", labels={RACK: "a"})])
    assert scene.place(scene.job(6, minimum=6, placement=PREFERRED), snapshot)
    reason = to_reason(scene.shortfall(scene.job(6, minimum=6, placement=REQUIRED), snapshot))
    assert reason.numbers["filtered.Topology"] == 1


def test_the_size_of_a_domain_is_its_free_capacity(scene: Scene) -> None:
    snapshot = _racks(scene, a=2, b=3)
    for index in range(2):
        scene.allocate(snapshot, f"b{index}", Resources(gpu=4000), 0, 1, 2, 3, index=index)
    job = scene.job(8, minimum=8, placement=REQUIRED)
    assert _domains(scene, job, snapshot) == {"a"}
    snapshot.release(("other", 1, "worker", 0))
    snapshot.put_node(scene.node("a1", labels={RACK: "elsewhere"}))
    assert _domains(scene, job, snapshot) == {"b"}


def test_a_spread_gang_takes_all_nodes_evenly(scene: Scene) -> None:
    snapshot = Snapshot(scene.node(f"n{number}") for number in range(4))
    nodes = scene.nodes(scene.job(9, ps=None, placement=SPREAD), snapshot)
    assert sorted(roles["worker"] for roles in nodes.values()) == [2, 2, 2, 3]


def test_the_other_nodes_take_the_share_of_a_full_node(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=1), scene.node("n2"), scene.node("n3")])
    nodes = scene.nodes(scene.job(9, ps=None, placement=SPREAD), snapshot)
    assert nodes == {"n1": {"worker": 1}, "n2": {"worker": 4}, "n3": {"worker": 4}}


def test_parameter_servers_are_spread_too(scene: Scene) -> None:
    snapshot = Snapshot(scene.node(f"n{number}") for number in range(3))
    nodes = scene.nodes(scene.job(2, placement=SPREAD), snapshot)
    assert sorted(tuple(roles) for roles in nodes.values()) == [("ps",), ("worker",), ("worker",)]


def test_a_spread_gang_stays_in_its_required_domain(scene: Scene) -> None:
    policy = PlacementPolicy(strategy=Strategy.SPREAD, topology=RACK, topology_required=True)
    nodes = scene.nodes(scene.job(4, ps=None, placement=policy), _racks(scene, a=2, b=2))
    assert set(nodes) == {"a0", "a1"}


def test_a_spread_gang_shrinks_or_waits_without_capacity(scene: Scene) -> None:
    scene.shortfall(scene.job(9, minimum=9, placement=SPREAD), scene.two())
    assert len(scene.place(scene.job(9, minimum=2, placement=SPREAD), scene.two()).replicas) == 9
