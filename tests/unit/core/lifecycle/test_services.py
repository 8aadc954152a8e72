"""Services: replicas that end are restarted by policy, and failures are forgiven after ten minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core.events import JobFinished, JobRestarting, Outcome
from muster_core.lifecycle import address_of
from muster_core.models import (
    Framework,
    JobKind,
    Phase,
    Port,
    ReplicaState,
    RestartPolicy,
    Role,
    RunPolicy,
    Template,
)

if TYPE_CHECKING:
    from .conftest import JobLog, NewJobLog

P = RestartPolicy


def service(
    new_log: NewJobLog, policy: RestartPolicy = P.ALWAYS, *, workers: int = 1, limit: int = 3
) -> JobLog:
    run = RunPolicy(backoff_limit=limit)
    plain = Framework.PLAIN
    return new_log(workers, ps=0, policy=policy, run=run, framework=plain, kind=JobKind.SERVICE).running()


def restart(new_log: JobLog, code: int, *, after_s: float = 1) -> JobRestarting:
    """The replica ends after that time, and is restarted."""
    new_log.see("worker", 0, ReplicaState.RUNNING, after_s=0)
    new_log.see("worker", 0, ReplicaState.EXITED, after_s=after_s, exit_code=code)
    event = new_log.decided()
    assert isinstance(event, JobRestarting), event
    assert new_log.apply(event).invalid is None
    return event


def test_a_service_replica_that_exits_with_0_is_restarted_without_a_failure(new_log: NewJobLog) -> None:
    log = service(new_log)

    restarts = [restart(log, 0) for _ in range(5)]

    assert log.record.failures == 0
    assert log.record.phase is Phase.RUNNING
    assert [event.delay_ms for event in restarts] == [1000, 2000, 4000, 8000, 16000]
    assert restarts[0].reason.code == "ReplicaEnded"
    assert restarts[0].reason.message == ("worker-0 on n1 exited with 0; the replica is restarted in 1 s")


def test_a_service_that_keeps_failing_ends_at_the_back_off_limit(new_log: NewJobLog) -> None:
    log = service(new_log, limit=2)
    for _ in range(2):
        restart(log, 1)
    log.see("worker", 0, ReplicaState.RUNNING, after_s=0)
    log.end("worker", 0, 1)

    event = log.decided()

    assert isinstance(event, JobFinished)
    assert (event.outcome, event.reason.code) == (Outcome.FAILED, "BackoffLimitExceeded")


def test_ten_minutes_without_a_restart_reset_failures_and_delay_of_a_service(new_log: NewJobLog) -> None:
    log = service(new_log, limit=2)
    for _ in range(2):
        restart(log, 1)

    late = restart(log, 1, after_s=605)

    assert late.delay_ms == 1000
    assert late.reason.numbers == {"failures": 1, "limit": 2}
    assert log.record.failures == 1


def test_ten_minutes_without_a_restart_reset_only_the_delay_of_a_batch_job(new_log: NewJobLog) -> None:
    log = new_log(1, ps=0, run=RunPolicy(backoff_limit=9)).running()
    for _ in range(3):
        restart(log, 1)

    late = restart(log, 1, after_s=605)

    assert late.delay_ms == 1000
    assert log.record.failures == 4


@pytest.mark.parametrize("policy", [P.NEVER, P.ON_FAILURE, P.EXIT_CODE])
def test_a_service_without_restart_policy_always_succeeds_like_a_batch_job(
    new_log: NewJobLog, policy: RestartPolicy
) -> None:
    log = service(new_log, policy, workers=2)
    log.end("worker", 0)
    assert log.decided() is None

    log.end("worker", 1)

    event = log.decided()
    assert isinstance(event, JobFinished)
    assert event.outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize(("policy", "restarts"), [(P.NEVER, False), (P.ON_FAILURE, True), (P.ALWAYS, True)])
def test_a_failed_service_replica_is_restarted_by_its_policy(
    new_log: NewJobLog, policy: RestartPolicy, restarts: bool
) -> None:
    log = service(new_log, policy).end("worker", 0, 1)

    assert isinstance(log.decided(), JobRestarting) is restarts


def test_a_successful_exit_beside_a_failure_is_restarted_and_not_counted(new_log: NewJobLog) -> None:
    log = service(new_log, workers=3)
    log.end("worker", 1).end("worker", 2, 1)

    event = log.decided()

    assert isinstance(event, JobRestarting)
    assert event.reason.message.startswith("worker-2 on n1 exited with 1; the 2 replicas are restarted")
    log.apply(event)
    assert log.record.failures == 1


def test_a_restarted_service_replica_keeps_its_node_and_address(new_log: NewJobLog) -> None:
    log = service(new_log)
    log.see("worker", 0, ReplicaState.EXITED, exit_code=0, address="127.0.0.1:21003")
    event = log.decided()
    assert isinstance(event, JobRestarting)
    log.apply(event)

    assert log.replica("worker", 0).address == "127.0.0.1:21003"
    assert log.replica("worker", 0).node == "n1"


@pytest.mark.parametrize(
    ("ports", "scheme"),
    [
        ((), ""),
        ((Port(name="grpc", number=7000),), ""),
        ((Port(name="metrics", number=9000), Port(name="http", number=8888)), "http://"),
        ((Port(name="https", number=8443),), "https://"),
    ],
)
def test_a_running_service_has_an_address(new_log: NewJobLog, ports: tuple[Port, ...], scheme: str) -> None:
    template = Template(command=("serve",), ports=ports)
    role = Role(name="notebook", replicas=2, min=1, max=2, template=template, restart_policy=P.ALWAYS)
    log = new_log(roles=(role,), kind=JobKind.SERVICE, framework=Framework.PLAIN).queued().place()
    assert address_of(log.record) == ""

    log.see("notebook", 1, ReplicaState.RUNNING, address="127.0.0.1:21004")
    assert address_of(log.record) == f"{scheme}127.0.0.1:21004"
    log.see("notebook", 0, ReplicaState.RUNNING, address="127.0.0.1:21003")
    assert address_of(log.record) == f"{scheme}127.0.0.1:21003"

    log.finish(Outcome.CANCELLED)
    assert address_of(log.record) == ""


def test_a_batch_job_has_no_address(new_log: NewJobLog) -> None:
    log = new_log(1, ps=0).queued().place()
    log.see("worker", 0, ReplicaState.RUNNING, address="127.0.0.1:21003")

    assert address_of(log.record) == ""
