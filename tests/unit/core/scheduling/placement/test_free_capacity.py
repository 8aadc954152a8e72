"""The free capacity of a node: GPUs, their shares and memory, NVLink domains, and what other pods use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from muster_core.models import Job, Node, PlacementPolicy, Resources
from muster_core.scheduling.placement import Snapshot, demand_of
from muster_core.scheduling.placement.free_capacity import NVLINK_DOMAINS_LABEL, nvlink_domains_of

if TYPE_CHECKING:
    from conftest import Scene

GIB = 2**30
MIB = 2**20
SHARE = Resources(gpu=300)
WHOLE = Resources(gpu=1000)


def _job(scene: Scene, workers: int, gpu: int, gpu_memory: int = 0, *, together: bool = False) -> Job:
    worker = Resources(cpu=1000, gpu=gpu, gpu_memory=gpu_memory)
    policy = PlacementPolicy(gpu_topology=together)
    return scene.job(workers, minimum=workers, ps=None, worker=worker, placement=policy)


def test_capacity_that_other_pods_use_is_not_free(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", foreign=Resources(cpu=4000, gpu=2000))])
    assert snapshot.free_total() == Resources(cpu=12_000, gpu=2000)
    assert scene.gpus(_job(scene, 2, 1000), snapshot) == [(0,), (1,)]
    scene.shortfall(_job(scene, 3, 1000), snapshot)


def test_gpus_of_other_pods_are_assumed_to_be_those_without_a_replica(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1")])
    scene.allocate(snapshot, "n1", WHOLE, 3)
    snapshot.put_node(scene.node("n1", foreign=Resources(gpu=2000)))
    assert scene.gpus(_job(scene, 1, 1000), snapshot) == [(0,)]
    scene.shortfall(_job(scene, 2, 1000), snapshot)
    assert snapshot.overcommitted() == []


def test_a_gpu_that_others_use_by_index_is_given_to_no_replica(scene: Scene) -> None:
    used = scene.node("n1", foreign=Resources(gpu=2000), foreign_gpus={0: 1000, 2: 1000})
    snapshot = Snapshot([used])
    assert snapshot.free_capacity("n1").gpus == (0, 1000, 0, 1000)
    assert scene.gpus(_job(scene, 2, 1000), snapshot) == [(1,), (3,)]
    assert snapshot.overcommitted() == []


def test_capacity_does_not_depend_on_the_order_of_allocations_and_other_pods(scene: Scene) -> None:
    node = scene.node("n1", gpu=4, foreign=Resources(gpu=1000))
    first, last = Snapshot([node]), Snapshot([scene.node("n1", gpu=4)])
    for snapshot in (first, last):
        scene.allocate(snapshot, "n1", WHOLE, 3)
    last.put_node(node)
    assert first.free_capacity("n1") == last.free_capacity("n1")
    assert first.free_capacity("n1").gpus == (1000, 1000, 0, 0)
    assert first.overcommitted() == []


def test_a_whole_gpu_is_never_a_shared_one(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=2)])
    scene.allocate(snapshot, "n1", SHARE, 0)
    assert scene.gpus(_job(scene, 1, 1000), snapshot) == [(1,)]
    scene.shortfall(_job(scene, 2, 1000), snapshot)


def test_a_share_goes_to_the_fullest_gpu_that_holds_it(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=3)])
    scene.allocate(snapshot, "n1", SHARE, 1)
    assert scene.gpus(_job(scene, 1, 500), snapshot) == [(1,)]
    assert scene.gpus(_job(scene, 1, 800), snapshot) == [(0,)]


def test_a_share_never_spans_gpus(scene: Scene) -> None:
    scene.shortfall(_job(scene, 3, 600), Snapshot([scene.node("n1", gpu=2)]))


def test_four_halves_take_two_gpus(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=2, gpu_memory=16384 * MIB)])
    assert scene.gpus(_job(scene, 4, 500, 3189243904), snapshot) == [(0,), (0,), (1,), (1,)]


def test_a_request_for_one_and_a_half_gpus_takes_two() -> None:
    assert demand_of(Resources(gpu=1500)).gpus == 2


def test_gpu_memory_is_counted_on_each_gpu(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=2, gpu_memory=16 * GIB)])
    assert scene.gpus(_job(scene, 4, 100, 6 * GIB), snapshot) == [(0,), (0,), (1,), (1,)]
    scene.shortfall(_job(scene, 5, 100, 6 * GIB), snapshot)
    scene.shortfall(_job(scene, 1, 1000, 17 * GIB), snapshot)


def test_a_request_for_gpu_memory_alone_shares_the_gpu(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=1, gpu_memory=10)])
    scene.allocate(snapshot, "n1", Resources(gpu_memory=4), 0)
    scene.shortfall(_job(scene, 1, 1000), snapshot)
    assert scene.gpus(_job(scene, 1, 0, 6), snapshot) == [(0,)]


def test_a_gpu_of_unknown_memory_is_infeasible_for_a_memory_request(scene: Scene) -> None:
    scene.shortfall(_job(scene, 1, 500, 1), Snapshot([scene.node("n1")]))


@pytest.mark.parametrize("memory", [0, GIB])
def test_an_overcommitted_gpu_takes_no_share(scene: Scene, memory: int) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=2, gpu_memory=4 * GIB)])
    for index in range(2):
        scene.allocate(snapshot, "n1", Resources(gpu=600), 0, index=index)
    assert scene.gpus(_job(scene, 1, 300, memory), snapshot) == [(1,)]


def test_a_gpu_with_overcommitted_memory_takes_no_share(scene: Scene) -> None:
    node = scene.node("n1", gpu=2, gpu_memory=4 * GIB)
    snapshot = Snapshot([node])
    scene.allocate(snapshot, "n1", Resources(gpu=300, gpu_memory=3 * GIB), 0)
    snapshot.put_node(msgspec.structs.replace(node, gpu_memory=2 * GIB))
    assert scene.gpus(_job(scene, 1, 300, GIB), snapshot) == [(1,)]


@pytest.mark.parametrize(
    ("label", "domains"),
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
def test_nvlink_domains_are_parsed_from_a_label(label: str, domains: tuple[tuple[int, ...], ...]) -> None:
    node = Node(name="n", allocatable=Resources(gpu=8000), labels={NVLINK_DOMAINS_LABEL: label})
    assert nvlink_domains_of(node) == domains


def test_the_gpus_of_a_replica_are_in_one_nvlink_domain(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=8, labels={NVLINK_DOMAINS_LABEL: "0-3_4-7"})])
    scene.allocate(snapshot, "n1", Resources(gpu=2000), 0, 1)
    assert scene.gpus(_job(scene, 1, 3000, together=True), snapshot) == [(4, 5, 6)]
    scene.shortfall(_job(scene, 2, 3000, together=True), snapshot)
    assert scene.place(_job(scene, 2, 3000), snapshot)


def test_the_fullest_nvlink_domain_that_holds_a_replica_is_taken(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=8, labels={NVLINK_DOMAINS_LABEL: "0-3_4-7"})])
    scene.allocate(snapshot, "n1", Resources(gpu=2000), 4, 5)
    assert scene.gpus(_job(scene, 1, 2000, together=True), snapshot) == [(6, 7)]


def test_a_node_without_the_label_is_one_nvlink_domain(scene: Scene) -> None:
    assert scene.gpus(_job(scene, 1, 4000, together=True), scene.two()) == [(0, 1, 2, 3)]
