"""Suspend and resume: whoever is held gives up its room, keeps its place and its build, and goes on where it may."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core import events
from muster_core.events import Command, Outcome
from muster_core.lifecycle import Finish, Forget, decide, next_deadline, start_due
from muster_core.lifecycle.builds import awaits_build
from muster_core.models import Phase, Reason, ReplicaState, RunPolicy

if TYPE_CHECKING:
    from .conftest import Stories

WAITING = (Phase.QUEUED, Phase.EVICTED, Phase.RESTARTING)
ACTIVE = (Phase.PLACED, Phase.LAUNCHING, Phase.RUNNING)


@pytest.mark.parametrize("phase", (*WAITING, *ACTIVE))
def test_a_job_is_held_whatever_it_does_and_goes_back_to_its_place(story: Stories, phase: Phase) -> None:
    told = story().told(phase)
    queued_at = told.record.queued_at

    assert told.command(Command.SUSPEND).illegal is None

    held = told.record
    assert (held.phase, held.suspended_at, held.members()) == (Phase.SUSPENDED, told.now, ())
    assert held.reason is not None
    assert (held.reason.code, held.reason.message) == (
        "Suspended",
        "ann has suspended it: resume it to let it start",
    )
    assert decide(held, told.now) == []

    told.command(Command.RESUME)

    assert (told.record.phase, told.record.queued_at) == (Phase.QUEUED, queued_at)
    assert told.record.waiting_since == told.now


@pytest.mark.parametrize("command", [Command.SUSPEND, Command.RESUME])
def test_what_is_asked_twice_is_done_once(story: Stories, command: Command) -> None:
    told = story().running()
    told.command(Command.SUSPEND)
    told.command(command)
    once = told.record

    told.command(command)

    assert (told.record.phase, told.record.suspended_at) == (once.phase, once.suspended_at)
    assert told.record.waiting_since == once.waiting_since


def test_a_placement_that_a_suspension_has_overtaken_places_nobody(story: Stories) -> None:
    told = story().queued()
    told.command(Command.SUSPEND)

    late = events.JobPlaced(attempt=1, generation=1, pool="local", replicas=())

    assert told.tell(late).illegal == "JobPlaced in phase Suspended"
    assert told.tell(events.JobWaiting(reason=Reason(code="X"))).illegal == "JobWaiting in phase Suspended"


def test_a_job_may_be_held_and_let_go_before_it_is_validated(story: Stories) -> None:
    told = story().told(Phase.SUBMITTED)
    told.command(Command.SUSPEND)
    told.tell(events.JobValidated(job=told.job))
    assert told.record.phase is Phase.SUSPENDED

    other = story(run=RunPolicy(suspend=True)).told(Phase.SUBMITTED)
    other.command(Command.RESUME)
    other.tell(events.JobValidated(job=other.job))
    assert other.record.phase is Phase.QUEUED


def test_a_job_that_has_ended_or_is_about_to_takes_no_notice(story: Stories) -> None:
    told = story().running()
    told.command(Command.CANCEL)
    told.command(Command.SUSPEND)
    assert told.record.phase is Phase.RUNNING
    told.finish(Outcome.CANCELLED)
    told.command(Command.SUSPEND)
    assert told.record.phase is Phase.CANCELLED


def test_a_held_job_can_be_cancelled(story: Stories) -> None:
    told = story().running()
    told.command(Command.SUSPEND)
    told.command(Command.CANCEL)
    (instruction,) = decide(told.record, told.now)
    assert isinstance(instruction, Finish)
    assert instruction.event.outcome is Outcome.CANCELLED


def test_the_active_deadline_starts_anew_when_the_job_runs_again(story: Stories, second: int) -> None:
    told = story(run=RunPolicy(active_deadline_s=60)).running()
    first = told.record.started_at
    told.command(Command.SUSPEND)
    assert next_deadline(told.record) is None
    for replica in told.record.replicas:
        told.see(replica.role, replica.index, ReplicaState.REMOVED)
    told.command(Command.RESUME)
    told.place()
    assert next_deadline(told.record) is None
    for member in told.record.members():
        told.see(member.role, member.index, ReplicaState.RUNNING)
    assert told.record.started_at == first
    assert told.record.active_from > first
    assert next_deadline(told.record) == told.record.active_from + 60 * second


def test_the_queue_deadline_does_not_count_what_the_user_held(story: Stories, second: int) -> None:
    told = story(run=RunPolicy(queue_deadline_s=30)).queued()
    told.command(Command.SUSPEND)
    assert next_deadline(told.record) is None
    told.command(Command.RESUME)
    assert next_deadline(told.record) == told.now + 30 * second


@pytest.mark.parametrize("passes", [0, 3600])
def test_no_deadline_runs_while_a_job_is_held(story: Stories, second: int, passes: int) -> None:
    deadlines = RunPolicy(active_deadline_s=1, queue_deadline_s=1, start_timeout_s=1, ttl_s=1)
    for told in (story(run=deadlines).queued(), story(run=deadlines).running()):
        told.command(Command.SUSPEND)
        assert next_deadline(told.record) is None
        assert start_due(told.record, 1) is None
        assert decide(told.record, told.now + passes * second) == []


def test_a_held_job_that_failed_while_it_was_asked_to_end_is_held_all_the_same(story: Stories) -> None:
    told = story(run=RunPolicy(backoff_limit=0)).running()
    told.command(Command.SUSPEND)
    told.end("worker", 1, 1)
    assert decide(told.record, told.now) == []
    assert (told.record.phase, told.record.failures) == (Phase.SUSPENDED, 0)


@pytest.mark.parametrize("command", [Command.SCALE, Command.RESTART])
def test_a_held_job_has_no_size_and_nothing_to_start_again(story: Stories, command: Command) -> None:
    told = story().running()
    told.command(Command.SUSPEND)
    held = told.record
    asked = events.CommandRequested(command=command, request_id="r", role="worker", target=1)
    assert told.tell(asked).illegal is None
    after = told.record
    assert (after.phase, after.asked, after.reason) == (Phase.SUSPENDED, {}, held.reason)
    assert not any(one.restarting for one in after.replicas)


def test_a_size_that_was_asked_for_and_not_reached_is_forgotten_when_the_job_is_held(story: Stories) -> None:
    told = story().running()
    asked = events.CommandRequested(command=Command.SCALE, request_id="r", role="worker", target=1)
    told.tell(asked)
    assert told.record.asked == {"worker": 1}
    told.command(Command.SUSPEND)
    told.command(Command.RESUME)
    assert told.record.asked == {}


def test_a_held_job_that_is_deleted_is_ended_first(story: Stories) -> None:
    told = story().running()
    told.command(Command.SUSPEND)
    told.command(Command.DELETE)
    (instruction,) = decide(told.record, told.now)
    assert isinstance(instruction, Finish)
    told.tell(instruction.event)
    for replica in told.record.replicas:
        told.see(replica.role, replica.index, ReplicaState.EXITED, exit_code=0)
    assert [type(one) for one in decide(told.record, told.now)] == [Forget]


@pytest.mark.parametrize(("said", "awaits"), [("WaitingForBuild", True), ("InsufficientResources", False)])
def test_whether_its_build_is_still_due_is_not_forgotten(story: Stories, said: str, awaits: bool) -> None:
    told = story()
    told.tell(events.JobSubmitted(job_id="j-1", request_id="r"))
    told.tell(events.JobValidated(job=told.job, built_by="j-2"))
    told.tell(events.JobWaiting(reason=Reason(code=said)))
    told.command(Command.SUSPEND)
    told.command(Command.RESUME)
    assert awaits_build(told.record) is awaits
