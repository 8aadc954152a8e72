"""What replicas ask of one another and of what runs, in Kubernetes' words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core.models import PlacementPolicy, Strategy, Template
from muster_core.scheduling.placement import (
    Placement,
    Shortfall,
    Snapshot,
    allocation_of,
    gang_of,
    place,
    to_reason,
)
from muster_core.scheduling.placement.affinity import replica_affinity_of

if TYPE_CHECKING:
    from conftest import Scene

HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
MINE = {"app": "train"}


def _term(key: str = HOST, **labels: str) -> dict[str, object]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels or MINE}}


def _pod(**spec: object) -> dict[str, object]:
    return {"spec": spec}


def _apart(*terms: dict[str, object]) -> dict[str, object]:
    return _pod(affinity={"podAntiAffinity": {REQUIRED: list(terms)}})


def _beside(*terms: dict[str, object]) -> dict[str, object]:
    return _pod(affinity={"podAffinity": {REQUIRED: list(terms)}})


def _evenly(key: str, *, skew: int = 1, **rest: object) -> dict[str, object]:
    constraint: dict[str, object] = {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": MINE},
    }
    return _pod(topologySpreadConstraints=[{**constraint, **rest}])


def _nodes(scene: Scene, number: int = 3) -> Snapshot:
    return Snapshot(
        scene.node(f"n{i}", labels={HOST: f"n{i}", "zone": "near" if i % 2 else "far"}) for i in range(number)
    )


def test_replicas_that_must_be_apart_take_a_node_each(scene: Scene) -> None:
    job = scene.job(3, ps=None, labels=MINE, pod=_apart(_term()))
    assert scene.where(job, _nodes(scene)) == {f"n{i}": {"worker": 1} for i in range(3)}


def test_more_of_them_than_nodes_wait_and_say_why(scene: Scene) -> None:
    job = scene.job(4, floor=4, ps=None, labels=MINE, pod=_apart(_term()))
    found = place(gang_of(job), _nodes(scene))
    assert isinstance(found, Shortfall)
    reason = to_reason(found)
    assert reason.message.startswith(
        "3 of the 4 replicas that start together would fit: the rules about other pods exclude the rest"
    )
    assert found.fits_now == 3


def test_a_replica_keeps_away_from_what_runs_and_what_runs_from_it(scene: Scene) -> None:
    running = scene.job(1, ps=None, labels={"app": "web"})
    shy = scene.job(1, ps=None, labels=MINE, pod=_apart(_term(app="web")))
    snapshot = _nodes(scene, 2)
    snapshot.allocate(("web", 1, "worker", 0), allocation_of(running, "worker", 0, "n0", (0,)))
    assert scene.where(shy, snapshot) == {"n1": {"worker": 1}}
    other_way = _nodes(scene, 2)
    other_way.allocate(("shy", 1, "worker", 0), allocation_of(shy, "worker", 0, "n0", (0,)))
    web = scene.job(1, ps=None, labels={"app": "web"}, pod=_apart(_term(app="nobody")))
    assert scene.where(web, other_way) == {"n1": {"worker": 1}}


def test_a_replica_goes_beside_what_runs(scene: Scene) -> None:
    running = scene.job(1, ps=None, labels={"app": "store"})
    snapshot = _nodes(scene)
    snapshot.allocate(("store", 1, "worker", 0), allocation_of(running, "worker", 0, "n1", (0,)))
    near = scene.job(2, ps=None, labels=MINE, pod=_beside(_term("zone", app="store")))
    nodes = scene.where(near, snapshot)
    assert not isinstance(nodes, Shortfall)
    assert set(nodes) == {"n1"}
    assert isinstance(scene.where(near, _nodes(scene)), Shortfall)


def test_replicas_that_must_be_together_share_a_domain_that_holds_them_all(scene: Scene) -> None:
    nodes = [
        scene.node(f"{zone}{i}", gpu=gpu, labels={"zone": zone})
        for zone, gpu, number in (("a", 4, 1), ("b", 3, 3))
        for i in range(number)
    ]
    job = scene.job(8, floor=8, ps=None, labels=MINE, pod=_beside(_term("zone")))
    found = scene.where(job, Snapshot(nodes))
    assert not isinstance(found, Shortfall)
    assert {name[0] for name in found} == {"b"}


def test_domains_are_filled_evenly(scene: Scene) -> None:
    snapshot = _nodes(scene, 4)
    job = scene.job(6, ps=None, labels=MINE, pod=_evenly("zone"))
    found = place(gang_of(job), snapshot)
    assert isinstance(found, Placement)
    zones = [snapshot.nodes[one.node].labels["zone"] for one in found.replicas]
    assert zones.count("near") == zones.count("far") == 3


def test_a_domain_that_is_full_holds_the_others_back(scene: Scene) -> None:
    nodes = [scene.node("a", gpu=1, labels={"zone": "a"}), scene.node("b", gpu=4, labels={"zone": "b"})]
    job = scene.job(4, floor=4, ps=None, labels=MINE, pod=_evenly("zone"))
    assert isinstance(scene.where(job, Snapshot(nodes)), Shortfall)
    loose = scene.job(4, floor=4, ps=None, labels=MINE, pod=_evenly("zone", skew=2))
    assert scene.where(loose, Snapshot(nodes)) == {"b": {"worker": 3}, "a": {"worker": 1}}


def test_fewer_domains_than_asked_for_count_as_empty_ones(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a", labels={"zone": "a"})])
    job = scene.job(2, floor=2, ps=None, labels=MINE, pod=_evenly("zone", minDomains=2))
    assert isinstance(scene.where(job, snapshot), Shortfall)


def test_a_wish_to_be_apart_is_followed_as_far_as_there_are_nodes(scene: Scene) -> None:
    wish = {"weight": 1, "podAffinityTerm": _term()}
    pod = _pod(affinity={"podAntiAffinity": {PREFERRED: [wish]}})
    job = scene.job(4, ps=None, labels=MINE, pod=pod)
    nodes = scene.where(job, _nodes(scene))
    assert not isinstance(nodes, Shortfall)
    assert sorted(roles["worker"] for roles in nodes.values()) == [1, 1, 2]


def test_other_namespaces_are_others(scene: Scene) -> None:
    running = scene.job(1, ps=None, labels=MINE)
    snapshot = _nodes(scene, 1)
    hold = allocation_of(running, "worker", 0, "n0", (0,))
    assert hold.affinity is not None
    elsewhere = hold._replace(affinity=replica_affinity_of(Template(labels=MINE), "elsewhere"))
    snapshot.allocate(("x", 1, "worker", 0), elsewhere)
    job = scene.job(1, ps=None, labels=MINE, pod=_apart(_term()))
    assert scene.where(job, snapshot) == {"n0": {"worker": 1}}
    everywhere = _apart({**_term(), "namespaceSelector": {}})
    assert isinstance(scene.where(scene.job(1, ps=None, labels=MINE, pod=everywhere), snapshot), Shortfall)


@pytest.mark.parametrize(
    "pod",
    [
        _apart({"topologyKey": HOST, "labelSelector": {"matchWords": {}}}),
        _apart({**_term(), "namespaceSelector": {"matchLabels": {"team": "a"}}}),
        _apart(
            {"topologyKey": HOST, "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}
        ),
        _evenly("zone", whenUnsatisfiable="Sometimes"),
        _evenly("zone", skew=0),
        _pod(topologySpreadConstraints="evenly"),
    ],
)
def test_a_rule_that_is_not_understood_admits_nothing(scene: Scene, pod: dict[str, object]) -> None:
    found = place(gang_of(scene.job(1, ps=None, labels=MINE, pod=pod)), _nodes(scene))
    assert isinstance(found, Shortfall)
    reason = to_reason(found)
    assert reason.code == "NoMatchingNode"
    assert "the rules about other pods are not supported" in reason.message


def test_labels_make_no_difference_where_nobody_asks_about_them(scene: Scene) -> None:
    assert gang_of(scene.job(2, labels={"a": "1"})) == gang_of(scene.job(2, labels={"a": "2"}))


def test_spread_gangs_keep_their_rules(scene: Scene) -> None:
    policy = PlacementPolicy(strategy=Strategy.SPREAD)
    job = scene.job(3, ps=None, labels=MINE, pod=_apart(_term()), placement=policy)
    assert scene.where(job, _nodes(scene)) == {f"n{i}": {"worker": 1} for i in range(3)}


def test_nodes_that_what_runs_rules_out_are_counted(scene: Scene) -> None:
    running = scene.job(1, ps=None, labels={"app": "web"})
    snapshot = _nodes(scene)
    for index in range(2):
        hold = allocation_of(running, "worker", 0, f"n{index}", (0,))
        snapshot.allocate(("web", 1, "worker", index), hold)
    pod = _apart(_term(app="web"), _term())
    found = place(gang_of(scene.job(2, floor=2, ps=None, labels=MINE, pod=pod)), snapshot)
    assert isinstance(found, Shortfall)
    assert found.filtered == (("PodAffinity", 2),)
    assert "of 3 nodes, 2 excluded by the affinity of pods that run there" in to_reason(found).message
