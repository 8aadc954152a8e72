"""The free capacity of a pool: what is held, what others use, and transactions over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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

SHARE = demand_of(Resources(gpu=300))
WHOLE = demand_of(Resources(gpu=1000))


def _key(index: int) -> tuple[str, int, str, int]:
    return ("job", 1, "worker", index)


def _gpus(snapshot: Snapshot, number: int, milli: int, memory: int = 0) -> list[tuple[int, ...]] | None:
    template = Template(requests=Resources(gpu=milli, gpu_memory=memory))
    role = Role(name="worker", replicas=number, min=number, max=number, template=template)
    found = place(gang_of(Job(name="train", roles=(role,))), snapshot)
    return [one.gpus for one in found.replicas] if isinstance(found, Placement) else None


def test_a_rollback_leaves_everything_as_it_was(scene: Scene) -> None:
    snapshot = scene.two()
    snapshot.allocate(_key(0), Allocation("n1", WHOLE, (0,)))
    before = (snapshot.free_capacity("n1"), snapshot.free_capacity("n2"), dict(snapshot.allocations))
    mark = snapshot.checkpoint()
    snapshot.allocate(_key(1), Allocation("n1", WHOLE, (1,)))
    snapshot.release(_key(0))
    inner = snapshot.checkpoint()
    snapshot.allocate(_key(2), Allocation("n2", WHOLE, (0,)))
    snapshot.commit(inner)
    snapshot.rollback(mark)
    assert (snapshot.free_capacity("n1"), snapshot.free_capacity("n2"), dict(snapshot.allocations)) == before


def test_an_inner_rollback_keeps_what_came_before(scene: Scene) -> None:
    snapshot = scene.two()
    mark = snapshot.checkpoint()
    snapshot.allocate(_key(0), Allocation("n1", WHOLE, (0,)))
    inner = snapshot.checkpoint()
    snapshot.allocate(_key(1), Allocation("n1", WHOLE, (1,)))
    snapshot.rollback(inner)
    snapshot.commit(mark)
    assert list(snapshot.allocations) == [_key(0)]


def test_misuse_is_refused(scene: Scene) -> None:
    snapshot = scene.two()
    with pytest.raises(ValueError, match="no transaction"):
        snapshot.commit(0)
    snapshot.allocate(_key(0), Allocation("n1", WHOLE, (0,)))
    with pytest.raises(ValueError, match="has an allocation on n1 already"):
        snapshot.allocate(_key(0), Allocation("n2", WHOLE, (0,)))
    with pytest.raises(KeyError):
        snapshot.release(_key(1))
    snapshot.checkpoint()
    with pytest.raises(ValueError, match="inside a transaction"):
        snapshot.put_node(scene.node("n3"))


def test_what_others_use_is_not_free(scene: Scene) -> None:
    foreign = Resources(cpu=4000, gpu=2000)
    snapshot = Snapshot([scene.node("n1", foreign=foreign)])
    assert snapshot.free_total() == Resources(cpu=12_000, gpu=2000)
    assert _gpus(snapshot, 2, 1000) == [(0,), (1,)]
    assert _gpus(snapshot, 3, 1000) is None


def test_foreign_gpus_are_taken_off_those_that_no_replica_uses(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1")])
    snapshot.allocate(_key(0), Allocation("n1", WHOLE, (3,)))
    snapshot.put_node(scene.node("n1", foreign=Resources(gpu=2000)))
    assert _gpus(snapshot, 1, 1000) == [(0,)]
    assert _gpus(snapshot, 2, 1000) is None
    assert snapshot.overcommitted() == []


def test_whole_gpus_are_never_shared_ones(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=2)])
    snapshot.allocate(_key(0), Allocation("n1", SHARE, (0,)))
    assert _gpus(snapshot, 1, 1000) == [(1,)]
    assert _gpus(snapshot, 2, 1000) is None


def test_a_share_goes_to_the_fullest_gpu_that_holds_it(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=3)])
    snapshot.allocate(_key(0), Allocation("n1", SHARE, (1,)))
    assert _gpus(snapshot, 1, 500) == [(1,)]
    assert _gpus(snapshot, 1, 800) == [(0,)]


def test_a_share_never_spans_gpus(scene: Scene) -> None:
    assert _gpus(Snapshot([scene.node("n1", gpu=2)]), 3, 600) is None


def test_gpu_memory_is_counted_on_each_gpu(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=2, gpu_memory=10)])
    assert _gpus(snapshot, 2, 100, memory=6) == [(0,), (1,)]
    assert _gpus(snapshot, 3, 100, memory=6) is None
    assert _gpus(snapshot, 1, 1000, memory=11) is None


def test_memory_alone_makes_a_gpu_a_shared_one(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=1, gpu_memory=10)])
    snapshot.allocate(_key(0), Allocation("n1", demand_of(Resources(gpu_memory=4)), (0,)))
    assert _gpus(snapshot, 1, 1000) is None
    assert _gpus(snapshot, 1, 0, memory=6) == [(0,)]


def test_a_gpu_of_unknown_memory_holds_no_demand_for_memory(scene: Scene) -> None:
    assert _gpus(Snapshot([scene.node("n1")]), 1, 500, memory=1) is None


def test_holds_outlive_their_node(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1")])
    snapshot.allocate(_key(0), Allocation("n1", WHOLE, (0,)))
    snapshot.drop_node("n1")
    snapshot.drop_node("n1")
    assert snapshot.free_total() == Resources()
    snapshot.put_node(scene.node("n1"))
    assert _gpus(snapshot, 1, 1000) == [(1,)]


def test_a_hold_on_a_node_to_come_counts_when_it_comes(scene: Scene) -> None:
    snapshot = Snapshot()
    snapshot.allocate(_key(0), Allocation("n1", WHOLE, (0,)))
    snapshot.put_node(scene.node("n1", gpu=1))
    assert isinstance(scene.where(scene.job(1), snapshot), Shortfall)


def test_a_node_that_shrinks_below_what_it_holds_is_overfull(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", cpu=2)])
    for index in range(2):
        snapshot.allocate(_key(index), Allocation("n1", demand_of(Resources(cpu=1000))))
    assert snapshot.overcommitted() == []
    snapshot.put_node(scene.node("n1", cpu=1))
    assert snapshot.overcommitted() == ["n1"]
    assert snapshot.free_total().cpu == 0


def test_totals_leave_out_nodes_that_take_nothing_new(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu_memory=8), scene.node("n2", ready=False)])
    expected = Resources(cpu=16_000, gpu=4000, gpu_memory=32)
    assert (snapshot.free_total(), snapshot.allocatable_total()) == (expected, expected)


def test_a_resource_met_later_is_counted_from_then_on() -> None:
    snapshot = Snapshot([Node(name="n1", allocatable=Resources(cpu=1000))])
    snapshot.allocate(_key(0), Allocation("n2", demand_of(Resources(extended={"example.com/link": 1}))))
    snapshot.put_node(Node(name="n2", allocatable=Resources(cpu=1000, extended={"example.com/link": 3})))
    assert snapshot.free_total().extended == {"example.com/link": 2}


def test_a_request_of_one_and_a_half_gpus_takes_two() -> None:
    assert demand_of(Resources(gpu=1500)).gpus == 2


def test_a_node_that_gains_a_new_resource_is_counted_once(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", cpu=4)])
    snapshot.put_node(scene.node("n1", allocatable=Resources(cpu=4000, extended={"example.com/link": 1})))
    assert snapshot.free_total() == Resources(cpu=4000, extended={"example.com/link": 1})


def test_holding_several_is_all_or_nothing(scene: Scene) -> None:
    snapshot = scene.two()
    hold = Allocation("n1", demand_of(Resources(cpu=1000)))
    snapshot.allocate(("a", 1, "worker", 0), hold)
    for key in (("a", 1, "worker", 0), ("b", 1, "worker", 0)):
        with pytest.raises(ValueError, match=r"already|repeated"):
            snapshot.allocate_all([(("b", 1, "worker", 0), hold), (key, hold)])
    assert set(snapshot.allocations) == {("a", 1, "worker", 0)}
    snapshot.allocate_all((("b", 1, "worker", index), hold) for index in range(3))
    assert snapshot.free_capacity("n1").free[0] == 12_000
