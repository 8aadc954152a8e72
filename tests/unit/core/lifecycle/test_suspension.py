"""Suspend and resume: the job gives up its allocations, and keeps its queue position and its build."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core import events
from muster_core.events import Command, Outcome
from muster_core.lifecycle import DeleteRecord, Finish, awaits_build, decide, next_deadline, start_due
from muster_core.models import Phase, Reason, ReplicaState, RunPolicy

if TYPE_CHECKING:
    from .conftest import NewJobLog

WAITING = (Phase.QUEUED, Phase.EVICTED, Phase.RESTARTING)
ACTIVE = (Phase.PLACED, Phase.LAUNCHING, Phase.RUNNING)


@pytest.mark.parametrize("phase", (*WAITING, *ACTIVE))
def test_a_job_is_suspended_in_every_phase_and_resumes_at_its_position(
    new_log: NewJobLog, phase: Phase
) -> None:
    log = new_log().log(phase)
    queued_at = log.record.queued_at

    assert log.command(Command.SUSPEND).invalid is None

    held = log.record
    assert (held.phase, held.suspended_at, held.gang()) == (Phase.SUSPENDED, log.now, ())
    assert held.reason is not None
    assert (held.reason.code, held.reason.message) == (
        "Suspended",
        "ann has suspended it: resume it to let it start",
    )
    assert decide(held, log.now) == []

    log.command(Command.RESUME)

    assert (log.record.phase, log.record.queued_at) == (Phase.QUEUED, queued_at)
    assert log.record.waiting_since == log.now


@pytest.mark.parametrize("command", [Command.SUSPEND, Command.RESUME])
def test_a_repeated_command_changes_nothing(new_log: NewJobLog, command: Command) -> None:
    log = new_log().running()
    log.command(Command.SUSPEND)
    log.command(command)
    once = log.record

    log.command(command)

    assert (log.record.phase, log.record.suspended_at) == (once.phase, once.suspended_at)
    assert log.record.waiting_since == once.waiting_since


def test_a_placement_after_a_suspension_is_invalid(new_log: NewJobLog) -> None:
    log = new_log().queued()
    log.command(Command.SUSPEND)

    late = events.JobPlaced(attempt=1, generation=1, pool="local", replicas=())

    assert log.apply(late).invalid == "JobPlaced in phase Suspended"
    assert log.apply(events.JobWaiting(reason=Reason(code="X"))).invalid == "JobWaiting in phase Suspended"


def test_a_job_is_suspended_and_resumed_before_validation(new_log: NewJobLog) -> None:
    log = new_log().log(Phase.SUBMITTED)
    log.command(Command.SUSPEND)
    log.apply(events.JobValidated(job=log.job))
    assert log.record.phase is Phase.SUSPENDED

    other = new_log(run=RunPolicy(suspend=True)).log(Phase.SUBMITTED)
    other.command(Command.RESUME)
    other.apply(events.JobValidated(job=other.job))
    assert other.record.phase is Phase.QUEUED


def test_an_ended_or_ending_job_ignores_suspend_and_resume(new_log: NewJobLog) -> None:
    log = new_log().running()
    log.command(Command.CANCEL)
    log.command(Command.SUSPEND)
    assert log.record.phase is Phase.RUNNING
    log.finish(Outcome.CANCELLED)
    log.command(Command.SUSPEND)
    assert log.record.phase is Phase.CANCELLED


def test_a_suspended_job_can_be_cancelled(new_log: NewJobLog) -> None:
    log = new_log().running()
    log.command(Command.SUSPEND)
    log.command(Command.CANCEL)
    (instruction,) = decide(log.record, log.now)
    assert isinstance(instruction, Finish)
    assert instruction.event.outcome is Outcome.CANCELLED


def test_the_active_deadline_restarts_when_the_job_runs_again(new_log: NewJobLog, second: int) -> None:
    log = new_log(run=RunPolicy(active_deadline_s=60)).running()
    first = log.record.started_at
    log.command(Command.SUSPEND)
    assert next_deadline(log.record) is None
    for replica in log.record.replicas:
        log.see(replica.role, replica.index, ReplicaState.REMOVED)
    log.command(Command.RESUME)
    log.place()
    assert next_deadline(log.record) is None
    for member in log.record.gang():
        log.see(member.role, member.index, ReplicaState.RUNNING)
    assert log.record.started_at == first
    assert log.record.active_from > first
    assert next_deadline(log.record) == log.record.active_from + 60 * second


def test_the_queue_deadline_excludes_the_suspension(new_log: NewJobLog, second: int) -> None:
    log = new_log(run=RunPolicy(queue_deadline_s=30)).queued()
    log.command(Command.SUSPEND)
    assert next_deadline(log.record) is None
    log.command(Command.RESUME)
    assert next_deadline(log.record) == log.now + 30 * second


@pytest.mark.parametrize("passes", [0, 3600])
def test_a_suspended_job_has_no_deadline(new_log: NewJobLog, second: int, passes: int) -> None:
    deadlines = RunPolicy(active_deadline_s=1, queue_deadline_s=1, start_timeout_s=1, ttl_s=1)
    for log in (new_log(run=deadlines).queued(), new_log(run=deadlines).running()):
        log.command(Command.SUSPEND)
        assert next_deadline(log.record) is None
        assert start_due(log.record, 1) is None
        assert decide(log.record, log.now + passes * second) == []


def test_a_failure_during_a_suspension_does_not_end_the_job(new_log: NewJobLog) -> None:
    log = new_log(run=RunPolicy(backoff_limit=0)).running()
    log.command(Command.SUSPEND)
    log.end("worker", 1, 1)
    assert decide(log.record, log.now) == []
    assert (log.record.phase, log.record.failures) == (Phase.SUSPENDED, 0)


@pytest.mark.parametrize("command", [Command.SCALE, Command.RESTART])
def test_a_suspended_job_ignores_scale_and_restart(new_log: NewJobLog, command: Command) -> None:
    log = new_log().running()
    log.command(Command.SUSPEND)
    held = log.record
    asked = events.CommandRequested(command=command, request_id="r", role="worker", target=1)
    assert log.apply(asked).invalid is None
    after = log.record
    assert (after.phase, after.requested_sizes, after.reason) == (Phase.SUSPENDED, {}, held.reason)
    assert not any(one.restarting for one in after.replicas)


def test_a_suspension_drops_requested_sizes(new_log: NewJobLog) -> None:
    log = new_log().running()
    asked = events.CommandRequested(command=Command.SCALE, request_id="r", role="worker", target=1)
    log.apply(asked)
    assert log.record.requested_sizes == {"worker": 1}
    log.command(Command.SUSPEND)
    log.command(Command.RESUME)
    assert log.record.requested_sizes == {}


def test_a_deleted_suspended_job_is_ended_first(new_log: NewJobLog) -> None:
    log = new_log().running()
    log.command(Command.SUSPEND)
    log.command(Command.DELETE)
    (instruction,) = decide(log.record, log.now)
    assert isinstance(instruction, Finish)
    log.apply(instruction.event)
    for replica in log.record.replicas:
        log.see(replica.role, replica.index, ReplicaState.EXITED, exit_code=0)
    assert [type(one) for one in decide(log.record, log.now)] == [DeleteRecord]


@pytest.mark.parametrize(("given", "awaits"), [("WaitingForBuild", True), ("InsufficientResources", False)])
def test_a_suspension_keeps_the_awaited_build(new_log: NewJobLog, given: str, awaits: bool) -> None:
    log = new_log()
    log.apply(events.JobSubmitted(job_id="j-1", request_id="r"))
    log.apply(events.JobValidated(job=log.job, built_by="j-2"))
    log.apply(events.JobWaiting(reason=Reason(code=given)))
    log.command(Command.SUSPEND)
    log.command(Command.RESUME)
    assert awaits_build(log.record) is awaits
