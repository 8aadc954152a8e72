"""Retention of ended jobs, and the requester of a cancellation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core import events
from muster_core.events import Outcome
from muster_core.lifecycle import (
    DeleteRecord,
    Finish,
    Retention,
    Stop,
    decide,
    next_deadline,
    next_work,
    reconcile,
)
from muster_core.models import CleanPodPolicy, Phase, ReplicaState, RunPolicy

if TYPE_CHECKING:
    from .conftest import JobLog, NewJobLog

STAYS = RunPolicy(clean_pod_policy=CleanPodPolicy.NONE, ttl_s=10)
MONTH = Retention(ttl_s=2_592_000)


def running(new_log: JobLog) -> list[events.ReplicaChange]:
    return [
        events.ReplicaChange(
            role=one.role, index=one.index, attempt=one.attempt, state=ReplicaState.RUNNING, at=new_log.now
        )
        for one in new_log.record.replicas
        if not one.ended
    ]


def stops(new_log: JobLog, now: int) -> list[str]:
    steps = reconcile(new_log.record, running(new_log), now)
    return [f"{step.role}-{step.index}" for step in steps if isinstance(step, Stop)]


def test_kept_replicas_stop_when_the_time_to_live_is_over(new_log: NewJobLog, second: int) -> None:
    log = new_log(run=STAYS).running()
    log.finish(Outcome.SUCCEEDED)
    end = log.record.finished_at + 10 * second

    assert next_work(log.record, log.now) == end
    assert stops(log, end - 1) == []
    assert stops(log, end) == ["ps-0", "worker-0", "worker-1"]
    assert next_work(log.record, end) is None
    assert decide(log.record, end) == []
    for replica in log.record.replicas:
        log.see(replica.role, replica.index, ReplicaState.EXITED, exit_code=0)
    assert decide(log.record, end) == [DeleteRecord("j-1")]


def test_without_a_time_to_live_kept_replicas_run_until_the_job_is_deleted(
    new_log: NewJobLog, second: int
) -> None:
    log = new_log(run=RunPolicy(clean_pod_policy=CleanPodPolicy.NONE)).running()
    log.finish(Outcome.SUCCEEDED)

    assert next_work(log.record, log.now) is None
    assert stops(log, log.now + 10**6 * second) == []
    log.command(events.Command.DELETE)
    assert stops(log, log.now) == ["ps-0", "worker-0", "worker-1"]


@pytest.mark.parametrize("phase", Phase)
def test_a_delete_stops_kept_replicas_in_every_phase(new_log: NewJobLog, phase: Phase) -> None:
    log = new_log(run=RunPolicy(clean_pod_policy=CleanPodPolicy.NONE)).log(phase)
    log.command(events.Command.DELETE)
    match decide(log.record, log.now):
        case [Finish(event=event)]:
            log.apply(event)
        case _:
            pass

    assert len(stops(log, log.now)) == sum(1 for one in log.record.replicas if not one.ended)


def test_the_platforms_time_to_live_applies_to_jobs_without_one(new_log: NewJobLog, second: int) -> None:
    log = new_log(1, ps=0).running().end("worker", 0)
    log.finish(Outcome.SUCCEEDED)
    end = log.record.finished_at + MONTH.ttl_s * second

    assert next_deadline(log.record, MONTH) == end
    assert decide(log.record, end - 1, MONTH) == []
    assert decide(log.record, end, MONTH) == [DeleteRecord("j-1")]


def test_the_jobs_time_to_live_overrides_the_platforms(new_log: NewJobLog, second: int) -> None:
    log = new_log(1, ps=0, run=RunPolicy(ttl_s=5)).running().end("worker", 0)
    log.finish(Outcome.SUCCEEDED)

    assert next_deadline(log.record, MONTH) == log.record.finished_at + 5 * second


def test_without_a_platform_time_to_live_records_are_kept(new_log: NewJobLog) -> None:
    log = new_log(1, ps=0).running().end("worker", 0)
    log.finish(Outcome.SUCCEEDED)

    assert next_deadline(log.record, Retention()) is None


@pytest.mark.parametrize(
    ("by", "message", "words"),
    [
        ("", "", "requested by its user"),
        ("ann", "", "requested by ann"),
        ("ann", "a bad rate", "requested by ann: a bad rate"),
        ("", "its only job train is cancelled", "its only job train is cancelled"),
    ],
)
def test_the_reason_of_a_cancelled_job_names_the_requester(
    new_log: NewJobLog, by: str, message: str, words: str
) -> None:
    log = new_log().running()
    log.apply(events.CommandRequested(command=events.Command.CANCEL, request_id="c", by=by, message=message))
    log.apply(events.CommandRequested(command=events.Command.CANCEL, request_id="d", by="bob"))

    (finish,) = decide(log.record, log.now)

    assert isinstance(finish, Finish)
    assert (finish.event.reason.code, finish.event.reason.message) == ("Cancelled", words)
