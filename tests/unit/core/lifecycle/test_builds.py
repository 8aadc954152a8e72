"""A job that is built first, as its record tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from muster_core import events
from muster_core.lifecycle import Finish, decide, next_deadline
from muster_core.lifecycle.builds import awaits_build
from muster_core.models import JobKind, Reason, RestartPolicy, RunPolicy

if TYPE_CHECKING:
    from .conftest import Stories, Story

FAILED = Reason(code="BuildFailed", message="its build image (j-0) ended Failed: build-0 on n1 exited with 2")


def built(story: Stories, by: str = "j-0") -> Story:
    told = story(1, ps=0)
    told.tell(events.JobSubmitted(job_id="j-1", request_id="r", spec=told.job))
    told.tell(events.JobValidated(job=told.job, built_by=by))
    return told


def test_the_record_says_which_build_comes_first(story: Stories) -> None:
    assert built(story).record.built_by == "j-0"
    assert awaits_build(built(story).record)


def test_a_job_without_a_build_awaits_none(story: Stories) -> None:
    assert not awaits_build(built(story, "").record)


@pytest.mark.parametrize(("code", "awaits"), [("WaitingForBuild", True), ("InsufficientResources", False)])
def test_any_other_word_of_the_scheduler_says_that_the_build_has_succeeded(
    story: Stories, code: str, awaits: bool
) -> None:
    told = built(story)
    told.tell(events.JobWaiting(reason=Reason(code=code)))

    assert awaits_build(told.record) is awaits


def test_an_attempt_that_is_restarted_awaits_no_build(story: Stories) -> None:
    told = built(story).place()
    told.restart_gang()

    assert not awaits_build(told.record)


def test_a_job_whose_build_failed_fails_with_its_reason(story: Stories) -> None:
    told = built(story)
    told.tell(events.JobWaiting(reason=FAILED))

    assert decide(told.record, told.now) == [
        Finish(events.JobFinished(outcome=events.Outcome.FAILED, reason=FAILED))
    ]


def test_a_cancelled_job_is_cancelled_whatever_became_of_its_build(story: Stories) -> None:
    told = built(story)
    told.tell(events.JobWaiting(reason=FAILED))
    told.command(events.Command.CANCEL)

    [finish] = decide(told.record, told.now)

    assert isinstance(finish, Finish)
    assert finish.event.outcome is events.Outcome.CANCELLED


def test_a_deadline_in_the_queue_does_not_count_the_build(story: Stories, second: int) -> None:
    told = built(story)
    job = msgspec.structs.replace(told.job, run=RunPolicy(queue_deadline_s=60))
    told.known = msgspec.structs.replace(told.record, job=job)
    told.tell(events.JobWaiting(reason=Reason(code="WaitingForBuild")))
    assert next_deadline(told.record) is None
    assert decide(told.record, told.now + 600 * second) == []

    told.tell(events.JobWaiting(reason=Reason(code="InsufficientResources")), after_s=600)

    assert next_deadline(told.record) == told.now + 60 * second
    [finish] = decide(told.record, told.now + 60 * second)
    assert isinstance(finish, Finish)
    assert finish.event.reason.code == "QueueDeadline"


def test_a_build_succeeds_as_any_job_does(story: Stories) -> None:
    told = story(1, ps=0, kind=JobKind.BUILD, policy=RestartPolicy.NEVER).running().end("worker", 0)

    [finish] = decide(told.record, told.now)

    assert isinstance(finish, Finish)
    assert finish.event.outcome is events.Outcome.SUCCEEDED
