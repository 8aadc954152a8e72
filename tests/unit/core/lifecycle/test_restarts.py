"""Decisions after a failure: whether, what and when to restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core.events import JobFinished, JobRestarting, Outcome
from muster_core.lifecycle import decide
from muster_core.models import Framework, ReplicaState, RestartPolicy, RestartScope, RunPolicy

if TYPE_CHECKING:
    from .conftest import NewJobLog

P = RestartPolicy
GANG = RunPolicy(restart_scope=RestartScope.GANG, backoff_limit=20)


@pytest.mark.parametrize(
    ("policy", "code", "signal", "restarts"),
    [
        (P.ALWAYS, 1, None, True),
        (P.ALWAYS, 137, None, True),
        (P.ALWAYS, None, 9, True),
        (P.ON_FAILURE, 1, None, True),
        (P.ON_FAILURE, 143, None, True),
        (P.ON_FAILURE, None, 15, True),
        (P.NEVER, 1, None, False),
        (P.NEVER, 137, None, False),
        (P.NEVER, None, 9, False),
        (P.EXIT_CODE, 1, None, False),
        (P.EXIT_CODE, 127, None, False),
        (P.EXIT_CODE, 128, None, True),
        (P.EXIT_CODE, 137, None, True),
        (P.EXIT_CODE, 143, None, True),
        (P.EXIT_CODE, None, 1, True),
        (P.EXIT_CODE, None, 9, True),
    ],
)
@pytest.mark.parametrize("scope", RestartScope)
def test_the_restart_policy_decides_by_exit_code(
    *,
    new_log: NewJobLog,
    policy: RestartPolicy,
    code: int,
    signal: int | None,
    restarts: bool,
    scope: RestartScope,
) -> None:
    log = new_log(policy=policy, run=RunPolicy(restart_scope=scope)).running()
    log.end("worker", 1, code, signal=signal)

    event = log.decided()

    if not restarts:
        assert isinstance(event, JobFinished)
        assert (event.outcome, event.reason.code, event.attempt) == (Outcome.FAILED, "ReplicaFailed", 1)
        return
    assert isinstance(event, JobRestarting)
    assert (event.scope, event.attempt, event.delay_ms) == (scope, 1, 1000)
    named = [(ref.role, ref.index) for ref in event.replicas]
    assert named == ([("worker", 1)] if scope is RestartScope.REPLICA else [])


@pytest.mark.parametrize(
    ("policy", "restarts"), [(P.ALWAYS, True), (P.ON_FAILURE, True), (P.EXIT_CODE, True), (P.NEVER, False)]
)
def test_a_lost_replica_is_restarted_unless_the_policy_is_never(
    new_log: NewJobLog, policy: RestartPolicy, restarts: bool
) -> None:
    log = new_log(policy=policy).running()
    log.see("worker", 1, ReplicaState.LOST)

    assert isinstance(log.decided(), JobRestarting if restarts else JobFinished)


@pytest.mark.parametrize("state", [ReplicaState.REJECTED, ReplicaState.REMOVED])
def test_disruptions_and_requested_ends_are_no_failures(new_log: NewJobLog, state: ReplicaState) -> None:
    log = new_log(policy=P.NEVER).running()
    log.see("worker", 1, state)

    assert log.decided() is None


@pytest.mark.parametrize("code", [1, 137])
def test_a_terminating_replica_cannot_fail_the_job(new_log: NewJobLog, code: int) -> None:
    log = new_log(3, most=4, policy=P.NEVER).running()
    log.resize(remove=(("worker", 2),))
    log.end("worker", 2, code)

    assert log.decided() is None


@pytest.mark.parametrize(
    ("framework", "scope"),
    [
        (Framework.TENSORFLOW, RestartScope.REPLICA),
        (Framework.PLAIN, RestartScope.REPLICA),
        (Framework.MXNET, RestartScope.REPLICA),
        (Framework.PYTORCH, RestartScope.GANG),
        (Framework.MPI, RestartScope.GANG),
        (Framework.HOROVOD, RestartScope.GANG),
        (Framework.JAX, RestartScope.GANG),
        (Framework.XGBOOST, RestartScope.GANG),
        (Framework.PADDLE, RestartScope.GANG),
    ],
)
def test_the_gang_is_restarted_if_a_lost_replica_stalls_the_others(
    new_log: NewJobLog, framework: Framework, scope: RestartScope
) -> None:
    log = new_log(2, ps=0, framework=framework).running().end("worker", 1, 1)

    event = log.decided()

    assert isinstance(event, JobRestarting)
    assert event.scope is scope


def test_an_elastic_job_restarts_the_replica_alone(new_log: NewJobLog) -> None:
    log = new_log(2, most=4, ps=0, framework=Framework.PYTORCH).running().end("worker", 1, 1)

    event = log.decided()

    assert isinstance(event, JobRestarting)
    assert event.scope is RestartScope.REPLICA


def test_an_elastic_jax_job_is_restarted_as_a_whole(new_log: NewJobLog) -> None:
    log = new_log(2, most=4, ps=0, framework=Framework.JAX).running().end("worker", 1, 1)

    event = log.decided()

    assert isinstance(event, JobRestarting)
    assert event.scope is RestartScope.GANG


def test_the_restart_delay_doubles_from_1_s_to_5_min(new_log: NewJobLog) -> None:
    log = new_log(run=GANG).queued()
    delays: list[int] = []
    for _ in range(12):
        log.place().end("worker", 1, 1)
        event = log.decided()
        assert isinstance(event, JobRestarting)
        delays.append(event.delay_ms // 1000)
        log.apply(event)

    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_the_job_fails_at_the_back_off_limit(new_log: NewJobLog, limit: int) -> None:
    log = new_log(run=RunPolicy(backoff_limit=limit)).running()
    for _ in range(limit):
        log.end("worker", 1, 1)
        event = log.decided()
        assert isinstance(event, JobRestarting)
        log.apply(event)

    log.end("worker", 1, 1)
    last = log.decided()

    assert isinstance(last, JobFinished)
    assert (last.outcome, last.reason.code) == (Outcome.FAILED, "BackoffLimitExceeded")
    assert f"the back-off limit of {limit} is used up" in last.reason.message


def test_evictions_do_not_count_as_failures(new_log: NewJobLog) -> None:
    log = new_log(run=RunPolicy(backoff_limit=1)).queued()
    for _ in range(5):
        log.place().evict()
    log.place().end("worker", 1, 1)

    event = log.decided()

    assert isinstance(event, JobRestarting)
    assert event.delay_ms == 1000


def test_failed_replicas_are_restarted_together_and_counted_individually(new_log: NewJobLog) -> None:
    log = new_log(3).running().end("worker", 1, 1).end("worker", 2, 1)

    event = log.decided()

    assert isinstance(event, JobRestarting)
    assert [ref.index for ref in event.replicas] == [1, 2]
    assert event.reason.numbers == {"failures": 2, "limit": 3}
    assert "2 failed replicas are restarted in 1 s" in event.reason.message
    log.apply(event)
    assert log.record.failures == 2


def test_the_first_failure_is_reported_not_the_lowest_index(new_log: NewJobLog) -> None:
    log = new_log(3, policy=P.NEVER).running().end("worker", 2, 7).end("worker", 1, 1)

    event = log.decided()

    assert isinstance(event, JobFinished)
    assert event.reason.message == "worker-2 on n1 exited with 7"


def test_the_decision_is_deterministic(new_log: NewJobLog) -> None:
    log = new_log().running().end("worker", 1, 1)

    assert decide(log.record, log.now) == decide(log.record, log.now + 5)


def test_a_restarted_replica_needs_no_decision(new_log: NewJobLog) -> None:
    log = new_log().running().end("worker", 1, 1)
    log.restart(("worker", 1))

    assert log.decided() is None
    log.see("worker", 1, ReplicaState.RUNNING)
    assert log.decided() is None


@pytest.mark.parametrize(
    ("reason", "words"), [("", "worker-1 on n1 exited with 3"), ("OOM", "worker-1 on n1 exited with 3: OOM")]
)
def test_the_message_includes_the_reason_of_an_exit(new_log: NewJobLog, reason: str, words: str) -> None:
    log = new_log(policy=P.NEVER).running()
    log.see("worker", 1, ReplicaState.EXITED, exit_code=3, reason=reason)

    event = log.decided()

    assert isinstance(event, JobFinished)
    assert event.reason.message == words


@pytest.mark.parametrize(
    ("code", "words"), [(126, "the command could not be run"), (127, "the command was not found")]
)
def test_the_message_explains_shell_exit_codes(new_log: NewJobLog, code: int, words: str) -> None:
    event = new_log(policy=P.NEVER).running().end("worker", 1, code).decided()

    assert isinstance(event, JobFinished)
    assert event.reason.message == f"worker-1 on n1 exited with {code}: {words}, see its log"


def test_the_message_explains_a_lost_replica(new_log: NewJobLog) -> None:
    log = new_log(policy=P.NEVER).running()
    log.see("worker", 1, ReplicaState.LOST, reason="the node is gone")

    event = log.decided()

    assert isinstance(event, JobFinished)
    assert event.reason.message == "worker-1 on n1 was lost: the node is gone"
