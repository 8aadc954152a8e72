"""Success rules of each framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from muster_core.events import Outcome
from muster_core.lifecycle import Finish, decide
from muster_core.models import (
    CleanPodPolicy,
    Framework,
    FrameworkOptions,
    Rendezvous,
    ReplicaState,
    RunPolicy,
    SuccessPolicy,
    Template,
)

if TYPE_CHECKING:
    from .conftest import JobLog, NewJobLog

ALL = RunPolicy(success_policy=SuccessPolicy.ALL_WORKERS)


def outcome(new_log: JobLog) -> Outcome | None:
    """Return the end of the job now, if it ends."""
    match decide(new_log.record, new_log.now):
        case [Finish(event=event)]:
            return event.outcome
        case _:
            return None


LEADS = [
    (Framework.TENSORFLOW, "chief"),
    (Framework.TENSORFLOW, "master"),
    (Framework.PYTORCH, "master"),
    (Framework.MPI, "launcher"),
    (Framework.HOROVOD, "launcher"),
    (Framework.XGBOOST, "master"),
    (Framework.PADDLE, "master"),
    (Framework.MXNET, "scheduler"),
]


@pytest.mark.parametrize(("framework", "leader"), LEADS)
def test_the_leader_alone_decides_success(new_log: NewJobLog, framework: Framework, leader: str) -> None:
    log = new_log(2, ps=0, others=(leader,), framework=framework).running()

    log.end("worker", 0).end("worker", 1)
    assert outcome(log) is None
    log.end(leader, 0)
    assert outcome(log) is Outcome.SUCCEEDED


def test_a_successful_leader_ends_the_job_while_workers_run(new_log: NewJobLog) -> None:
    log = new_log(2, others=("chief",)).running().end("chief", 0)

    assert outcome(log) is Outcome.SUCCEEDED


def test_tensorflow_without_a_chief_succeeds_with_worker_0(new_log: NewJobLog) -> None:
    log = new_log(3).running()

    log.end("worker", 1)
    assert outcome(log) is None
    log.end("worker", 0)
    assert outcome(log) is Outcome.SUCCEEDED


@pytest.mark.parametrize("others", [(), ("evaluator",)])
def test_with_policy_all_workers_worker_0_is_not_enough(new_log: NewJobLog, others: tuple[str, ...]) -> None:
    log = new_log(2, others=others, run=ALL).running()

    log.end("worker", 0)
    assert outcome(log) is None
    log.end("worker", 1)
    assert outcome(log) is Outcome.SUCCEEDED


def test_a_removed_worker_is_not_awaited(new_log: NewJobLog) -> None:
    log = new_log(2, most=4, run=ALL).running()
    log.resize(remove=(("worker", 1),))

    log.end("worker", 0)

    assert outcome(log) is Outcome.SUCCEEDED


@pytest.mark.parametrize(
    "framework", [Framework.PYTORCH, Framework.XGBOOST, Framework.PADDLE, Framework.JAX, Framework.PLAIN]
)
def test_without_a_leader_all_workers_must_succeed_and_parameter_servers_need_not(
    new_log: NewJobLog, framework: Framework
) -> None:
    log = new_log(2, framework=framework).running()

    log.end("worker", 0)
    assert outcome(log) is None
    log.end("worker", 1)
    assert outcome(log) is Outcome.SUCCEEDED


@pytest.mark.parametrize(
    ("most", "rendezvous"), [(4, None), (None, Rendezvous())], ids=["elastic", "with a rendezvous"]
)
def test_elastic_pytorch_succeeds_with_any_worker(
    new_log: NewJobLog, most: int | None, rendezvous: Rendezvous | None
) -> None:
    options = FrameworkOptions(rendezvous=rendezvous)
    log = new_log(2, most=most, ps=0, framework=Framework.PYTORCH, options=options).running()

    log.end("worker", 1)

    assert outcome(log) is Outcome.SUCCEEDED


def test_mxnet_without_a_scheduler_does_not_await_servers(new_log: NewJobLog) -> None:
    log = new_log(2, ps=0, others=("server",), framework=Framework.MXNET).running().end("worker", 0)

    assert outcome(log) is None
    log.end("worker", 1)
    assert outcome(log) is Outcome.SUCCEEDED


def test_mxnet_succeeds_with_its_only_worker(new_log: NewJobLog) -> None:
    log = new_log(1, ps=0, framework=Framework.MXNET).running().end("worker", 0)

    assert outcome(log) is Outcome.SUCCEEDED


def test_a_job_of_only_parameter_servers_awaits_all_of_them(new_log: NewJobLog) -> None:
    log = new_log(0, ps=2, framework=Framework.PLAIN).running()

    log.end("ps", 0)
    assert outcome(log) is None
    log.end("ps", 1)
    assert outcome(log) is Outcome.SUCCEEDED


def test_without_a_framework_every_role_must_succeed(new_log: NewJobLog) -> None:
    log = new_log(1, ps=0, others=("reader",), framework=Framework.PLAIN).running().end("worker", 0)

    assert outcome(log) is None
    log.end("reader", 0)
    assert outcome(log) is Outcome.SUCCEEDED


def test_success_precedes_a_failure_of_another_replica(new_log: NewJobLog) -> None:
    log = new_log(2).running().end("worker", 1, 1).end("worker", 0)

    assert outcome(log) is Outcome.SUCCEEDED


@pytest.mark.parametrize("state", [ReplicaState.LOST, ReplicaState.REMOVED, ReplicaState.REJECTED])
def test_only_exit_code_0_is_a_success(new_log: NewJobLog, state: ReplicaState) -> None:
    log = new_log(1, ps=0).running()
    log.see("worker", 0, state)

    assert outcome(log) is not Outcome.SUCCEEDED


@pytest.mark.parametrize("command", [(), ("sleep", "1000")])
def test_idle_replicas_are_terminated_even_if_replicas_are_kept(
    new_log: NewJobLog, command: tuple[str, ...]
) -> None:
    run = RunPolicy(clean_pod_policy=CleanPodPolicy.NONE)
    log = new_log(2, ps=0, others=("launcher",), framework=Framework.MPI, run=run)
    worker, launcher = log.job.roles
    quiet = msgspec.structs.replace(worker, template=Template(image="mpi", command=command))
    log.job = msgspec.structs.replace(log.job, roles=(quiet, launcher))

    log.running().end("launcher", 0).finish(Outcome.SUCCEEDED)

    assert [r.terminating for r in log.record.replicas if r.role == "worker"] == [not command] * 2


def test_the_reason_names_the_successful_replicas(new_log: NewJobLog) -> None:
    log = new_log(2, run=ALL).running().end("worker", 0).end("worker", 1)

    [finish] = decide(log.record, log.now)

    assert isinstance(finish, Finish)
    assert finish.event.reason.message == "all 2 replicas of worker exited with 0"
