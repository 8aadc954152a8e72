"""Deadlines, cancellation, deletion, and removal of the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core import events
from muster_core.events import Outcome
from muster_core.lifecycle import DeleteRecord, Finish, decide, next_deadline
from muster_core.models import CleanPodPolicy, Phase, ReplicaState, RunPolicy

if TYPE_CHECKING:
    from .conftest import JobLog, NewJobLog

ACTIVE = RunPolicy(active_deadline_s=60)
QUEUE = RunPolicy(queue_deadline_s=30)
LIVING = [
    p
    for p in Phase
    if p not in (Phase.REJECTED, Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED, Phase.TIMED_OUT)
]


def ended(new_log: JobLog, at: int) -> tuple[Outcome, str] | None:
    """Return the outcome of the job at ``at`` and its reason code, if it ends."""
    match decide(new_log.record, at):
        case [Finish(event=event)]:
            return event.outcome, event.reason.code
        case _:
            return None


def gone(new_log: JobLog) -> JobLog:
    """Confirm the end of every replica."""
    for replica in new_log.record.replicas:
        new_log.see(replica.role, replica.index, ReplicaState.REMOVED)
    return new_log


@pytest.mark.parametrize("step_s", [600, -600])
def test_the_age_of_a_job_does_not_depend_on_the_clock_of_the_machine_that_runs_it(
    new_log: NewJobLog, second: int, step_s: int
) -> None:
    log = new_log(run=ACTIVE).queued().place()
    began = log.now
    for replica in log.record.gang():
        log.apply(
            events.ReplicasChanged(
                changes=(
                    events.ReplicaChange(
                        role=replica.role,
                        index=replica.index,
                        attempt=1,
                        state=ReplicaState.RUNNING,
                        at=log.now + step_s * second,
                    ),
                )
            )
        )
    assert began <= log.record.started_at <= log.now
    assert ended(log, began + 59 * second) is None
    assert ended(log, log.now + 60 * second) == (Outcome.TIMED_OUT, "ActiveDeadline")


def test_a_job_that_runs_too_long_is_timed_out(new_log: NewJobLog, second: int) -> None:
    log = new_log(run=ACTIVE).running()
    end = log.record.started_at + 60 * second

    assert next_deadline(log.record) == end
    assert ended(log, end - 1) is None
    assert ended(log, end) == (Outcome.TIMED_OUT, "ActiveDeadline")


def test_the_active_deadline_counts_from_the_first_start_through_evictions(
    new_log: NewJobLog, second: int
) -> None:
    log = new_log(run=ACTIVE).running()
    end = log.record.started_at + 60 * second
    log.evict()

    assert next_deadline(log.record) == end
    assert ended(log, end) == (Outcome.TIMED_OUT, "ActiveDeadline")


def test_a_job_that_has_not_started_has_no_active_deadline(new_log: NewJobLog) -> None:
    log = new_log(run=ACTIVE).queued().place()

    assert next_deadline(log.record) is None


def test_a_job_that_waits_too_long_is_timed_out(new_log: NewJobLog, second: int) -> None:
    log = new_log(run=QUEUE).queued()
    end = log.record.validated_at + 30 * second

    assert next_deadline(log.record) == end
    assert ended(log, end - 1) is None
    assert ended(log, end) == (Outcome.TIMED_OUT, "QueueDeadline")


def test_once_placed_a_job_has_no_queue_deadline(new_log: NewJobLog, second: int) -> None:
    log = new_log(run=QUEUE).queued().place()
    assert next_deadline(log.record) is None

    log.evict()
    assert ended(log, log.now + 100 * second) is None


@pytest.mark.parametrize("phase", LIVING)
def test_a_cancel_ends_a_job_in_every_phase(new_log: NewJobLog, phase: Phase) -> None:
    log = new_log().log(phase)

    log.command(events.Command.CANCEL)

    assert ended(log, log.now) == (Outcome.CANCELLED, "Cancelled")


def test_a_cancel_precedes_a_success(new_log: NewJobLog) -> None:
    log = new_log().running().end("worker", 0)
    log.command(events.Command.CANCEL)

    assert ended(log, log.now) == (Outcome.CANCELLED, "Cancelled")


@pytest.mark.parametrize("phase", LIVING)
def test_a_delete_ends_the_job_then_removes_its_record(new_log: NewJobLog, phase: Phase) -> None:
    log = new_log().log(phase)

    log.command(events.Command.DELETE)
    [finish] = decide(log.record, log.now)
    assert isinstance(finish, Finish)
    log.apply(finish.event)
    if log.record.replicas:
        assert decide(log.record, log.now) == []
    gone(log)

    assert decide(log.record, log.now) == [DeleteRecord("j-1")]


def test_a_job_that_ended_is_kept_until_its_time_to_live_is_over(new_log: NewJobLog, second: int) -> None:
    log = new_log(run=RunPolicy(ttl_s=10)).running()
    log.finish(Outcome.SUCCEEDED)
    end = log.record.finished_at + 10 * second

    assert next_deadline(log.record) is None
    assert decide(log.record, end) == []
    gone(log)
    assert next_deadline(log.record) == end
    assert decide(log.record, end - 1) == []
    assert decide(log.record, end) == [DeleteRecord("j-1")]


@pytest.mark.parametrize("policy", CleanPodPolicy)
def test_without_a_time_to_live_a_job_is_kept_until_it_is_deleted(
    new_log: NewJobLog, second: int, policy: CleanPodPolicy
) -> None:
    log = new_log(run=RunPolicy(clean_pod_policy=policy)).running()
    log.finish(Outcome.SUCCEEDED)
    gone(log)

    assert next_deadline(log.record) is None
    assert decide(log.record, log.now + 10**6 * second) == []
    log.command(events.Command.DELETE)
    assert decide(log.record, log.now) == [DeleteRecord("j-1")]


def test_the_record_of_a_rejected_job_is_removed_on_delete(new_log: NewJobLog) -> None:
    log = new_log().log(Phase.REJECTED)
    assert decide(log.record, log.now) == []

    log.command(events.Command.DELETE)

    assert decide(log.record, log.now) == [DeleteRecord("j-1")]


def test_the_next_deadline_is_the_earliest(new_log: NewJobLog, second: int) -> None:
    log = new_log(run=RunPolicy(active_deadline_s=60, queue_deadline_s=30)).queued()

    assert next_deadline(log.record) == log.record.validated_at + 30 * second
    log.place().see("worker", 0, ReplicaState.RUNNING)
    assert next_deadline(log.record) == log.record.started_at + 60 * second


@pytest.mark.parametrize(
    "command", [c for c in events.Command if c not in (events.Command.CANCEL, events.Command.DELETE)]
)
def test_other_commands_do_not_end_the_job(new_log: NewJobLog, command: events.Command) -> None:
    log = new_log().running()

    log.command(command)

    assert decide(log.record, log.now) == []
