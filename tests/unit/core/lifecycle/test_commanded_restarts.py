"""Restarts that a user asks for: of a gang or of one replica, never a failure, and settled by their order in the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core import events
from muster_core.lifecycle import Finish, Restart, Start, Stop, decide, reconcile
from muster_core.models import Phase, ReplicaState, RestartPolicy, RunPolicy

if TYPE_CHECKING:
    from .conftest import Stories, Story

WAITING_OR_OVER = [p for p in Phase if p not in (Phase.PLACED, Phase.LAUNCHING, Phase.RUNNING)]


def again(story: Story, role: str = "", index: int | None = None) -> None:
    """A restart requested by user."""
    story.tell(
        events.CommandRequested(
            command=events.Command.RESTART,
            request_id=f"r{story.sequence}",
            by="ann",
            role=role,
            target=index,
        )
    )


def restarting(story: Story) -> events.JobRestarting:
    (instruction,) = decide(story.record, story.now)
    assert isinstance(instruction, Restart)
    return instruction.event


def seen(story: Story, index: int, state: ReplicaState) -> events.ReplicaChange:
    run = story.replica("worker", index)
    return events.ReplicaChange(
        role="worker", index=index, attempt=run.attempt, restart=run.restart, state=state
    )


@pytest.mark.parametrize("phase", [Phase.PLACED, Phase.LAUNCHING, Phase.RUNNING])
def test_a_gang_that_is_started_again_waits_for_its_room_at_once(story: Stories, phase: Phase) -> None:
    told = story().told(phase)

    again(told)

    record = told.record
    assert (record.phase, record.failures, record.restarts, record.not_before) == (Phase.RESTARTING, 0, 0, 0)
    assert all(one.leaving for one in record.replicas)
    assert record.reason is not None
    assert (record.reason.code, record.reason.message) == ("RestartRequested", "restart requested by ann")
    assert told.place().record.attempt == 2


@pytest.mark.parametrize("phase", WAITING_OR_OVER)
def test_what_does_not_run_is_not_started_again(story: Stories, phase: Phase) -> None:
    told = story().told(phase)
    before = told.record

    again(told)

    assert (told.record.phase, told.record.reason) == (phase, before.reason)


def test_a_gang_that_is_about_to_be_cancelled_is_not_started_again(story: Stories) -> None:
    told = story().running()
    told.command(events.Command.CANCEL)

    again(told)

    assert told.record.phase is Phase.RUNNING


def test_one_replica_is_asked_to_end_and_then_started_again(story: Stories) -> None:
    told = story(policy=RestartPolicy.NEVER, run=RunPolicy(backoff_limit=0)).running()
    again(told, "worker", 1)

    runs = [seen(told, 1, ReplicaState.RUNNING)]
    assert [s for s in reconcile(told.record, runs, told.now) if isinstance(s, Stop)] == [
        Stop(role="worker", index=1, attempt=1, restart=0)
    ]
    assert decide(told.record, told.now) == []
    told.end("worker", 1, signal=15)
    event = restarting(told)
    assert (event.delay_ms, event.uncounted, [ref.index for ref in event.replicas]) == (0, 1, [1])
    told.tell(event)

    record = told.record
    run = told.replica("worker", 1)
    assert (record.failures, record.restarts, record.phase) == (0, 0, Phase.RUNNING)
    assert (run.restart, run.state, run.restarting, run.node) == (1, ReplicaState.PLACED, False, "n1")
    starts = [s for s in reconcile(record, [], told.now) if isinstance(s, Start)]
    assert [(s.replica.role, s.replica.index) for s in starts] == [("worker", 1)]


def test_when_it_runs_again_the_job_says_so(story: Stories) -> None:
    told = story().running()
    again(told, "worker", 1)
    assert told.record.reason is not None
    assert told.record.reason.message == "restart of worker-1 requested by ann"
    told.end("worker", 1, signal=15)
    told.tell(restarting(told))
    told.see("worker", 1, ReplicaState.RUNNING)

    assert told.record.reason is not None
    assert (told.record.reason.code, told.record.reason.message) == ("Running", "all 3 replicas run again")


@pytest.mark.parametrize("code", [0, 1])
def test_however_it_ends_when_it_is_asked_to_neither_succeeds_nor_fails_the_job(
    story: Stories, code: int
) -> None:
    told = story(1, ps=0, policy=RestartPolicy.NEVER).running()
    again(told, "worker", 0)

    told.end("worker", 0, code)

    assert restarting(told).reason.message == "worker-0 is restarted, as requested"


def test_one_that_failed_meanwhile_still_fails_the_job(story: Stories) -> None:
    told = story(3, policy=RestartPolicy.NEVER).running()
    again(told, "worker", 1)
    told.end("worker", 2, 1)

    (finish,) = decide(told.record, told.now)

    assert isinstance(finish, Finish)
    assert finish.event.reason.message == "worker-2 on n1 exited with 1"


def test_a_replica_that_has_ended_or_is_not_there_is_left_alone(story: Stories) -> None:
    told = story().running().end("worker", 1, 0)
    before = told.record
    again(told, "worker", 1)
    again(told, "worker", 7)

    assert told.record.replicas == before.replicas
    assert told.record.reason == before.reason


def test_a_failed_replica_that_runs_again_leaves_no_stale_reason(story: Stories) -> None:
    told = story().running().end("worker", 1, 1)
    told.tell(restarting(told))
    told.see("worker", 1, ReplicaState.LAUNCHED)
    assert told.record.reason is not None
    assert told.record.reason.code == "ReplicaFailed"
    told.see("worker", 1, ReplicaState.RUNNING)

    assert told.record.reason is not None
    assert told.record.reason.code == "Running"
