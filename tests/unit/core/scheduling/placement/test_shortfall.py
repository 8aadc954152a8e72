"""Diagnosis of gangs that do not fit, and the formats of amounts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster_core.models import Resources, Taint
from muster_core.quantities import format_amount, format_demand
from muster_core.scheduling.placement import Shortfall, Snapshot, gang_of, place, to_reason

if TYPE_CHECKING:
    from conftest import Scene


def test_a_full_pool_is_short_now_but_could_hold_the_gang(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1")])
    scene.allocate(snapshot, "n1", Resources(gpu=4000), 0, 1, 2, 3)
    found = scene.shortfall(scene.job(2, minimum=2), snapshot)
    assert found.feasible_when_empty
    assert to_reason(found).message == "short of 2 GPU: 0 of 2 needed are free, on any node"


def test_scattered_capacity_is_reported(scene: Scene) -> None:
    snapshot = Snapshot([scene.node(f"n{i}", gpu=1) for i in range(4)])
    found = scene.shortfall(scene.job(1, worker=Resources(cpu=1000, gpu=2000)), snapshot)
    reason = to_reason(found)
    assert reason.code == "InsufficientResources"
    assert reason.message == (
        "1 of the 2 replicas that start together would fit: no node has enough free for one worker; "
        "the empty pool could not hold it either"
    )


def test_every_short_resource_is_named_scarcest_first(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", cpu=4, gpu=1)])
    found = scene.shortfall(scene.job(4, minimum=4, worker=Resources(cpu=1500, gpu=1000)), snapshot)
    assert [miss.resource for miss in found.misses] == ["gpu", "cpu"]
    assert "short of 3 CPU: 4 of 7 needed are free, on 1 node" in to_reason(found).message


def test_excluded_nodes_are_counted_by_filter(scene: Scene) -> None:
    nodes = [scene.node("a", taints=(Taint(key="x"),)), scene.node("b", ready=False), scene.node("c", gpu=1)]
    found = scene.shortfall(scene.job(2, minimum=2), Snapshot(nodes))
    assert found.filtered == (("NotReady", 1), ("Taint", 1))
    assert to_reason(found).numbers["filtered.Taint"] == 1
    assert to_reason(found).message.startswith(
        "short of 1 GPU: 1 of 2 needed are free, on 1 node; of 3 nodes, "
    )


def test_an_empty_pool_has_no_nodes(scene: Scene) -> None:
    found = scene.shortfall(scene.job(1), Snapshot())
    assert to_reason(found).message == "the pool has no nodes"


def test_a_resource_that_no_node_has_is_short(scene: Scene) -> None:
    found = scene.shortfall(scene.job(1, worker=Resources(extended={"example.com/link": 2})), scene.two())
    assert "short of 2 example.com/link: 0 of 2 needed are free" in to_reason(found).message


def test_known_feasibility_is_not_computed_again(scene: Scene) -> None:
    found = place(gang_of(scene.job(9, minimum=9)), scene.two(), feasible=True)
    assert isinstance(found, Shortfall)
    assert found.feasible_when_empty


def test_amounts_are_formatted_with_units() -> None:
    assert format_amount("cpu", 1500) == "1.5"
    assert format_amount("gpu", 2000) == "2"
    assert format_amount("memory", 1536 * 2**20) == "1.5 GiB"
    assert format_amount("memory", 100) == "100 bytes"
    assert format_demand("memory", 512 * 2**20) == "512 MiB of memory"
    assert format_demand("pods", 1) == "1 pod"
    assert format_demand("gpu_memory", 2**30) == "1 GiB of GPU memory"
