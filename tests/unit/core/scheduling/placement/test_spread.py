"""The strategy ``spread``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster_core.models import PlacementPolicy, Strategy
from muster_core.scheduling.placement import Placement, Shortfall, Snapshot, gang_of, place

if TYPE_CHECKING:
    from conftest import Scene

SPREAD = PlacementPolicy(strategy=Strategy.SPREAD)


def test_replicas_stand_on_as_many_nodes_as_there_are_evenly(scene: Scene) -> None:
    snapshot = Snapshot(scene.node(f"n{number}") for number in range(4))
    nodes = scene.where(scene.job(9, ps=None, placement=SPREAD), snapshot)
    assert not isinstance(nodes, Shortfall)
    assert sorted(roles["worker"] for roles in nodes.values()) == [2, 2, 2, 3]


def test_a_node_that_is_full_gives_its_share_to_the_others(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=1), scene.node("n2"), scene.node("n3")])
    nodes = scene.where(scene.job(9, ps=None, placement=SPREAD), snapshot)
    assert nodes == {"n1": {"worker": 1}, "n2": {"worker": 4}, "n3": {"worker": 4}}


def test_parameter_servers_count_as_well(scene: Scene) -> None:
    snapshot = Snapshot(scene.node(f"n{number}") for number in range(3))
    nodes = scene.where(scene.job(2, placement=SPREAD), snapshot)
    assert not isinstance(nodes, Shortfall)
    assert sorted(tuple(roles) for roles in nodes.values()) == [("ps",), ("worker",), ("worker",)]


def test_a_required_domain_bounds_the_spread(scene: Scene) -> None:
    policy = PlacementPolicy(strategy=Strategy.SPREAD, topology="rack", topology_required=True)
    nodes = [scene.node(f"{rack}{number}", labels={"rack": rack}) for rack in "ab" for number in range(2)]
    found = place(gang_of(scene.job(4, ps=None, placement=policy)), Snapshot(nodes))
    assert isinstance(found, Placement)
    assert {one.node for one in found.replicas} == {"a0", "a1"}


def test_what_does_not_fit_spread_does_not_start(scene: Scene) -> None:
    assert isinstance(scene.where(scene.job(9, floor=9, placement=SPREAD), scene.two()), Shortfall)
    smaller = place(gang_of(scene.job(9, floor=2, placement=SPREAD)), scene.two())
    assert isinstance(smaller, Placement)
    assert len(smaller.replicas) == 9
