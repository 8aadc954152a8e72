"""Nodes that a replica would rather have: preferred node affinity, and taints that only discourage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster_core.models import Node, Resources, Taint, Template, Toleration
from muster_core.scheduling.placement import Snapshot
from muster_core.scheduling.placement.filters import node_rules_of, penalty

if TYPE_CHECKING:
    from conftest import Scene

OLD = Taint(key="old", effect="PreferNoSchedule")


def _preferring(*wishes: tuple[int, str, str]) -> dict[str, object]:
    terms = [
        {
            "weight": weight,
            "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]},
        }
        for weight, key, value in wishes
    ]
    return {"preferredDuringSchedulingIgnoredDuringExecution": terms}


def test_a_preferred_node_is_taken_before_a_tighter_one(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a", cpu=4), scene.node("b", labels={"disk": "ssd"})])
    job = scene.job(1, ps=None, node_affinity=_preferring((1, "disk", "ssd")))
    assert scene.where(job, snapshot) == {"b": {"worker": 1}}


def test_the_heavier_preference_wins(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a", labels={"disk": "ssd"}), scene.node("b", labels={"zone": "near"})])
    job = scene.job(1, ps=None, node_affinity=_preferring((10, "disk", "ssd"), (90, "zone", "near")))
    assert scene.where(job, snapshot) == {"b": {"worker": 1}}


def test_a_preference_never_costs_a_node(scene: Scene) -> None:
    nodes = [scene.node("a", gpu=2, labels={"disk": "ssd"}), scene.node("b", gpu=2, labels={"disk": "ssd"})]
    job = scene.job(4, ps=None, node_affinity=_preferring((100, "disk", "ssd")))
    assert scene.where(job, Snapshot([*nodes, scene.node("c", gpu=4)])) == {"c": {"worker": 4}}


def test_a_discouraging_taint_is_avoided_as_long_as_there_is_room_elsewhere(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a", cpu=8, taints=(OLD,)), scene.node("b")])
    assert scene.where(scene.job(4, ps=None), snapshot) == {"b": {"worker": 4}}
    assert scene.where(scene.job(8, ps=None), snapshot) == {"b": {"worker": 4}, "a": {"worker": 4}}
    tolerant = scene.job(4, ps=None, tolerations=(Toleration(operator="Exists"),))
    assert scene.where(tolerant, snapshot) == {"a": {"worker": 4}}


def test_a_taint_that_comes_and_goes_is_noticed(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a", cpu=8), scene.node("b")])
    job = scene.job(4, ps=None)
    assert scene.where(job, snapshot) == {"a": {"worker": 4}}
    snapshot.put_node(scene.node("a", cpu=8, taints=(OLD,)))
    assert scene.where(job, snapshot) == {"b": {"worker": 4}}
    snapshot.put_node(scene.node("a", cpu=8))
    assert scene.where(job, snapshot) == {"a": {"worker": 4}}


def test_what_is_missed_is_summed_and_what_cannot_be_read_prefers_nothing() -> None:
    node = Node(name="n", allocatable=Resources(), taints=(OLD,), labels={"disk": "ssd"})
    wishes = _preferring((10, "disk", "ssd"), (20, "zone", "near"))
    assert penalty(node_rules_of(Template(node_affinity=wishes)), node) == 120
    unreadable: dict[str, object] = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": "much"}]}
    assert penalty(node_rules_of(Template(node_affinity=unreadable)), node) == 100
