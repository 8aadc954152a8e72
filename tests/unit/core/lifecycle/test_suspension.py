"""Suspend and resume: whoever is held gives up its room, keeps its place and its build, and goes on where it may."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core import facts
from muster_core.facts import Command, Outcome
from muster_core.lifecycle import Finish, decide, next_deadline
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

    late = facts.JobPlaced(attempt=1, generation=1, pool="local", replicas=())

    assert told.tell(late).illegal == "JobPlaced in phase Suspended"
    assert told.tell(facts.JobWaiting(reason=Reason(code="X"))).illegal == "JobWaiting in phase Suspended"


def test_a_job_may_be_held_and_let_go_before_it_is_validated(story: Stories) -> None:
    told = story().told(Phase.SUBMITTED)
    told.command(Command.SUSPEND)
    told.tell(facts.JobValidated(job=told.job))
    assert told.record.phase is Phase.SUSPENDED

    other = story(run=RunPolicy(suspend=True)).told(Phase.SUBMITTED)
    other.command(Command.RESUME)
    other.tell(facts.JobValidated(job=other.job))
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
    assert instruction.fact.outcome is Outcome.CANCELLED


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


@pytest.mark.parametrize(("said", "awaits"), [("WaitingForBuild", True), ("InsufficientResources", False)])
def test_whether_its_build_is_still_due_is_not_forgotten(story: Stories, said: str, awaits: bool) -> None:
    told = story()
    told.tell(facts.JobSubmitted(job_id="j-1", request_id="r"))
    told.tell(facts.JobValidated(job=told.job, built_by="j-2"))
    told.tell(facts.JobWaiting(reason=Reason(code=said)))
    told.command(Command.SUSPEND)
    told.command(Command.RESUME)
    assert awaits_build(told.record) is awaits
