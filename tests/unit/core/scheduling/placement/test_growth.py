"""Placement of workers that are added to a running job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from muster_core.models import Job, PlacementPolicy, ReplicaRecord, ReplicaState, Resources, Strategy
from muster_core.scheduling.placement import Snapshot, allocation_of, place_more

if TYPE_CHECKING:
    from conftest import Scene

RACK = "example.com/rack"


def _replica(role: str, index: int, node: str, **rest: object) -> ReplicaRecord:
    replica = ReplicaRecord(role=role, index=index, attempt=1, generation=1, node=node)
    return msgspec.structs.replace(replica, state=ReplicaState.RUNNING, **rest)


def _grow(
    job: Job, replicas: Sequence[tuple[str, str]], snapshot: Snapshot, target: int
) -> list[tuple[int, str, tuple[int, ...]]]:
    """Index, node and GPUs of the workers that are added to ``replicas``, which are (role, node) pairs."""
    used: dict[str, int] = {}
    known: list[ReplicaRecord] = []
    for role, node in replicas:
        index = sum(1 for one in known if one.role == role)
        found = job.role(role)
        assert found is not None
        first = used.get(node, 0)
        used[node] = first + found.template.requests.gpu // 1000
        gpus = tuple(range(first, used[node]))
        snapshot.allocate(("job", 1, role, index), allocation_of(job, role, index, node, gpus))
        known.append(_replica(role, index, node, gpus=gpus))
    return [(one.index, one.node, one.gpus) for one in place_more(job, known, "worker", target, snapshot)]


def _added_nodes(job: Job, replicas: Sequence[tuple[str, str]], snapshot: Snapshot, target: int) -> list[str]:
    return [node for _, node, _ in _grow(job, replicas, snapshot, target)]


def _racks(scene: Scene) -> Snapshot:
    return Snapshot(
        scene.node(f"{rack}{number}", gpu=2, labels={RACK: rack}) for rack in "ab" for number in range(2)
    )


def test_new_workers_go_beside_the_ps_even_if_another_node_is_tighter(scene: Scene) -> None:
    added = _grow(scene.job(1, most=4), [("ps", "n2"), ("worker", "n1")], scene.two(), 3)
    assert [(index, node) for index, node, _ in added] == [(1, "n2"), (2, "n2")]


def test_without_capacity_beside_the_ps_they_go_beside_other_workers(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a", gpu=0), scene.node("b", gpu=4), scene.node("c", gpu=2)])
    assert _added_nodes(scene.job(1, most=4), [("ps", "a"), ("worker", "b")], snapshot, 2) == ["b"]


def test_new_workers_take_few_further_nodes(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("a", gpu=0), scene.node("b", gpu=1), scene.node("c", gpu=3)])
    assert _added_nodes(scene.job(1, most=4), [("ps", "a")], snapshot, 3) == ["c", "c", "c"]


def test_as_many_as_fit_are_added_and_never_more_than_the_maximum(scene: Scene) -> None:
    job, running = scene.job(1, most=4), [("ps", "n1"), ("worker", "n1")]
    assert _grow(job, running, Snapshot([scene.node("n1", gpu=3)]), 4) == [(1, "n1", (1,)), (2, "n1", (2,))]
    added = _grow(job, running, Snapshot([scene.node("n1", gpu=8)]), 9)
    assert [index for index, _, _ in added] == [1, 2, 3]


def test_an_index_is_free_when_its_replica_has_ended(scene: Scene) -> None:
    job = scene.job(4, most=4)
    running = [_replica("worker", index, "n1") for index in (0, 2, 3)]
    terminating = _replica("worker", 1, "n1", terminating=True)
    ended = msgspec.structs.replace(terminating, ended_at=1, state=ReplicaState.EXITED)
    assert place_more(job, [*running, terminating], "worker", 4, scene.two()) == ()
    assert [one.index for one in place_more(job, [*running, ended], "worker", 4, scene.two())] == [1]


def test_no_worker_is_added_without_capacity_or_to_an_unknown_role(scene: Scene) -> None:
    job = scene.job(1, most=4)
    snapshot = Snapshot([scene.node("n1", gpu=0)])
    running = [_replica("worker", 0, "n1")]
    assert place_more(job, running, "worker", 4, snapshot) == ()
    assert place_more(job, running, "chief", 4, snapshot) == ()


def test_growth_does_not_change_the_snapshot(scene: Scene) -> None:
    snapshot = scene.two()
    before = snapshot.free_capacity("n1")
    assert place_more(scene.job(1, most=4), [_replica("worker", 0, "n1")], "worker", 4, snapshot)
    assert snapshot.free_capacity("n1") == before
    assert not snapshot.allocations


def test_growth_stays_in_a_required_domain(scene: Scene) -> None:
    policy = PlacementPolicy(topology=RACK, topology_required=True)
    job = scene.job(1, most=8, ps=None, placement=policy)
    assert _added_nodes(job, [("worker", "b1")], _racks(scene), 8) == ["b1", "b0", "b0"]


def test_growth_leaves_a_preferred_domain_last(scene: Scene) -> None:
    job = scene.job(1, most=8, ps=None, placement=PlacementPolicy(topology=RACK))
    assert _added_nodes(job, [("worker", "b1")], _racks(scene), 5) == ["b1", "b0", "b0", "a0"]


def test_a_spread_job_grows_on_the_nodes_with_the_fewest_replicas(scene: Scene) -> None:
    job = scene.job(1, most=8, ps=None, placement=PlacementPolicy(strategy=Strategy.SPREAD))
    assert _added_nodes(job, [("worker", "b1")], _racks(scene), 5) == ["a0", "a1", "b0", "b1"]


def test_growth_keeps_anti_affinity(scene: Scene) -> None:
    term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": "train"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    job = scene.job(1, most=8, ps=None, labels={"app": "train"}, pod={"spec": {"affinity": affinity}})
    assert _added_nodes(job, [("worker", "b1")], _racks(scene), 8) == ["a0"]


def test_a_new_replica_gets_the_gpus_of_one_nvlink_domain(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=8, labels={"muster.dev/nvlink-domains": "0-3_4-7"})])
    worker = Resources(cpu=1000, gpu=3000)
    job = scene.job(1, most=3, ps=None, worker=worker, placement=PlacementPolicy(gpu_topology=True))
    assert _grow(job, [("worker", "n1")], snapshot, 3) == [(1, "n1", (4, 5, 6))]
