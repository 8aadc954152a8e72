"""What is kept of a job that has ended, for how long, and who wanted its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core import events
from muster_core.events import Outcome
from muster_core.lifecycle import Finish, Forget, Retention, Stop, decide, next_deadline, next_work, reconcile
from muster_core.models import CleanPodPolicy, Phase, ReplicaState, RunPolicy

if TYPE_CHECKING:
    from .conftest import Stories, Story

STAYS = RunPolicy(clean_pod_policy=CleanPodPolicy.NONE, ttl_s=10)
MONTH = Retention(ttl_s=2_592_000)


def running(story: Story) -> list[events.ReplicaChange]:
    return [
        events.ReplicaChange(
            role=one.role, index=one.index, attempt=one.attempt, state=ReplicaState.RUNNING, at=story.now
        )
        for one in story.record.replicas
        if not one.ended
    ]


def stops(story: Story, now: int) -> list[str]:
    steps = reconcile(story.record, running(story), now)
    return [f"{step.role}-{step.index}" for step in steps if isinstance(step, Stop)]


def test_what_outlives_its_job_goes_with_its_time_to_live(story: Stories, second: int) -> None:
    told = story(run=STAYS).running()
    told.finish(Outcome.SUCCEEDED)
    end = told.record.finished_at + 10 * second

    assert next_work(told.record, told.now) == end
    assert stops(told, end - 1) == []
    assert stops(told, end) == ["ps-0", "worker-0", "worker-1"]
    assert next_work(told.record, end) is None
    assert decide(told.record, end) == []
    for replica in told.record.replicas:
        told.see(replica.role, replica.index, ReplicaState.EXITED, exit_code=0)
    assert decide(told.record, end) == [Forget("j-1")]


def test_without_a_time_to_live_it_stays_until_the_job_is_deleted(story: Stories, second: int) -> None:
    told = story(run=RunPolicy(clean_pod_policy=CleanPodPolicy.NONE)).running()
    told.finish(Outcome.SUCCEEDED)

    assert next_work(told.record, told.now) is None
    assert stops(told, told.now + 10**6 * second) == []
    told.command(events.Command.DELETE)
    assert stops(told, told.now) == ["ps-0", "worker-0", "worker-1"]


@pytest.mark.parametrize("phase", Phase)
def test_a_job_that_is_deleted_stops_whatever_runs_of_it_in_every_phase(story: Stories, phase: Phase) -> None:
    told = story(run=RunPolicy(clean_pod_policy=CleanPodPolicy.NONE)).told(phase)
    told.command(events.Command.DELETE)
    match decide(told.record, told.now):
        case [Finish(event=event)]:
            told.tell(event)
        case _:
            pass

    assert len(stops(told, told.now)) == sum(1 for one in told.record.replicas if not one.ended)


def test_the_platform_keeps_what_has_no_time_to_live_of_its_own(story: Stories, second: int) -> None:
    told = story(1, ps=0).running().end("worker", 0)
    told.finish(Outcome.SUCCEEDED)
    end = told.record.finished_at + MONTH.ttl_s * second

    assert next_deadline(told.record, MONTH) == end
    assert decide(told.record, end - 1, MONTH) == []
    assert decide(told.record, end, MONTH) == [Forget("j-1")]


def test_the_jobs_own_time_to_live_counts_before_the_platforms(story: Stories, second: int) -> None:
    told = story(1, ps=0, run=RunPolicy(ttl_s=5)).running().end("worker", 0)
    told.finish(Outcome.SUCCEEDED)

    assert next_deadline(told.record, MONTH) == told.record.finished_at + 5 * second


def test_a_platform_without_a_bound_keeps_it_for_ever(story: Stories) -> None:
    told = story(1, ps=0).running().end("worker", 0)
    told.finish(Outcome.SUCCEEDED)

    assert next_deadline(told.record, Retention()) is None


@pytest.mark.parametrize(
    ("by", "message", "words"),
    [
        ("", "", "requested by its user"),
        ("ann", "", "requested by ann"),
        ("ann", "a bad rate", "requested by ann: a bad rate"),
        ("", "the job that it was for, train, is cancelled", "the job that it was for, train, is cancelled"),
    ],
)
def test_a_cancelled_job_says_who_wanted_it(story: Stories, by: str, message: str, words: str) -> None:
    told = story().running()
    told.tell(events.CommandRequested(command=events.Command.CANCEL, request_id="c", by=by, message=message))
    told.tell(events.CommandRequested(command=events.Command.CANCEL, request_id="d", by="bob"))

    (finish,) = decide(told.record, told.now)

    assert isinstance(finish, Finish)
    assert (finish.event.reason.code, finish.event.reason.message) == ("Cancelled", words)
