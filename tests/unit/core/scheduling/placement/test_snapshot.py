"""The snapshot of a pool: transactions, nodes that change, and totals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core.models import Node, Resources
from muster_core.scheduling.placement import Allocation, AllocationKey, Snapshot, demand_of

if TYPE_CHECKING:
    from conftest import Scene

LINK = "example.com/link"
ON_N1 = Allocation("n1", demand_of(Resources(gpu=1000)), (0,))


def _key(index: int) -> AllocationKey:
    return ("job", 1, "worker", index)


def _state(snapshot: Snapshot) -> object:
    return snapshot.free_capacity("n1"), snapshot.free_capacity("n2"), dict(snapshot.allocations)


def test_a_rollback_restores_the_snapshot(scene: Scene) -> None:
    snapshot = scene.two()
    snapshot.allocate(_key(0), ON_N1)
    before = _state(snapshot)
    mark = snapshot.checkpoint()
    snapshot.allocate(_key(1), ON_N1._replace(gpus=(1,)))
    snapshot.release(_key(0))
    inner = snapshot.checkpoint()
    snapshot.allocate(_key(2), ON_N1._replace(node="n2"))
    snapshot.commit(inner)
    snapshot.rollback(mark)
    assert _state(snapshot) == before


def test_an_inner_rollback_keeps_the_outer_changes(scene: Scene) -> None:
    snapshot = scene.two()
    mark = snapshot.checkpoint()
    snapshot.allocate(_key(0), ON_N1)
    inner = snapshot.checkpoint()
    snapshot.allocate(_key(1), ON_N1._replace(gpus=(1,)))
    snapshot.rollback(inner)
    snapshot.commit(mark)
    assert list(snapshot.allocations) == [_key(0)]


def test_invalid_calls_raise(scene: Scene) -> None:
    snapshot = scene.two()
    with pytest.raises(ValueError, match="no transaction"):
        snapshot.commit(0)
    snapshot.allocate(_key(0), ON_N1)
    with pytest.raises(ValueError, match="has an allocation on n1 already"):
        snapshot.allocate(_key(0), ON_N1._replace(node="n2"))
    with pytest.raises(KeyError):
        snapshot.release(_key(1))
    snapshot.checkpoint()
    with pytest.raises(ValueError, match="inside a transaction"):
        snapshot.put_node(scene.node("n3"))


def test_several_allocations_are_added_all_or_none(scene: Scene) -> None:
    snapshot = scene.two()
    allocation = Allocation("n1", demand_of(Resources(cpu=1000)))
    snapshot.allocate(_key(0), allocation)
    with pytest.raises(ValueError, match="already"):
        snapshot.allocate_all([(_key(1), allocation), (_key(0), allocation)])
    with pytest.raises(ValueError, match="repeated"):
        snapshot.allocate_all([(_key(1), allocation), (_key(1), allocation)])
    assert set(snapshot.allocations) == {_key(0)}
    snapshot.allocate_all((_key(index), allocation) for index in (1, 2, 3))
    assert snapshot.free_capacity("n1").free[0] == 12_000


def test_allocations_outlive_their_node(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1")])
    snapshot.allocate(_key(0), ON_N1)
    snapshot.drop_node("n1")
    snapshot.drop_node("n1")
    assert snapshot.free_total() == Resources()
    snapshot.put_node(scene.node("n1"))
    assert scene.gpus(scene.job(1, ps=None), snapshot) == [(1,)]


def test_an_allocation_on_an_unknown_node_counts_once_the_node_is_known(scene: Scene) -> None:
    snapshot = Snapshot()
    snapshot.allocate(_key(0), ON_N1)
    snapshot.put_node(scene.node("n1", gpu=1))
    scene.shortfall(scene.job(1), snapshot)


def test_a_node_that_shrinks_below_its_allocations_is_overcommitted(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", cpu=2)])
    for index in range(2):
        snapshot.allocate(_key(index), Allocation("n1", demand_of(Resources(cpu=1000))))
    assert snapshot.overcommitted() == []
    snapshot.put_node(scene.node("n1", cpu=1))
    assert snapshot.overcommitted() == ["n1"]
    assert snapshot.free_total().cpu == 0


def test_totals_exclude_unschedulable_nodes(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu_memory=8), scene.node("n2", ready=False)])
    expected = Resources(cpu=16_000, gpu=4000, gpu_memory=32)
    assert (snapshot.free_total(), snapshot.allocatable_total()) == (expected, expected)


def test_a_new_extended_resource_is_counted_on_its_first_node() -> None:
    snapshot = Snapshot([Node(name="n1", allocatable=Resources(cpu=1000))])
    snapshot.allocate(_key(0), Allocation("n2", demand_of(Resources(extended={LINK: 1}))))
    snapshot.put_node(Node(name="n2", allocatable=Resources(cpu=1000, extended={LINK: 3})))
    assert snapshot.free_total().extended == {LINK: 2}


def test_a_known_node_with_a_new_resource_is_counted_once(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", cpu=4)])
    snapshot.put_node(scene.node("n1", allocatable=Resources(cpu=4000, extended={LINK: 1})))
    assert snapshot.free_total() == Resources(cpu=4000, extended={LINK: 1})
