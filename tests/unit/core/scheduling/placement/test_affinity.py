"""Inter-replica affinity: pod affinity, anti-affinity and topology spread within and between gangs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core.models import PlacementPolicy, Strategy, Template
from muster_core.scheduling.placement import Snapshot, allocation_of, gang_of, replica_affinity_of, to_reason

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


def _anti_affinity(*terms: dict[str, object]) -> dict[str, object]:
    return _pod(affinity={"podAntiAffinity": {REQUIRED: list(terms)}})


def _affinity(*terms: dict[str, object]) -> dict[str, object]:
    return _pod(affinity={"podAffinity": {REQUIRED: list(terms)}})


def _spread(key: str, *, skew: int = 1, **rest: object) -> dict[str, object]:
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


def test_anti_affinity_puts_each_replica_on_its_own_node(scene: Scene) -> None:
    job = scene.job(3, ps=None, labels=MINE, pod=_anti_affinity(_term()))
    assert scene.nodes(job, _nodes(scene)) == {f"n{i}": {"worker": 1} for i in range(3)}


def test_more_replicas_than_nodes_wait_for_their_anti_affinity(scene: Scene) -> None:
    job = scene.job(4, minimum=4, ps=None, labels=MINE, pod=_anti_affinity(_term()))
    found = scene.shortfall(job, _nodes(scene))
    assert to_reason(found).message.startswith(
        "3 of the 4 replicas that start together would fit: the rules about other pods exclude the rest"
    )
    assert found.fits_now == 3


def test_anti_affinity_holds_towards_and_from_running_replicas(scene: Scene) -> None:
    running = scene.job(1, ps=None, labels={"app": "web"})
    shy = scene.job(1, ps=None, labels=MINE, pod=_anti_affinity(_term(app="web")))
    snapshot = _nodes(scene, 2)
    snapshot.allocate(("web", 1, "worker", 0), allocation_of(running, "worker", 0, "n0", (0,)))
    assert scene.nodes(shy, snapshot) == {"n1": {"worker": 1}}
    other_way = _nodes(scene, 2)
    other_way.allocate(("shy", 1, "worker", 0), allocation_of(shy, "worker", 0, "n0", (0,)))
    web = scene.job(1, ps=None, labels={"app": "web"}, pod=_anti_affinity(_term(app="other")))
    assert scene.nodes(web, other_way) == {"n1": {"worker": 1}}


def test_affinity_attracts_to_running_replicas(scene: Scene) -> None:
    running = scene.job(1, ps=None, labels={"app": "store"})
    snapshot = _nodes(scene)
    snapshot.allocate(("store", 1, "worker", 0), allocation_of(running, "worker", 0, "n1", (0,)))
    near = scene.job(2, ps=None, labels=MINE, pod=_affinity(_term("zone", app="store")))
    assert scene.nodes(near, snapshot) == {"n1": {"worker": 2}}
    scene.shortfall(near, _nodes(scene))


@pytest.mark.parametrize(
    "policy", [PlacementPolicy(), PlacementPolicy(topology="rack", topology_required=True)]
)
def test_affinity_within_a_gang_takes_a_domain_that_holds_all_replicas(
    scene: Scene, policy: PlacementPolicy
) -> None:
    nodes = [
        scene.node(f"{zone}{i}", gpu=gpu, labels={"zone": zone, "rack": "r"})
        for zone, gpu, number in (("a", 4, 1), ("b", 3, 3))
        for i in range(number)
    ]
    job = scene.job(8, minimum=8, ps=None, labels=MINE, pod=_affinity(_term("zone")), placement=policy)
    assert {name[0] for name in scene.nodes(job, Snapshot(nodes))} == {"b"}


def test_a_spread_constraint_fills_domains_evenly(scene: Scene) -> None:
    snapshot = _nodes(scene, 4)
    job = scene.job(6, ps=None, labels=MINE, pod=_spread("zone"))
    zones = [snapshot.nodes[one.node].labels["zone"] for one in scene.place(job, snapshot).replicas]
    assert zones.count("near") == zones.count("far") == 3


def test_a_full_domain_limits_the_others_by_the_skew(scene: Scene) -> None:
    nodes = [scene.node("a", gpu=1, labels={"zone": "a"}), scene.node("b", gpu=4, labels={"zone": "b"})]
    job = scene.job(4, minimum=4, ps=None, labels=MINE, pod=_spread("zone"))
    scene.shortfall(job, Snapshot(nodes))
    loose = scene.job(4, minimum=4, ps=None, labels=MINE, pod=_spread("zone", skew=2))
    assert scene.nodes(loose, Snapshot(nodes)) == {"b": {"worker": 3}, "a": {"worker": 1}}


def test_domains_missing_from_min_domains_count_as_empty(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a", labels={"zone": "a"})])
    job = scene.job(2, minimum=2, ps=None, labels=MINE, pod=_spread("zone", minDomains=2))
    scene.shortfall(job, snapshot)


def test_preferred_anti_affinity_is_kept_while_nodes_are_left(scene: Scene) -> None:
    term = {"weight": 1, "podAffinityTerm": _term()}
    pod = _pod(affinity={"podAntiAffinity": {PREFERRED: [term]}})
    job = scene.job(4, ps=None, labels=MINE, pod=pod)
    nodes = scene.nodes(job, _nodes(scene))
    assert sorted(roles["worker"] for roles in nodes.values()) == [1, 1, 2]


def test_a_term_matches_its_own_namespace_unless_it_selects_others(scene: Scene) -> None:
    running = scene.job(1, ps=None, labels=MINE)
    snapshot = _nodes(scene, 1)
    allocation = allocation_of(running, "worker", 0, "n0", (0,))
    assert allocation.affinity is not None
    elsewhere = allocation._replace(affinity=replica_affinity_of(Template(labels=MINE), "elsewhere"))
    snapshot.allocate(("x", 1, "worker", 0), elsewhere)
    job = scene.job(1, ps=None, labels=MINE, pod=_anti_affinity(_term()))
    assert scene.nodes(job, snapshot) == {"n0": {"worker": 1}}
    everywhere = _anti_affinity({**_term(), "namespaceSelector": {}})
    scene.shortfall(scene.job(1, ps=None, labels=MINE, pod=everywhere), snapshot)


def test_a_term_without_a_selector_matches_no_replica(scene: Scene) -> None:
    job = scene.job(2, ps=None, labels=MINE, pod=_anti_affinity({"topologyKey": HOST}))
    assert scene.nodes(job, _nodes(scene)) == {"n0": {"worker": 2}}


def test_an_unsupported_preference_is_ignored(scene: Scene) -> None:
    preference = {
        "weight": 1,
        "podAffinityTerm": {**_term(), "namespaceSelector": {"matchLabels": {"a": "b"}}},
    }
    pod = _pod(affinity={"podAffinity": {PREFERRED: [preference]}})
    assert scene.nodes(scene.job(2, ps=None, labels=MINE, pod=pod), _nodes(scene)) == {"n0": {"worker": 2}}


@pytest.mark.parametrize(
    "pod",
    [
        _anti_affinity({"topologyKey": HOST, "labelSelector": {"matchWords": {}}}),
        _anti_affinity({**_term(), "namespaceSelector": {"matchLabels": {"team": "a"}}}),
        _anti_affinity(
            {"topologyKey": HOST, "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}
        ),
        _spread("zone", whenUnsatisfiable="Sometimes"),
        _spread("zone", skew=0),
        _pod(topologySpreadConstraints="evenly"),
    ],
)
def test_an_unsupported_rule_excludes_every_node(scene: Scene, pod: dict[str, object]) -> None:
    reason = to_reason(scene.shortfall(scene.job(1, ps=None, labels=MINE, pod=pod), _nodes(scene)))
    assert reason.code == "NoMatchingNode"
    assert "the rules about other pods are not supported" in reason.message


def test_labels_that_no_rule_uses_do_not_distinguish_gangs(scene: Scene) -> None:
    assert gang_of(scene.job(2, labels={"a": "1"})) == gang_of(scene.job(2, labels={"a": "2"}))


def test_a_spread_gang_keeps_its_anti_affinity(scene: Scene) -> None:
    policy = PlacementPolicy(strategy=Strategy.SPREAD)
    job = scene.job(3, ps=None, labels=MINE, pod=_anti_affinity(_term()), placement=policy)
    assert scene.nodes(job, _nodes(scene)) == {f"n{i}": {"worker": 1} for i in range(3)}


def test_nodes_excluded_by_running_replicas_are_counted(scene: Scene) -> None:
    running = scene.job(1, ps=None, labels={"app": "web"})
    snapshot = _nodes(scene)
    for index in range(2):
        allocation = allocation_of(running, "worker", 0, f"n{index}", (0,))
        snapshot.allocate(("web", 1, "worker", index), allocation)
    pod = _anti_affinity(_term(app="web"), _term())
    found = scene.shortfall(scene.job(2, minimum=2, ps=None, labels=MINE, pod=pod), snapshot)
    assert found.filtered == (("PodAffinity", 2),)
    assert "of 3 nodes, 2 excluded by the affinity of pods that run there" in to_reason(found).message
