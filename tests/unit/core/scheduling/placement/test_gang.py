"""How a gang finds its place: the tightest node, the largest size, the same answer every time."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from muster_core.models import Job, Node, Resources, Role, Template
from muster_core.scheduling.placement import (
    Allocation,
    Placement,
    Shortfall,
    Snapshot,
    demand_of,
    gang_of,
    place,
)

if TYPE_CHECKING:
    from conftest import Scene


def test_the_tightest_node_that_holds_all_is_taken(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a", cpu=64), scene.node("b", cpu=8), scene.node("c", cpu=16)])
    assert scene.where(scene.job(2), snapshot) == {"b": {"ps": 1, "worker": 2}}


def test_a_gang_without_gpus_leaves_gpu_nodes_alone(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a", gpu=8), scene.node("b", gpu=0)])
    assert scene.where(scene.job(2, worker=Resources(cpu=1000)), snapshot) == {"b": {"ps": 1, "worker": 2}}


def test_equal_nodes_are_taken_by_name(scene: Scene) -> None:
    snapshot = Snapshot([scene.node(name) for name in ("n10", "n2", "n1")])
    assert scene.where(scene.job(2), snapshot) == {"n1": {"ps": 1, "worker": 2}}


def test_the_remainder_goes_to_the_tightest_node_that_holds_it(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a", gpu=4), scene.node("b", gpu=3), scene.node("c", gpu=2)])
    assert scene.where(scene.job(6), snapshot) == {"a": {"ps": 1, "worker": 4}, "c": {"worker": 2}}


def test_the_order_of_nodes_does_not_matter(scene: Scene) -> None:
    nodes = [scene.node(f"n{i}", cpu=4 + i % 3, gpu=i % 4) for i in range(20)]
    gang = gang_of(scene.job(12, floor=3))
    expected = place(gang, Snapshot(nodes))
    for seed in range(10):
        random.Random(seed).shuffle(nodes)
        assert place(gang, Snapshot(nodes)) == expected


def test_indices_follow_the_nodes_in_the_order_of_their_choice(scene: Scene) -> None:
    found = place(gang_of(scene.job(6)), scene.two())
    assert isinstance(found, Placement)
    workers = [(one.index, one.node) for one in found.replicas if one.role == "worker"]
    assert workers == [(0, "n1"), (1, "n1"), (2, "n1"), (3, "n1"), (4, "n2"), (5, "n2")]


def test_the_gang_may_take_min_available_and_no_less() -> None:
    worker = Role(name="worker", replicas=4, min=1, max=4, template=Template(requests=Resources(cpu=1000)))
    job = Job(name="train", roles=(worker,), min_available=3)

    def cpus(number: int) -> Snapshot:
        return Snapshot([_cpu_node(number)])

    assert isinstance(place(gang_of(job), cpus(2)), Shortfall)
    found = place(gang_of(job), cpus(3))
    assert isinstance(found, Placement)
    assert len(found.replicas) == 3


def test_every_role_keeps_its_own_minimum() -> None:
    roles = tuple(
        Role(name=name, replicas=4, min=floor, max=4, template=Template(requests=Resources(cpu=1000)))
        for name, floor in (("worker", 1), ("evaluator", 3))
    )
    found = place(gang_of(Job(name="train", roles=roles)), Snapshot([_cpu_node(5)]))
    assert isinstance(found, Placement)
    sizes = [one.role for one in found.replicas]
    assert (sizes.count("worker"), sizes.count("evaluator")) == (2, 3)


def test_single_indices_may_ask_for_more() -> None:
    big = Template(requests=Resources(cpu=3000))
    worker = Role(
        name="worker",
        replicas=3,
        min=3,
        max=3,
        template=Template(requests=Resources(cpu=1000)),
        overrides={1: big},
    )
    snapshot = Snapshot([_cpu_node(2, "small"), _cpu_node(3, "large")])
    found = place(gang_of(Job(name="train", roles=(worker,))), snapshot)
    assert isinstance(found, Placement)
    assert {one.index: one.node for one in found.replicas} == {0: "small", 1: "large", 2: "small"}


def test_placing_changes_nothing(scene: Scene) -> None:
    snapshot = scene.two()
    assert place(gang_of(scene.job(6)), snapshot) == place(gang_of(scene.job(6)), snapshot)


def test_the_number_of_replicas_on_a_node_is_bounded(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", pods=2), scene.node("n2", pods=2)])
    assert scene.where(scene.job(3), snapshot) == {"n1": {"ps": 1, "worker": 1}, "n2": {"worker": 2}}


def test_a_gang_is_compared_by_what_it_asks_for_only(scene: Scene) -> None:
    assert gang_of(scene.job(2, image="a")) == gang_of(scene.job(2, image="b"))
    assert hash(gang_of(scene.job(2))) == hash(gang_of(scene.job(2)))
    assert gang_of(scene.job(2)) != gang_of(scene.job(3))


def test_extended_resources_are_counted(scene: Scene) -> None:
    bare = scene.node("bare")
    rich = scene.node("rich", allocatable=Resources(cpu=16_000, gpu=4000, extended={"example.com/link": 2}))
    job = scene.job(2, worker=Resources(cpu=1000, extended={"example.com/link": 1}))
    assert scene.where(job, Snapshot([bare, rich])) == {"rich": {"ps": 1, "worker": 2}}
    found = scene.where(scene.job(3, floor=3, worker=job.roles[1].template.requests), Snapshot([bare, rich]))
    assert isinstance(found, Shortfall)
    assert [(miss.resource, miss.short) for miss in found.misses] == [("example.com/link", 1)]


def test_what_is_held_is_not_free(scene: Scene) -> None:
    snapshot = scene.two()
    snapshot.allocate(
        ("other", 1, "worker", 0), Allocation("n1", demand_of(Resources(cpu=1000, gpu=1000)), (0,))
    )
    found = place(gang_of(scene.job(4, floor=4, ps=None)), snapshot)
    assert isinstance(found, Placement)
    assert {one.node for one in found.replicas} == {"n2"}


def _cpu_node(cpu: int, name: str = "n1") -> Node:
    return Node(name=name, allocatable=Resources(cpu=cpu * 1000))
