"""Node filters and preferences, by Kubernetes' rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from muster_core.models import Node, Resources, Taint, Template, Toleration
from muster_core.scheduling.placement import Snapshot, to_reason
from muster_core.scheduling.placement.filters import excluding_filter, node_rules_of, penalty

if TYPE_CHECKING:
    from conftest import Scene

NODE = Node(
    name="n1",
    allocatable=Resources(cpu=1000),
    labels={"zone": "a", "generation": "7"},
    taints=(Taint(key="gpu", value="yes"), Taint(key="old", effect="PreferNoSchedule")),
)
OLD = Taint(key="old", effect="PreferNoSchedule")
TOLERANT = (Toleration(key="gpu", operator="Exists"),)


def _affinity(*requirements: dict[str, object], field: str = "matchExpressions") -> dict[str, object]:
    selector = {"nodeSelectorTerms": [{field: list(requirements)}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": selector}


def _expression(key: str, operator: str, *values: str) -> dict[str, object]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("tolerations", "feasible"),
    [
        ((), False),
        ((Toleration(key="gpu", operator="Exists"),), True),
        ((Toleration(key="gpu", value="yes"),), True),
        ((Toleration(key="gpu", value="no"),), False),
        ((Toleration(operator="Exists"),), True),
        ((Toleration(key="gpu", operator="Exists", effect="NoSchedule"),), True),
        ((Toleration(key="gpu", operator="Exists", effect="NoExecute"),), False),
    ],
)
def test_a_hard_taint_needs_a_toleration(tolerations: tuple[Toleration, ...], feasible: bool) -> None:
    rules = node_rules_of(Template(tolerations=tolerations))
    assert excluding_filter(rules, NODE) == ("" if feasible else "Taint")


@pytest.mark.parametrize(
    ("requirement", "feasible"),
    [
        (_expression("zone", "In", "a", "b"), True),
        (_expression("zone", "In", "b"), False),
        (_expression("rack", "In", "a"), False),
        (_expression("zone", "NotIn", "b"), True),
        (_expression("zone", "NotIn", "a"), False),
        (_expression("rack", "NotIn", "a"), True),
        ({"key": "zone", "operator": "Exists"}, True),
        ({"key": "rack", "operator": "Exists"}, False),
        ({"key": "rack", "operator": "DoesNotExist"}, True),
        ({"key": "zone", "operator": "DoesNotExist"}, False),
        (_expression("generation", "Gt", "6"), True),
        (_expression("generation", "Gt", "7"), False),
        (_expression("generation", "Lt", "10"), True),
        (_expression("generation", "Gt", "+6"), True),
        (_expression("generation", "Gt", "-6"), True),
        (_expression("generation", "Gt", " 6"), False),
        (_expression("generation", "Lt", "1_0"), False),
        (_expression("generation", "Lt", "\u0669"), False),
        (_expression("generation", "Lt", "9223372036854775807"), True),
        (_expression("generation", "Lt", "9223372036854775808"), False),
        (_expression("generation", "Lt", "9" * 5_000), False),
        (_expression("zone", "Gt", "6"), False),
        (_expression("rack", "Lt", "6"), False),
        (_expression("zone", "Like", "a"), False),
        ({"key": 3}, False),
    ],
)
def test_required_node_affinity_is_compared_with_the_labels(
    requirement: dict[str, object], feasible: bool
) -> None:
    rules = node_rules_of(Template(tolerations=TOLERANT, node_affinity=_affinity(requirement)))
    assert excluding_filter(rules, NODE) == ("" if feasible else "NodeAffinity")


def test_node_affinity_may_name_the_node() -> None:
    def named(name: str) -> str:
        affinity = _affinity(_expression("metadata.name", "In", name), field="matchFields")
        return excluding_filter(node_rules_of(Template(tolerations=TOLERANT, node_affinity=affinity)), NODE)

    assert (named("n1"), named("n2")) == ("", "NodeAffinity")


def test_one_term_of_several_is_enough_and_an_empty_one_matches_nothing() -> None:
    def with_terms(*terms: Mapping[str, object]) -> str:
        affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
        return excluding_filter(node_rules_of(Template(tolerations=TOLERANT, node_affinity=affinity)), NODE)

    wrong = {"matchExpressions": [_expression("zone", "In", "z")]}
    right = {"matchExpressions": [_expression("zone", "In", "a")]}
    assert (with_terms(wrong, right), with_terms(wrong), with_terms({})) == (
        "",
        "NodeAffinity",
        "NodeAffinity",
    )


def test_preferred_affinity_excludes_no_node() -> None:
    preferred: dict[str, object] = {"weight": 1, "preference": {"matchExpressions": []}}
    affinity: dict[str, object] = {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}
    assert excluding_filter(node_rules_of(Template(tolerations=TOLERANT, node_affinity=affinity)), NODE) == ""


def test_the_node_selector_needs_every_label() -> None:
    rules = node_rules_of(Template(tolerations=TOLERANT, node_selector={"zone": "a", "rack": "1"}))
    assert excluding_filter(rules, NODE) == "NodeSelector"


def test_unready_and_cordoned_nodes_are_infeasible(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", ready=False), scene.node("n2", unschedulable=True)])
    reason = to_reason(scene.shortfall(scene.job(1), snapshot))
    assert reason.code == "NoMatchingNode"
    assert reason.message == "no node is feasible for ps: of 2 nodes, 1 not ready, 1 cordoned"


def test_roles_may_select_different_nodes(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a", labels={"disk": "ssd"}), scene.node("b", labels={"disk": "hdd"})])
    job = scene.job(2, node_selector={"disk": "hdd"})
    assert scene.nodes(job, snapshot) == {"b": {"ps": 1, "worker": 2}}
    tainted = Snapshot([scene.node("a"), scene.node("b", taints=(Taint(key="gpu"),), labels={"disk": "hdd"})])
    tolerant = scene.job(2, node_selector={"disk": "hdd"}, tolerations=TOLERANT)
    assert scene.nodes(tolerant, tainted) == {"a": {"ps": 1}, "b": {"worker": 2}}


def test_a_changed_label_changes_feasibility(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a")])
    job = scene.job(1, node_selector={"disk": "ssd"})
    scene.shortfall(job, snapshot)
    snapshot.put_node(scene.node("a", labels={"disk": "ssd"}))
    assert scene.nodes(job, snapshot) == {"a": {"ps": 1, "worker": 1}}


def _preferring(*preferences: tuple[int, str, str]) -> dict[str, object]:
    terms = [
        {
            "weight": weight,
            "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]},
        }
        for weight, key, value in preferences
    ]
    return {"preferredDuringSchedulingIgnoredDuringExecution": terms}


def test_a_preferred_node_is_taken_before_a_tighter_one(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a", cpu=4), scene.node("b", labels={"disk": "ssd"})])
    job = scene.job(1, ps=None, node_affinity=_preferring((1, "disk", "ssd")))
    assert scene.nodes(job, snapshot) == {"b": {"worker": 1}}


def test_the_heavier_preference_wins(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a", labels={"disk": "ssd"}), scene.node("b", labels={"zone": "near"})])
    job = scene.job(1, ps=None, node_affinity=_preferring((10, "disk", "ssd"), (90, "zone", "near")))
    assert scene.nodes(job, snapshot) == {"b": {"worker": 1}}


def test_a_preference_does_not_make_a_gang_use_more_nodes(scene: Scene) -> None:
    nodes = [scene.node("a", gpu=2, labels={"disk": "ssd"}), scene.node("b", gpu=2, labels={"disk": "ssd"})]
    job = scene.job(4, ps=None, node_affinity=_preferring((100, "disk", "ssd")))
    assert scene.nodes(job, Snapshot([*nodes, scene.node("c", gpu=4)])) == {"c": {"worker": 4}}


def test_a_soft_taint_is_avoided_while_other_nodes_have_capacity(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a", cpu=8, taints=(OLD,)), scene.node("b")])
    assert scene.nodes(scene.job(4, ps=None), snapshot) == {"b": {"worker": 4}}
    assert scene.nodes(scene.job(8, ps=None), snapshot) == {"b": {"worker": 4}, "a": {"worker": 4}}
    tolerant = scene.job(4, ps=None, tolerations=(Toleration(operator="Exists"),))
    assert scene.nodes(tolerant, snapshot) == {"a": {"worker": 4}}


def test_a_changed_taint_changes_the_choice(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a", cpu=8), scene.node("b")])
    job = scene.job(4, ps=None)
    assert scene.nodes(job, snapshot) == {"a": {"worker": 4}}
    snapshot.put_node(scene.node("a", cpu=8, taints=(OLD,)))
    assert scene.nodes(job, snapshot) == {"b": {"worker": 4}}
    snapshot.put_node(scene.node("a", cpu=8))
    assert scene.nodes(job, snapshot) == {"a": {"worker": 4}}


def test_the_penalty_sums_missed_preferences_and_ignores_invalid_ones() -> None:
    node = Node(name="n", allocatable=Resources(), taints=(OLD,), labels={"disk": "ssd"})
    preferences = _preferring((10, "disk", "ssd"), (20, "zone", "near"))
    assert penalty(node_rules_of(Template(node_affinity=preferences)), node) == 120
    invalid: dict[str, object] = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": "much"}]}
    assert penalty(node_rules_of(Template(node_affinity=invalid)), node) == 100
