"""Jobs that wait for a build."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from muster_core import events
from muster_core.lifecycle import Finish, awaits_build, decide, next_deadline
from muster_core.models import JobKind, Reason, RestartPolicy, RunPolicy

if TYPE_CHECKING:
    from .conftest import JobLog, NewJobLog

FAILED = Reason(code="BuildFailed", message="its build image (j-0) ended Failed: build-0 on n1 exited with 2")


def built(new_log: NewJobLog, by: str = "j-0") -> JobLog:
    log = new_log(1, ps=0)
    log.apply(events.JobSubmitted(job_id="j-1", request_id="r", spec=log.job))
    log.apply(events.JobValidated(job=log.job, built_by=by))
    return log


def test_the_record_names_the_build_of_the_job(new_log: NewJobLog) -> None:
    assert built(new_log).record.built_by == "j-0"
    assert awaits_build(built(new_log).record)


def test_a_job_without_a_build_awaits_none(new_log: NewJobLog) -> None:
    assert not awaits_build(built(new_log, "").record)


@pytest.mark.parametrize(("code", "awaits"), [("WaitingForBuild", True), ("InsufficientResources", False)])
def test_any_other_reason_means_that_the_build_has_succeeded(
    new_log: NewJobLog, code: str, awaits: bool
) -> None:
    log = built(new_log)
    log.apply(events.JobWaiting(reason=Reason(code=code)))

    assert awaits_build(log.record) is awaits


def test_a_restarted_job_awaits_no_build(new_log: NewJobLog) -> None:
    log = built(new_log).place()
    log.restart_gang()

    assert not awaits_build(log.record)


def test_a_job_whose_build_failed_fails_with_its_reason(new_log: NewJobLog) -> None:
    log = built(new_log)
    log.apply(events.JobWaiting(reason=FAILED))

    assert decide(log.record, log.now) == [
        Finish(events.JobFinished(outcome=events.Outcome.FAILED, reason=FAILED))
    ]


def test_a_cancel_precedes_the_outcome_of_the_build(new_log: NewJobLog) -> None:
    log = built(new_log)
    log.apply(events.JobWaiting(reason=FAILED))
    log.command(events.Command.CANCEL)

    [finish] = decide(log.record, log.now)

    assert isinstance(finish, Finish)
    assert finish.event.outcome is events.Outcome.CANCELLED


def test_the_queue_deadline_excludes_the_build(new_log: NewJobLog, second: int) -> None:
    log = built(new_log)
    job = msgspec.structs.replace(log.job, run=RunPolicy(queue_deadline_s=60))
    log.known = msgspec.structs.replace(log.record, job=job)
    log.apply(events.JobWaiting(reason=Reason(code="WaitingForBuild")))
    assert next_deadline(log.record) is None
    assert decide(log.record, log.now + 600 * second) == []

    log.apply(events.JobWaiting(reason=Reason(code="InsufficientResources")), after_s=600)

    assert next_deadline(log.record) == log.now + 60 * second
    [finish] = decide(log.record, log.now + 60 * second)
    assert isinstance(finish, Finish)
    assert finish.event.reason.code == "QueueDeadline"


def test_a_build_succeeds_by_the_common_rules(new_log: NewJobLog) -> None:
    log = new_log(1, ps=0, kind=JobKind.BUILD, policy=RestartPolicy.NEVER).running().end("worker", 0)

    [finish] = decide(log.record, log.now)

    assert isinstance(finish, Finish)
    assert finish.event.outcome is events.Outcome.SUCCEEDED
