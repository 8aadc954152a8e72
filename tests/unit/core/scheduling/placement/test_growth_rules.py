"""Growth keeps the rules of the start: topology, spread, islands, and what replicas ask of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster_core.models import Job, PlacementPolicy, ReplicaRecord, ReplicaState, Resources, Strategy
from muster_core.scheduling.placement import Snapshot, allocation_of, place_more

if TYPE_CHECKING:
    from conftest import Scene

RACK = "example.com/rack"


def _grown(
    job: Job, nodes: Sequence[str], snapshot: Snapshot, target: int
) -> list[tuple[str, tuple[int, ...]]]:
    """Where workers are added to those that stand on ``nodes``, each on GPUs of its own."""
    used: dict[str, int] = {}
    members: list[ReplicaRecord] = []
    size = job.roles[0].template.requests.gpu // 1000
    for index, node in enumerate(nodes):
        first = used.get(node, 0)
        used[node] = first + size
        gpus = tuple(range(first, first + size))
        snapshot.allocate(("job", 1, "worker", index), allocation_of(job, "worker", index, node, gpus))
        members.append(
            ReplicaRecord(
                role="worker",
                index=index,
                attempt=1,
                generation=1,
                node=node,
                gpus=gpus,
                state=ReplicaState.RUNNING,
            )
        )
    return [(one.node, one.gpus) for one in place_more(job, members, "worker", target, snapshot)]


def _racks(scene: Scene, gpu: int = 2) -> Snapshot:
    return Snapshot(
        scene.node(f"{rack}{number}", gpu=gpu, labels={RACK: rack}) for rack in "ab" for number in range(2)
    )


def test_a_required_domain_is_not_left(scene: Scene) -> None:
    policy = PlacementPolicy(topology=RACK, topology_required=True)
    job = scene.job(1, most=8, ps=None, placement=policy)
    assert [node for node, _ in _grown(job, ["b1"], _racks(scene), 8)] == ["b1", "b0", "b0"]


def test_a_preferred_domain_is_left_last(scene: Scene) -> None:
    job = scene.job(1, most=8, ps=None, placement=PlacementPolicy(topology=RACK))
    assert [node for node, _ in _grown(job, ["b1"], _racks(scene), 5)] == ["b1", "b0", "b0", "a0"]


def test_a_spread_job_grows_where_it_has_least(scene: Scene) -> None:
    job = scene.job(1, most=8, ps=None, placement=PlacementPolicy(strategy=Strategy.SPREAD))
    assert [node for node, _ in _grown(job, ["b1"], _racks(scene), 5)] == ["a0", "a1", "b0", "b1"]


def test_replicas_that_keep_apart_go_on_doing_so(scene: Scene) -> None:
    term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": "train"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    job = scene.job(1, most=8, ps=None, labels={"app": "train"}, pod={"spec": {"affinity": affinity}})
    assert [node for node, _ in _grown(job, ["b1"], _racks(scene), 8)] == ["a0"]


def test_a_new_replica_gets_the_gpus_of_one_island(scene: Scene) -> None:
    snapshot = Snapshot([scene.node("n1", gpu=8, labels={"muster.dev/nvlink-domains": "0-3_4-7"})])
    worker = Resources(cpu=1000, gpu=3000)
    job = scene.job(1, most=3, ps=None, worker=worker, placement=PlacementPolicy(gpu_topology=True))
    assert _grown(job, ["n1"], snapshot, 3) == [("n1", (4, 5, 6))]
