"""Jobs that depend on a build wait until it succeeds."""

from __future__ import annotations

import pytest

from muster_core import events
from muster_core.lifecycle import apply_event
from muster_core.models import Job, JobKind, JobRecord, Reason, ReplicaState
from muster_core.scheduling import PoolState
from muster_testing.pool import ScenarioPool


def build(pool: ScenarioPool, name: str = "image") -> Job:
    return pool.job(name, 1, servers=0, kind=JobKind.BUILD)


def submit_both(pool: ScenarioPool) -> None:
    pool.submit(build(pool))
    pool.submit(pool.job("train", 1), built_by="image")


def restarted(pool: ScenarioPool, records: list[JobRecord]) -> PoolState:
    return pool.restored(records, after=len(pool.stream))


def test_a_job_waits_for_its_build(pool: ScenarioPool) -> None:
    submit_both(pool)

    assert pool.placed() == ["image"]
    assert pool.record("train").reason == Reason(
        code="WaitingForBuild", message="waits for its build image (image)"
    )
    assert pool.decide() == []


def test_a_job_starts_when_its_build_has_succeeded(pool: ScenarioPool) -> None:
    submit_both(pool)
    pool.decide()
    pool.report("image", ReplicaState.RUNNING)
    assert pool.placed() == []

    pool.finish("image")

    assert pool.placed() == ["train"]


def test_a_job_that_is_validated_before_its_build_waits_for_it(pool: ScenarioPool) -> None:
    pool.publish("image", events.JobSubmitted(job_id="image", request_id="r"))
    pool.submit(pool.job("train", 1), built_by="image")
    assert [reason.code for reason in pool.waits().values()] == ["WaitingForBuild"]

    pool.publish("image", events.JobValidated(job=build(pool)))
    assert pool.placed() == ["image"]
    pool.finish("image")
    assert pool.placed() == ["train"]


@pytest.mark.parametrize("outcome", [o for o in events.Outcome if o is not events.Outcome.SUCCEEDED])
def test_a_failed_build_is_the_reason_of_its_job(pool: ScenarioPool, outcome: events.Outcome) -> None:
    submit_both(pool)
    pool.decide()
    pool.finish("image", outcome, message="build-0 on n1 exited with 2")

    assert pool.waits() == {
        "train": Reason(
            code="BuildFailed",
            message=f"its build image (image) ended as {outcome}: build-0 on n1 exited with 2",
        )
    }
    assert pool.decide() == []


def test_a_rejected_build_is_the_reason_of_its_job(pool: ScenarioPool) -> None:
    pool.publish("image", events.JobSubmitted(job_id="image", request_id="r"))
    pool.submit(pool.job("train", 1), built_by="image")
    pool.publish("image", events.JobRejected(problems=(), name="image"))

    assert pool.waits()["train"].code == "BuildFailed"


def test_an_unknown_build_counts_as_deleted(pool: ScenarioPool) -> None:
    pool.submit(pool.job("train", 1), built_by="image")

    assert pool.waits()["train"] == Reason(
        code="BuildFailed", message="its build image was deleted before it succeeded"
    )


def test_the_explanation_has_the_phase_and_reason_of_the_build(pool: ScenarioPool) -> None:
    pool.submit(pool.job("image", 99, servers=0, floor=99, kind=JobKind.BUILD))
    pool.submit(pool.job("train", 1), built_by="image")
    pool.decide()

    explained = pool.state.explain("train")

    assert explained is not None
    assert explained.reason.message.startswith("waits for its build image (image), which is Queued: ")
    assert "GPU" in explained.reason.message


def test_all_jobs_of_a_build_start_when_it_succeeds(pool: ScenarioPool) -> None:
    pool.submit(build(pool))
    for name in ("first", "second"):
        pool.submit(pool.job(name, 1), built_by="image")
    assert pool.placed() == ["image"]

    pool.finish("image")

    assert pool.placed() == ["first", "second"]


def test_a_restart_does_not_wait_for_the_build_again(pool: ScenarioPool) -> None:
    submit_both(pool)
    pool.decide()
    pool.finish("image")
    pool.decide()
    pool.report("train", ReplicaState.REJECTED, ("worker", 0))
    pool.decide()
    pool.report("train", ReplicaState.REMOVED)

    record = pool.record("train")
    again = restarted(pool, [record])

    assert [i.job_id for i in again.decide(pool.now)] == ["train"]


def test_a_new_leader_that_finds_the_build_settled_starts_the_job(pool: ScenarioPool) -> None:
    submit_both(pool)
    pool.decide()
    train = pool.record("train")
    pool.finish("image")
    settled = settled_record(pool, "image")

    for records in ([train, settled], [settled, train]):
        again = restarted(pool, records)
        assert [i.job_id for i in again.decide(pool.now)] == ["train"]
        again.check_invariants()


def test_a_new_leader_without_the_build_lets_a_job_past_it_start(pool: ScenarioPool) -> None:
    pool.submit(build(pool))
    pool.submit(pool.job("train", 99, floor=99), built_by="image")
    pool.decide()
    pool.finish("image")
    assert pool.waits()["train"].code == "InsufficientResources"

    again = restarted(pool, [pool.record("train")])

    assert again.decide(pool.now) == []
    assert again.capacity(pool.now).waiting == 1


def test_a_job_that_waits_for_its_build_does_not_count_as_feasible(pool: ScenarioPool) -> None:
    submit_both(pool)
    pool.decide()

    assert pool.state.capacity(pool.now).waiting == 1
    assert pool.state.capacity(pool.now).waiting_feasible == 0


def test_a_cancelled_job_does_not_wait_for_its_build(pool: ScenarioPool) -> None:
    submit_both(pool)
    pool.decide()
    pool.publish("train", events.CommandRequested(command=events.Command.CANCEL, request_id="c"))
    pool.finish("image", events.Outcome.FAILED)

    assert pool.decide() == []


def settled_record(pool: ScenarioPool, job_id: str) -> JobRecord:
    record: JobRecord | None = None
    for stored in pool.stream:
        if stored.job_id == job_id:
            record = apply_event(record, stored).record
    assert record is not None
    assert record.settled
    return record
