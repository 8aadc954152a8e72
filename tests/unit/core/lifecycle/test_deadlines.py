"""Deadlines, cancellation, deletion and the end of the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core import events
from muster_core.events import Outcome
from muster_core.lifecycle import Finish, Forget, decide, next_deadline
from muster_core.models import CleanPodPolicy, Phase, ReplicaState, RunPolicy

if TYPE_CHECKING:
    from .conftest import Stories, Story

ACTIVE = RunPolicy(active_deadline_s=60)
QUEUE = RunPolicy(queue_deadline_s=30)
LIVING = [
    p
    for p in Phase
    if p not in (Phase.REJECTED, Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED, Phase.TIMED_OUT)
]


def ended(story: Story, at: int) -> tuple[Outcome, str] | None:
    """How the job ends at ``at``, if it does, and the code of the reason."""
    match decide(story.record, at):
        case [Finish(event=event)]:
            return event.outcome, event.reason.code
        case _:
            return None


def gone(story: Story) -> Story:
    """Every replica's end is confirmed."""
    for replica in story.record.replicas:
        story.see(replica.role, replica.index, ReplicaState.REMOVED)
    return story


def test_a_job_that_runs_too_long_is_timed_out(story: Stories, second: int) -> None:
    told = story(run=ACTIVE).running()
    end = told.record.started_at + 60 * second

    assert next_deadline(told.record) == end
    assert ended(told, end - 1) is None
    assert ended(told, end) == (Outcome.TIMED_OUT, "ActiveDeadline")


def test_the_active_deadline_counts_from_the_first_start_through_evictions(
    story: Stories, second: int
) -> None:
    told = story(run=ACTIVE).running()
    end = told.record.started_at + 60 * second
    told.evict()

    assert next_deadline(told.record) == end
    assert ended(told, end) == (Outcome.TIMED_OUT, "ActiveDeadline")


def test_a_job_that_has_not_started_has_no_active_deadline(story: Stories) -> None:
    told = story(run=ACTIVE).queued().place()

    assert next_deadline(told.record) is None


def test_a_job_that_waits_too_long_is_timed_out(story: Stories, second: int) -> None:
    told = story(run=QUEUE).queued()
    end = told.record.validated_at + 30 * second

    assert next_deadline(told.record) == end
    assert ended(told, end - 1) is None
    assert ended(told, end) == (Outcome.TIMED_OUT, "QueueDeadline")


def test_once_placed_a_job_has_no_queue_deadline(story: Stories, second: int) -> None:
    told = story(run=QUEUE).queued().place()
    assert next_deadline(told.record) is None

    told.evict()
    assert ended(told, told.now + 100 * second) is None


@pytest.mark.parametrize("phase", LIVING)
def test_a_cancelled_job_ends_whatever_it_was_doing(story: Stories, phase: Phase) -> None:
    told = story().told(phase)

    told.command(events.Command.CANCEL)

    assert ended(told, told.now) == (Outcome.CANCELLED, "Cancelled")


def test_a_cancel_comes_before_a_success(story: Stories) -> None:
    told = story().running().end("worker", 0)
    told.command(events.Command.CANCEL)

    assert ended(told, told.now) == (Outcome.CANCELLED, "Cancelled")


@pytest.mark.parametrize("phase", LIVING)
def test_a_deleted_job_is_ended_then_forgotten(story: Stories, phase: Phase) -> None:
    told = story().told(phase)

    told.command(events.Command.DELETE)
    [finish] = decide(told.record, told.now)
    assert isinstance(finish, Finish)
    told.tell(finish.event)
    if told.record.replicas:
        assert decide(told.record, told.now) == []
    gone(told)

    assert decide(told.record, told.now) == [Forget("j-1")]


def test_a_job_that_ended_is_kept_until_its_time_to_live_is_over(story: Stories, second: int) -> None:
    told = story(run=RunPolicy(ttl_s=10)).running()
    told.finish(Outcome.SUCCEEDED)
    end = told.record.finished_at + 10 * second

    assert next_deadline(told.record) is None
    assert decide(told.record, end) == []
    gone(told)
    assert next_deadline(told.record) == end
    assert decide(told.record, end - 1) == []
    assert decide(told.record, end) == [Forget("j-1")]


@pytest.mark.parametrize("policy", CleanPodPolicy)
def test_without_a_time_to_live_a_job_is_kept_until_it_is_deleted(
    story: Stories, second: int, policy: CleanPodPolicy
) -> None:
    told = story(run=RunPolicy(clean_pod_policy=policy)).running()
    told.finish(Outcome.SUCCEEDED)
    gone(told)

    assert next_deadline(told.record) is None
    assert decide(told.record, told.now + 10**6 * second) == []
    told.command(events.Command.DELETE)
    assert decide(told.record, told.now) == [Forget("j-1")]


def test_a_rejected_job_is_forgotten_when_it_is_deleted(story: Stories) -> None:
    told = story().told(Phase.REJECTED)
    assert decide(told.record, told.now) == []

    told.command(events.Command.DELETE)

    assert decide(told.record, told.now) == [Forget("j-1")]


def test_the_nearest_deadline_is_the_next(story: Stories, second: int) -> None:
    told = story(run=RunPolicy(active_deadline_s=60, queue_deadline_s=30)).queued()

    assert next_deadline(told.record) == told.record.validated_at + 30 * second
    told.place().see("worker", 0, ReplicaState.RUNNING)
    assert next_deadline(told.record) == told.record.started_at + 60 * second


@pytest.mark.parametrize(
    "command", [c for c in events.Command if c not in (events.Command.CANCEL, events.Command.DELETE)]
)
def test_other_commands_end_nothing(story: Stories, command: events.Command) -> None:
    told = story().running()

    told.command(command)

    assert decide(told.record, told.now) == []
