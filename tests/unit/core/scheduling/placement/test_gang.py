"""Placement of a gang: the largest size, the tightest node, the same result every time."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from muster_core.models import Job, Node, Resources, Role, Template
from muster_core.scheduling.placement import Snapshot, gang_of, place, to_reason

if TYPE_CHECKING:
    from conftest import Scene

LINK = "example.com/link"


def test_a_gang_that_fits_on_one_node_takes_one_node(scene: Scene) -> None:
    assert scene.nodes(scene.job(4, most=4), scene.two()) == {"n1": {"ps": 1, "worker": 4}}


def test_workers_that_do_not_fit_beside_the_ps_take_the_other_node(scene: Scene) -> None:
    job = scene.job(6, minimum=2, most=8)
    assert scene.nodes(job, scene.two()) == {"n1": {"ps": 1, "worker": 4}, "n2": {"worker": 2}}


def test_a_gang_starts_with_as_many_replicas_as_fit(scene: Scene) -> None:
    job = scene.job(10, minimum=4, most=10)
    assert scene.nodes(job, scene.two()) == {"n1": {"ps": 1, "worker": 4}, "n2": {"worker": 4}}


def test_a_gang_below_its_minimum_is_short_of_one_gpu(scene: Scene) -> None:
    found = scene.shortfall(scene.job(10, minimum=9, most=10), scene.two())
    reason = to_reason(found)
    assert reason.code == "InsufficientResources"
    assert reason.message.startswith("short of 1 GPU: 8 of 9 needed are free, on 2 nodes")
    assert (reason.numbers["needed.gpu"], reason.numbers["free.gpu"]) == (9000, 8000)
    assert not found.feasible_when_empty


def test_full_size_on_two_nodes_beats_a_smaller_size_on_one(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=3), scene.node("n2", gpu=2)])
    assert scene.nodes(scene.job(4), snapshot) == {"n1": {"ps": 1, "worker": 3}, "n2": {"worker": 1}}


def test_a_large_ps_takes_the_large_node_and_the_workers_the_other(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", cpu=4, gpu=0), scene.node("n2", cpu=8, gpu=0)])
    job = scene.job(4, ps=Resources(cpu=8000), worker=Resources(cpu=1000))
    assert scene.nodes(job, snapshot) == {"n2": {"ps": 1}, "n1": {"worker": 4}}


def test_two_ps_take_two_nodes_with_two_workers_each(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", cpu=6, gpu=0), scene.node("n2", cpu=6, gpu=0)])
    job = scene.job(4, minimum=3, ps=Resources(cpu=4000), servers=2, worker=Resources(cpu=1000))
    assert scene.nodes(job, snapshot) == {"n1": {"ps": 1, "worker": 2}, "n2": {"ps": 1, "worker": 2}}


def test_requests_as_large_as_the_node_leave_the_gang_waiting(scene: Scene) -> None:
    job = scene.job(4, minimum=4, ps=Resources(cpu=4000), worker=Resources(cpu=4000))
    found = scene.shortfall(job, Snapshot([scene.node("n1", cpu=4, gpu=0)]))
    assert found.placeable == 1
    assert to_reason(found).message == (
        "short of 16 CPU: 4 of 20 needed are free, on 1 node; the empty pool could not hold it either"
    )


def test_the_tightest_node_that_holds_the_gang_is_taken(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a", cpu=64), scene.node("b", cpu=8), scene.node("c", cpu=16)])
    assert scene.nodes(scene.job(2), snapshot) == {"b": {"ps": 1, "worker": 2}}


def test_a_gang_without_gpus_leaves_gpu_nodes_free(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a", gpu=8), scene.node("b", gpu=0)])
    assert scene.nodes(scene.job(2, worker=Resources(cpu=1000)), snapshot) == {"b": {"ps": 1, "worker": 2}}


def test_equal_nodes_are_taken_by_name(scene: Scene) -> None:
    snapshot = Snapshot([scene.node(name) for name in ("n10", "n2", "n1")])
    assert scene.nodes(scene.job(2), snapshot) == {"n1": {"ps": 1, "worker": 2}}


def test_the_remainder_goes_to_the_tightest_node_that_holds_it(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a", gpu=4), scene.node("b", gpu=3), scene.node("c", gpu=2)])
    assert scene.nodes(scene.job(6), snapshot) == {"a": {"ps": 1, "worker": 4}, "c": {"worker": 2}}


def test_the_order_of_nodes_does_not_matter(scene: Scene) -> None:
    nodes = [scene.node(f"n{i}", cpu=4 + i % 3, gpu=i % 4) for i in range(20)]
    gang = gang_of(scene.job(12, minimum=3))
    expected = place(gang, Snapshot(nodes))
    for seed in range(10):
        random.Random(seed).shuffle(nodes)
        assert place(gang, Snapshot(nodes)) == expected


def test_indices_follow_the_nodes_in_the_order_of_choice(scene: Scene) -> None:
    found = scene.place(scene.job(6), scene.two())
    workers = [(one.index, one.node) for one in found.replicas if one.role == "worker"]
    assert workers == [(0, "n1"), (1, "n1"), (2, "n1"), (3, "n1"), (4, "n2"), (5, "n2")]


def test_a_gang_starts_with_min_available_and_not_with_less(scene: Scene) -> None:
    worker = Role(name="worker", replicas=4, min=1, max=4, template=Template(requests=Resources(cpu=1000)))
    job = Job(name="train", roles=(worker,), min_available=3)
    scene.shortfall(job, Snapshot([_cpu_node(2)]))
    assert len(scene.place(job, Snapshot([_cpu_node(3)])).replicas) == 3


def test_every_role_keeps_its_own_minimum(scene: Scene) -> None:
    roles = tuple(
        Role(name=name, replicas=4, min=minimum, max=4, template=Template(requests=Resources(cpu=1000)))
        for name, minimum in (("worker", 1), ("evaluator", 3))
    )
    job = Job(name="train", roles=roles)
    assert scene.nodes(job, Snapshot([_cpu_node(5)])) == {"n1": {"worker": 2, "evaluator": 3}}


def test_single_indices_may_request_more(scene: Scene) -> None:
    worker = Role(
        name="worker",
        replicas=3,
        min=3,
        max=3,
        template=Template(requests=Resources(cpu=1000)),
        overrides={1: Template(requests=Resources(cpu=3000))},
    )
    snapshot = Snapshot([_cpu_node(2, "small"), _cpu_node(3, "large")])
    found = scene.place(Job(name="train", roles=(worker,)), snapshot)
    assert {one.index: one.node for one in found.replicas} == {0: "small", 1: "large", 2: "small"}


def test_placing_does_not_change_the_snapshot(scene: Scene) -> None:
    snapshot = scene.two()
    assert scene.place(scene.job(6), snapshot) == scene.place(scene.job(6), snapshot)


def test_the_number_of_pods_on_a_node_is_bounded(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", pods=2), scene.node("n2", pods=2)])
    assert scene.nodes(scene.job(3), snapshot) == {"n1": {"ps": 1, "worker": 1}, "n2": {"worker": 2}}


def test_gangs_with_equal_requests_are_equal(scene: Scene) -> None:
    assert gang_of(scene.job(2, image="a")) == gang_of(scene.job(2, image="b"))
    assert hash(gang_of(scene.job(2))) == hash(gang_of(scene.job(2)))
    assert gang_of(scene.job(2)) != gang_of(scene.job(3))


def test_extended_resources_are_counted(scene: Scene) -> None:
    rich = scene.node("rich", allocatable=Resources(cpu=16_000, gpu=4000, extended={LINK: 2}))
    snapshot = Snapshot([scene.node("bare"), rich])
    worker = Resources(cpu=1000, extended={LINK: 1})
    assert scene.nodes(scene.job(2, worker=worker), snapshot) == {"rich": {"ps": 1, "worker": 2}}
    found = scene.shortfall(scene.job(3, minimum=3, worker=worker), snapshot)
    assert [(miss.resource, miss.short) for miss in found.misses] == [(LINK, 1)]


def test_allocated_capacity_is_not_free(scene: Scene) -> None:
    snapshot = scene.two()
    scene.allocate(snapshot, "n1", Resources(cpu=1000, gpu=1000), 0)
    assert scene.nodes(scene.job(4, minimum=4, ps=None), snapshot) == {"n2": {"worker": 4}}


def _cpu_node(cpu: int, name: str = "n1") -> Node:
    return Node(name=name, allocatable=Resources(cpu=cpu * 1000))
