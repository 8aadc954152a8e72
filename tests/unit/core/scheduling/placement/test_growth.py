"""Where more workers of a running job go, and which indices they get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from muster_core.models import Job, ReplicaRecord, ReplicaState, Resources
from muster_core.scheduling.placement import Allocation, Snapshot, demand_of, place_more

if TYPE_CHECKING:
    from conftest import Scene


def _member(role: str, index: int, node: str, **rest: object) -> ReplicaRecord:
    replica = ReplicaRecord(role=role, index=index, attempt=1, generation=1, node=node)
    return msgspec.structs.replace(replica, state=ReplicaState.RUNNING, **rest)


def _running(snapshot: Snapshot, job: Job, members: Sequence[ReplicaRecord]) -> Snapshot:
    gpus: dict[str, int] = {}
    for one in members:
        role = job.role(one.role)
        assert role is not None
        demand = demand_of(role.template.requests)
        used = tuple(range(gpus.get(one.node, 0), gpus.get(one.node, 0) + demand.gpus))
        gpus[one.node] = gpus.get(one.node, 0) + demand.gpus
        snapshot.allocate(("job", 1, one.role, one.index), Allocation(one.node, demand, used))
    return snapshot


def test_new_workers_go_beside_the_ps_even_if_another_node_is_tighter(scene: Scene) -> None:
    job = scene.job(1, most=4)
    members = [_member("ps", 0, "n2"), _member("worker", 0, "n1")]
    added = place_more(job, members, "worker", 3, _running(scene.two(), job, members))
    assert [(one.index, one.node) for one in added] == [(1, "n2"), (2, "n2")]


def test_without_room_beside_the_ps_they_go_beside_other_members(scene: Scene) -> None:
    nodes = [scene.node("a", gpu=0), scene.node("b", gpu=4), scene.node("c", gpu=2)]
    job = scene.job(1, most=4)
    members = [_member("ps", 0, "a"), _member("worker", 0, "b")]
    added = place_more(job, members, "worker", 2, _running(Snapshot(nodes), job, members))
    assert [one.node for one in added] == ["b"]


def test_further_nodes_are_few(scene: Scene) -> None:
    nodes = [scene.node("a", gpu=0), scene.node("b", gpu=1), scene.node("c", gpu=3)]
    job = scene.job(1, most=4, ps=Resources(cpu=1000))
    members = [_member("ps", 0, "a")]
    added = place_more(job, members, "worker", 3, _running(Snapshot(nodes), job, members))
    assert [one.node for one in added] == ["c", "c", "c"]


def test_as_many_as_fit_are_added_and_never_more_than_the_maximum(scene: Scene) -> None:
    job = scene.job(1, most=4)
    members = [_member("ps", 0, "n1"), _member("worker", 0, "n1")]
    small = _running(Snapshot([scene.node("n1", gpu=3)]), job, members)
    assert [one.gpus for one in place_more(job, members, "worker", 4, small)] == [(1,), (2,)]
    large = _running(Snapshot([scene.node("n1", gpu=8)]), job, members)
    assert [one.index for one in place_more(job, members, "worker", 9, large)] == [1, 2, 3]


def test_21_the_lowest_free_index_is_given_first(scene: Scene) -> None:
    job = scene.job(4, most=4)
    gone = _member("worker", 1, "n1", terminating=True)
    members = [_member("worker", index, "n1") for index in (0, 2, 3)]
    still_there = place_more(job, [*members, gone], "worker", 4, scene.two())
    ended = _member("worker", 1, "n1", terminating=True, ended_at=1)
    after = place_more(job, [*members, _ended(ended)], "worker", 4, scene.two())
    assert (still_there, [one.index for one in after]) == ((), [1])


def test_nothing_is_added_without_room_or_to_an_unknown_role(scene: Scene) -> None:
    job = scene.job(1, most=4)
    snapshot = Snapshot([scene.node("n1", gpu=0)])
    members = [_member("worker", 0, "n1")]
    assert place_more(job, members, "worker", 4, snapshot) == ()
    assert place_more(job, members, "chief", 4, snapshot) == ()


def test_growing_on_paper_changes_nothing(scene: Scene) -> None:
    snapshot = scene.two()
    before = snapshot.free_capacity("n1")
    place_more(scene.job(1, most=4), [_member("worker", 0, "n1")], "worker", 4, snapshot)
    assert snapshot.free_capacity("n1") == before
    assert not snapshot.allocations


def _ended(replica: ReplicaRecord) -> ReplicaRecord:
    return msgspec.structs.replace(replica, state=ReplicaState.EXITED)
