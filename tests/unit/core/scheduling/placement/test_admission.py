"""Which nodes admit a replica, by Kubernetes' rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from muster_core.models import Node, Resources, Taint, Template, Toleration
from muster_core.scheduling.placement import Shortfall, Snapshot, to_reason
from muster_core.scheduling.placement.filters import excluding_filter, node_rules_of

if TYPE_CHECKING:
    from conftest import Scene

NODE = Node(
    name="n1",
    allocatable=Resources(cpu=1000),
    labels={"zone": "a", "generation": "7"},
    taints=(Taint(key="gpu", value="yes"), Taint(key="old", effect="PreferNoSchedule")),
)
TOLERANT = (Toleration(key="gpu", operator="Exists"),)


def _affinity(*requirements: dict[str, object], field: str = "matchExpressions") -> dict[str, object]:
    selector = {"nodeSelectorTerms": [{field: list(requirements)}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": selector}


def _expression(key: str, operator: str, *values: str) -> dict[str, object]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("tolerations", "admitted"),
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
def test_taints_are_held_against_tolerations(tolerations: tuple[Toleration, ...], admitted: bool) -> None:
    rules = node_rules_of(Template(tolerations=tolerations))
    assert excluding_filter(rules, NODE) == ("" if admitted else "Taint")


@pytest.mark.parametrize(
    ("requirement", "admitted"),
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
def test_required_affinity_is_held_against_labels(requirement: dict[str, object], admitted: bool) -> None:
    rules = node_rules_of(Template(tolerations=TOLERANT, node_affinity=_affinity(requirement)))
    assert excluding_filter(rules, NODE) == ("" if admitted else "NodeAffinity")


def test_affinity_may_name_the_node() -> None:
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


def test_preferred_affinity_alone_refuses_nobody() -> None:
    preferred: dict[str, object] = {"weight": 1, "preference": {"matchExpressions": []}}
    affinity: dict[str, object] = {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}
    assert excluding_filter(node_rules_of(Template(tolerations=TOLERANT, node_affinity=affinity)), NODE) == ""


def test_the_node_selector_needs_every_label() -> None:
    rules = node_rules_of(Template(tolerations=TOLERANT, node_selector={"zone": "a", "rack": "1"}))
    assert excluding_filter(rules, NODE) == "NodeSelector"


def test_nodes_that_are_not_ready_or_cordoned_get_nothing(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", ready=False), scene.node("n2", unschedulable=True)])
    found = scene.where(scene.job(1), snapshot)
    assert isinstance(found, Shortfall)
    reason = to_reason(found)
    assert reason.code == "NoMatchingNode"
    assert reason.message == "no node is feasible for ps: of 2 nodes, 1 not ready, 1 cordoned"


def test_roles_may_be_bound_to_different_nodes(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a", labels={"disk": "ssd"}), scene.node("b", labels={"disk": "hdd"})])
    job = scene.job(2, node_selector={"disk": "hdd"})
    assert scene.where(job, snapshot) == {"b": {"ps": 1, "worker": 2}}
    tainted = Snapshot([scene.node("a"), scene.node("b", taints=(Taint(key="gpu"),), labels={"disk": "hdd"})])
    tolerant = scene.job(2, node_selector={"disk": "hdd"}, tolerations=TOLERANT)
    assert scene.where(tolerant, tainted) == {"a": {"ps": 1}, "b": {"worker": 2}}


def test_a_changed_label_is_noticed(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a")])
    job = scene.job(1, node_selector={"disk": "ssd"})
    assert isinstance(scene.where(job, snapshot), Shortfall)
    snapshot.put_node(scene.node("a", labels={"disk": "ssd"}))
    assert scene.where(job, snapshot) == {"a": {"ps": 1, "worker": 1}}
