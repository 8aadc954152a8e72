"""A job that is built first waits for its build, and for nothing once that has succeeded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core import events
from muster_core.lifecycle import apply_event
from muster_core.models import Job, JobKind, JobRecord, Reason, ReplicaState
from muster_core.scheduling import PoolState

if TYPE_CHECKING:
    from conftest import World


def build(world: World, name: str = "image") -> Job:
    return world.job(name, 1, servers=0, kind=JobKind.BUILD)


def submit_both(world: World) -> None:
    world.submit(build(world))
    world.submit(world.job("train", 1), built_by="image")


def restarted(world: World, records: list[JobRecord]) -> PoolState:
    again = PoolState(pool="here")
    for node in world.nodes.values():
        again.observe_node(events.NodeChanged(pool="here", node=node))
    again.restore(records)
    return again


def test_a_job_waits_for_its_build_and_says_so(world: World) -> None:
    submit_both(world)

    assert world.placed() == ["image"]
    assert world.record("train").reason == Reason(
        code="WaitingForBuild", message="waits for its build image (image)"
    )
    assert world.decide() == []


def test_a_job_starts_when_its_build_has_succeeded(world: World) -> None:
    submit_both(world)
    world.decide()
    world.change("image", ReplicaState.RUNNING)
    assert world.placed() == []

    world.finish("image")

    assert world.placed() == ["train"]


def test_a_job_that_is_validated_before_its_build_waits_for_it(world: World) -> None:
    world.say("image", events.JobSubmitted(job_id="image", request_id="r"))
    world.submit(world.job("train", 1), built_by="image")
    assert [reason.code for reason in world.waits().values()] == ["WaitingForBuild"]

    world.say("image", events.JobValidated(job=build(world)))
    assert world.placed() == ["image"]
    world.finish("image")
    assert world.placed() == ["train"]


@pytest.mark.parametrize("outcome", [o for o in events.Outcome if o is not events.Outcome.SUCCEEDED])
def test_a_build_that_ends_otherwise_is_the_jobs_reason(world: World, outcome: events.Outcome) -> None:
    submit_both(world)
    world.decide()
    world.finish("image", outcome, why="build-0 on n1 exited with 2")

    assert world.waits() == {
        "train": Reason(
            code="BuildFailed",
            message=f"its build image (image) ended as {outcome}: build-0 on n1 exited with 2",
        )
    }
    assert world.decide() == []


def test_a_build_that_is_rejected_is_the_jobs_reason(world: World) -> None:
    world.say("image", events.JobSubmitted(job_id="image", request_id="r"))
    world.submit(world.job("train", 1), built_by="image")
    world.say("image", events.JobRejected(problems=(), name="image"))

    assert world.waits()["train"].code == "BuildFailed"


def test_a_build_that_was_never_heard_of_was_deleted(world: World) -> None:
    world.submit(world.job("train", 1), built_by="image")

    assert world.waits()["train"] == Reason(
        code="BuildFailed", message="its build image was deleted before it succeeded"
    )


def test_explained_it_says_where_the_build_stands(world: World) -> None:
    world.submit(world.job("image", 99, servers=0, floor=99, kind=JobKind.BUILD))
    world.submit(world.job("train", 1), built_by="image")
    world.decide()

    explained = world.pool.explain("train")

    assert explained is not None
    assert explained.reason.message.startswith("waits for its build image (image), which is Queued: ")
    assert "GPU" in explained.reason.message


def test_jobs_of_one_build_start_with_its_success(world: World) -> None:
    world.submit(build(world))
    for name in ("first", "second"):
        world.submit(world.job(name, 1), built_by="image")
    assert world.placed() == ["image"]

    world.finish("image")

    assert world.placed() == ["first", "second"]


def test_a_restart_does_not_wait_for_the_build_again(world: World) -> None:
    submit_both(world)
    world.decide()
    world.finish("image")
    world.decide()
    world.change("train", ReplicaState.REJECTED, ("worker", 0))
    world.decide()
    world.change("train", ReplicaState.REMOVED)

    record = world.record("train")
    again = restarted(world, [record])

    assert [i.job_id for i in again.decide(world.now)] == ["train"]


def test_a_new_leader_that_finds_the_build_settled_starts_the_job(world: World) -> None:
    submit_both(world)
    world.decide()
    train = world.record("train")
    world.finish("image")
    settled = settled_record(world, "image")

    for records in ([train, settled], [settled, train]):
        again = restarted(world, records)
        assert [i.job_id for i in again.decide(world.now)] == ["train"]
        again.check_invariants()


def test_a_new_leader_that_finds_no_build_but_a_job_past_it_lets_it_wait_for_room_only(world: World) -> None:
    world.submit(build(world))
    world.submit(world.job("train", 99, floor=99), built_by="image")
    world.decide()
    world.finish("image")
    assert world.waits()["train"].code == "InsufficientResources"

    again = restarted(world, [world.record("train")])

    assert again.decide(world.now) == []
    assert again.capacity(world.now).waiting == 1


def test_a_job_that_waits_for_its_build_is_not_counted_as_waiting_for_room(world: World) -> None:
    submit_both(world)
    world.decide()

    assert world.pool.capacity(world.now).waiting == 1
    assert world.pool.capacity(world.now).waiting_feasible == 0


def test_a_cancelled_job_waits_for_no_build(world: World) -> None:
    submit_both(world)
    world.decide()
    world.say("train", events.CommandRequested(command=events.Command.CANCEL, request_id="c"))
    world.finish("image", events.Outcome.FAILED)

    assert world.decide() == []


def settled_record(world: World, job_id: str) -> JobRecord:
    record: JobRecord | None = None
    for stored in world.stream:
        if stored.job_id == job_id:
            record = apply_event(record, stored).record
    assert record is not None
    assert record.settled
    return record
