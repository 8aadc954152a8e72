"""The answers that placement has to hold, by their numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster_core.models import Resources
from muster_core.scheduling.placement import Placement, Shortfall, Snapshot, gang_of, place, to_reason

if TYPE_CHECKING:
    from conftest import Scene


def test_1_a_gang_that_one_node_holds_stands_on_one_node(scene: Scene) -> None:
    assert scene.where(scene.job(4, most=4), scene.two()) == {"n1": {"ps": 1, "worker": 4}}


def test_2_what_does_not_fit_beside_the_ps_goes_to_the_other_node(scene: Scene) -> None:
    job = scene.job(6, floor=2, most=8)
    assert scene.where(job, scene.two()) == {"n1": {"ps": 1, "worker": 4}, "n2": {"worker": 2}}


def test_3_a_gang_starts_with_as_many_as_fit(scene: Scene) -> None:
    job = scene.job(10, floor=4, most=10)
    assert scene.where(job, scene.two()) == {"n1": {"ps": 1, "worker": 4}, "n2": {"worker": 4}}


def test_4_below_its_minimum_nothing_starts_and_the_reason_is_short_of_1_gpu(scene: Scene) -> None:
    found = place(gang_of(scene.job(10, floor=9, most=10)), scene.two())
    assert isinstance(found, Shortfall)
    reason = to_reason(found)
    assert reason.code == "InsufficientResources"
    assert reason.message.startswith("short of 1 GPU: 8 of 9 needed are free, on 2 nodes")
    assert (reason.numbers["needed.gpu"], reason.numbers["free.gpu"]) == (9000, 8000)
    assert not found.feasible_when_empty


def test_5_full_size_across_nodes_beats_a_smaller_size_on_one(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=3), scene.node("n2", gpu=2)])
    assert scene.where(scene.job(4), snapshot) == {"n1": {"ps": 1, "worker": 3}, "n2": {"worker": 1}}


def test_6_a_large_ps_takes_the_large_node_and_workers_the_other(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", cpu=4, gpu=0), scene.node("n2", cpu=8, gpu=0)])
    job = scene.job(4, ps=Resources(cpu=8000), worker=Resources(cpu=1000))
    assert scene.where(job, snapshot) == {"n2": {"ps": 1}, "n1": {"worker": 4}}


def test_7_two_ps_stand_on_two_nodes_with_two_workers_each(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", cpu=6, gpu=0), scene.node("n2", cpu=6, gpu=0)])
    job = scene.job(4, floor=3, ps=Resources(cpu=4000), servers=2, worker=Resources(cpu=1000))
    assert scene.where(job, snapshot) == {"n1": {"ps": 1, "worker": 2}, "n2": {"ps": 1, "worker": 2}}


def test_22_halves_of_gpus_stand_two_on_each(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=2, gpu_memory=16384 * 2**20)])
    job = scene.job(4, ps=None, worker=Resources(cpu=1000, gpu=500, gpu_memory=3189243904))
    found = place(gang_of(job), snapshot)
    assert isinstance(found, Placement)
    assert [one.gpus for one in found.replicas] == [(0,), (0,), (1,), (1,)]


def test_23_limits_that_stand_for_requests_fill_the_node_and_the_gang_waits(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", cpu=4, gpu=0)])
    job = scene.job(4, floor=4, ps=Resources(cpu=4000), worker=Resources(cpu=4000))
    found = scene.where(job, snapshot)
    assert isinstance(found, Shortfall)
    assert found.placeable == 1
    assert to_reason(found).message == (
        "short of 16 CPU: 4 of 20 needed are free, on 1 node; the empty pool could not hold it either"
    )
