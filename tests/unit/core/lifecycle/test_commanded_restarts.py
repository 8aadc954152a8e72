"""Requested restarts of a gang or a replica: no failures, and ordered by the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core import events
from muster_core.lifecycle import Finish, Restart, Start, Stop, decide, reconcile
from muster_core.models import Phase, ReplicaState, RestartPolicy, RunPolicy

if TYPE_CHECKING:
    from .conftest import JobLog, NewJobLog

WAITING_OR_OVER = [p for p in Phase if p not in (Phase.PLACED, Phase.LAUNCHING, Phase.RUNNING)]


def again(new_log: JobLog, role: str = "", index: int | None = None) -> None:
    """A restart requested by a user."""
    new_log.apply(
        events.CommandRequested(
            command=events.Command.RESTART,
            request_id=f"r{new_log.sequence}",
            by="ann",
            role=role,
            target=index,
        )
    )


def restarting(new_log: JobLog) -> events.JobRestarting:
    (instruction,) = decide(new_log.record, new_log.now)
    assert isinstance(instruction, Restart)
    return instruction.event


def seen(new_log: JobLog, index: int, state: ReplicaState) -> events.ReplicaChange:
    run = new_log.replica("worker", index)
    return events.ReplicaChange(
        role="worker", index=index, attempt=run.attempt, restart=run.restart, state=state
    )


@pytest.mark.parametrize("phase", [Phase.PLACED, Phase.LAUNCHING, Phase.RUNNING])
def test_a_restarted_gang_waits_for_capacity_without_delay(new_log: NewJobLog, phase: Phase) -> None:
    log = new_log().log(phase)

    again(log)

    record = log.record
    assert (record.phase, record.failures, record.restarts, record.not_before) == (Phase.RESTARTING, 0, 0, 0)
    assert all(one.terminating for one in record.replicas)
    assert record.reason is not None
    assert (record.reason.code, record.reason.message) == ("RestartRequested", "restart requested by ann")
    assert log.place().record.attempt == 2


@pytest.mark.parametrize("phase", WAITING_OR_OVER)
def test_a_job_that_does_not_run_ignores_a_restart(new_log: NewJobLog, phase: Phase) -> None:
    log = new_log().log(phase)
    before = log.record

    again(log)

    assert (log.record.phase, log.record.reason) == (phase, before.reason)


def test_a_job_with_a_pending_cancel_ignores_a_restart(new_log: NewJobLog) -> None:
    log = new_log().running()
    log.command(events.Command.CANCEL)

    again(log)

    assert log.record.phase is Phase.RUNNING


def test_a_replica_restart_stops_the_replica_then_starts_it(new_log: NewJobLog) -> None:
    log = new_log(policy=RestartPolicy.NEVER, run=RunPolicy(backoff_limit=0)).running()
    again(log, "worker", 1)

    runs = [seen(log, 1, ReplicaState.RUNNING)]
    assert [s for s in reconcile(log.record, runs, log.now) if isinstance(s, Stop)] == [
        Stop(role="worker", index=1, attempt=1, restart=0)
    ]
    assert decide(log.record, log.now) == []
    log.end("worker", 1, signal=15)
    event = restarting(log)
    assert (event.delay_ms, event.uncounted, [ref.index for ref in event.replicas]) == (0, 1, [1])
    log.apply(event)

    record = log.record
    run = log.replica("worker", 1)
    assert (record.failures, record.restarts, record.phase) == (0, 0, Phase.RUNNING)
    assert (run.restart, run.state, run.restarting, run.node) == (1, ReplicaState.PLACED, False, "n1")
    starts = [s for s in reconcile(record, [], log.now) if isinstance(s, Start)]
    assert [(s.replica.role, s.replica.index) for s in starts] == [("worker", 1)]


def test_the_reason_is_running_after_the_restart(new_log: NewJobLog) -> None:
    log = new_log().running()
    again(log, "worker", 1)
    assert log.record.reason is not None
    assert log.record.reason.message == "restart of worker-1 requested by ann"
    log.end("worker", 1, signal=15)
    log.apply(restarting(log))
    log.see("worker", 1, ReplicaState.RUNNING)

    assert log.record.reason is not None
    assert (log.record.reason.code, log.record.reason.message) == ("Running", "all 3 replicas run again")


@pytest.mark.parametrize("code", [0, 1])
def test_the_end_of_a_requested_restart_neither_succeeds_nor_fails_the_job(
    new_log: NewJobLog, code: int
) -> None:
    log = new_log(1, ps=0, policy=RestartPolicy.NEVER).running()
    again(log, "worker", 0)

    log.end("worker", 0, code)

    assert restarting(log).reason.message == "worker-0 is restarted, as requested"


def test_another_failure_during_a_requested_restart_fails_the_job(new_log: NewJobLog) -> None:
    log = new_log(3, policy=RestartPolicy.NEVER).running()
    again(log, "worker", 1)
    log.end("worker", 2, 1)

    (finish,) = decide(log.record, log.now)

    assert isinstance(finish, Finish)
    assert finish.event.reason.message == "worker-2 on n1 exited with 1"


def test_a_restart_of_an_ended_or_unknown_replica_is_ignored(new_log: NewJobLog) -> None:
    log = new_log().running().end("worker", 1, 0)
    before = log.record
    again(log, "worker", 1)
    again(log, "worker", 7)

    assert log.record.replicas == before.replicas
    assert log.record.reason == before.reason


def test_the_reason_of_a_failure_is_cleared_when_the_replica_runs_again(new_log: NewJobLog) -> None:
    log = new_log().running().end("worker", 1, 1)
    log.apply(restarting(log))
    log.see("worker", 1, ReplicaState.LAUNCHED)
    assert log.record.reason is not None
    assert log.record.reason.code == "ReplicaFailed"
    log.see("worker", 1, ReplicaState.RUNNING)

    assert log.record.reason is not None
    assert log.record.reason.code == "Running"
