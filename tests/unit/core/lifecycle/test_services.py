"""A service stays up: what ends is started again, as its policy says, and a quiet time forgives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core.events import JobFinished, JobRestarting, Outcome
from muster_core.lifecycle import Finish, Restart, decide
from muster_core.lifecycle.services import address_of
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
    from .conftest import Stories, Story

P = RestartPolicy


def service(story: Stories, policy: RestartPolicy = P.ALWAYS, *, workers: int = 1, limit: int = 3) -> Story:
    run = RunPolicy(backoff_limit=limit)
    plain = Framework.PLAIN
    return story(workers, ps=0, policy=policy, run=run, framework=plain, kind=JobKind.SERVICE).running()


def decided(story: Story) -> JobRestarting | JobFinished | None:
    match decide(story.record, story.now):
        case [Finish(event=event) | Restart(event=event)]:
            return event
        case _:
            return None


def restart(story: Story, code: int, *, after_s: float = 1) -> JobRestarting:
    """The replica ends after it ran so long, and is started again."""
    story.see("worker", 0, ReplicaState.RUNNING, after_s=0)
    story.see("worker", 0, ReplicaState.EXITED, after_s=after_s, exit_code=code)
    event = decided(story)
    assert isinstance(event, JobRestarting), event
    assert story.tell(event).illegal is None
    return event


def test_a_service_that_ends_well_is_started_again_and_that_is_no_failure(story: Stories) -> None:
    told = service(story)

    restarts = [restart(told, 0) for _ in range(5)]

    assert told.record.failures == 0
    assert told.record.phase is Phase.RUNNING
    assert [event.delay_ms for event in restarts] == [1000, 2000, 4000, 8000, 16000]
    assert restarts[0].reason.code == "ReplicaEnded"
    assert restarts[0].reason.message == ("worker-0 on n1 exited with 0; the replica is restarted in 1 s")


def test_a_service_that_keeps_failing_ends_at_its_limit(story: Stories) -> None:
    told = service(story, limit=2)
    for _ in range(2):
        restart(told, 1)
    told.see("worker", 0, ReplicaState.RUNNING, after_s=0)
    told.end("worker", 0, 1)

    event = decided(told)

    assert isinstance(event, JobFinished)
    assert (event.outcome, event.reason.code) == (Outcome.FAILED, "BackoffLimitExceeded")


def test_ten_quiet_minutes_forgive_a_service_its_failures_and_its_delay(story: Stories) -> None:
    told = service(story, limit=2)
    for _ in range(2):
        restart(told, 1)

    late = restart(told, 1, after_s=605)

    assert late.delay_ms == 1000
    assert late.reason.numbers == {"failures": 1, "limit": 2}
    assert told.record.failures == 1


def test_a_quiet_time_forgives_a_batch_job_the_delay_alone(story: Stories) -> None:
    told = story(1, ps=0, run=RunPolicy(backoff_limit=9)).running()
    for _ in range(3):
        restart(told, 1)

    late = restart(told, 1, after_s=605)

    assert late.delay_ms == 1000
    assert told.record.failures == 4


@pytest.mark.parametrize("policy", [P.NEVER, P.ON_FAILURE, P.EXIT_CODE])
def test_a_service_that_is_not_always_restarted_succeeds_when_all_of_it_ends_well(
    story: Stories, policy: RestartPolicy
) -> None:
    told = service(story, policy, workers=2)
    told.end("worker", 0)
    assert decided(told) is None

    told.end("worker", 1)

    event = decided(told)
    assert isinstance(event, JobFinished)
    assert event.outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize(("policy", "restarts"), [(P.NEVER, False), (P.ON_FAILURE, True), (P.ALWAYS, True)])
def test_a_service_that_fails_is_restarted_as_its_policy_says(
    story: Stories, policy: RestartPolicy, restarts: bool
) -> None:
    told = service(story, policy).end("worker", 0, 1)

    assert isinstance(decided(told), JobRestarting) is restarts


def test_what_ended_well_beside_a_failure_is_restarted_and_not_counted(story: Stories) -> None:
    told = service(story, workers=3)
    told.end("worker", 1).end("worker", 2, 1)

    event = decided(told)

    assert isinstance(event, JobRestarting)
    assert event.reason.message.startswith("worker-2 on n1 exited with 1; the 2 replicas are restarted")
    told.tell(event)
    assert told.record.failures == 1


def test_a_service_starts_again_where_it_was_with_its_address(story: Stories) -> None:
    told = service(story)
    told.see("worker", 0, ReplicaState.EXITED, exit_code=0, address="127.0.0.1:21003")
    event = decided(told)
    assert isinstance(event, JobRestarting)
    told.tell(event)

    assert told.replica("worker", 0).address == "127.0.0.1:21003"
    assert told.replica("worker", 0).node == "n1"


@pytest.mark.parametrize(
    ("ports", "scheme"),
    [
        ((), ""),
        ((Port(name="grpc", number=7000),), ""),
        ((Port(name="metrics", number=9000), Port(name="http", number=8888)), "http://"),
        ((Port(name="https", number=8443),), "https://"),
    ],
)
def test_a_service_that_runs_has_an_address(story: Stories, ports: tuple[Port, ...], scheme: str) -> None:
    template = Template(command=("serve",), ports=ports)
    role = Role(name="notebook", replicas=2, min=1, max=2, template=template, restart_policy=P.ALWAYS)
    told = story(roles=(role,), kind=JobKind.SERVICE, framework=Framework.PLAIN).queued().place()
    assert address_of(told.record) == ""

    told.see("notebook", 1, ReplicaState.RUNNING, address="127.0.0.1:21004")
    assert address_of(told.record) == f"{scheme}127.0.0.1:21004"
    told.see("notebook", 0, ReplicaState.RUNNING, address="127.0.0.1:21003")
    assert address_of(told.record) == f"{scheme}127.0.0.1:21003"

    told.finish(Outcome.CANCELLED)
    assert address_of(told.record) == ""


def test_a_job_that_is_no_service_has_no_address_of_its_own(story: Stories) -> None:
    told = story(1, ps=0).queued().place()
    told.see("worker", 0, ReplicaState.RUNNING, address="127.0.0.1:21003")

    assert address_of(told.record) == ""
