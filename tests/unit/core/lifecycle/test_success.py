"""When a job has succeeded, by framework: who must have exited with 0, and who need not."""

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
    from .conftest import Stories, Story

ALL = RunPolicy(success_policy=SuccessPolicy.ALL_WORKERS)


def outcome(story: Story) -> Outcome | None:
    """How the job ends now, if it does."""
    match decide(story.record, story.now):
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
def test_the_leader_alone_decides_where_there_is_one(
    story: Stories, framework: Framework, leader: str
) -> None:
    told = story(2, ps=0, others=(leader,), framework=framework).running()

    told.end("worker", 0).end("worker", 1)
    assert outcome(told) is None
    told.end(leader, 0)
    assert outcome(told) is Outcome.SUCCEEDED


def test_a_leader_ends_the_job_while_its_workers_still_run(story: Stories) -> None:
    told = story(2, others=("chief",)).running().end("chief", 0)

    assert outcome(told) is Outcome.SUCCEEDED


def test_tensorflow_without_a_chief_succeeds_with_worker_0(story: Stories) -> None:
    told = story(3).running()

    told.end("worker", 1)
    assert outcome(told) is None
    told.end("worker", 0)
    assert outcome(told) is Outcome.SUCCEEDED


@pytest.mark.parametrize("others", [(), ("evaluator",)])
def test_under_all_workers_worker_0_does_not_suffice(story: Stories, others: tuple[str, ...]) -> None:
    told = story(2, others=others, run=ALL).running()

    told.end("worker", 0)
    assert outcome(told) is None
    told.end("worker", 1)
    assert outcome(told) is Outcome.SUCCEEDED


def test_a_worker_that_was_removed_is_not_waited_for(story: Stories) -> None:
    told = story(2, most=4, run=ALL).running()
    told.resize(remove=(("worker", 1),))

    told.end("worker", 0)

    assert outcome(told) is Outcome.SUCCEEDED


@pytest.mark.parametrize(
    "framework", [Framework.PYTORCH, Framework.XGBOOST, Framework.PADDLE, Framework.JAX, Framework.PLAIN]
)
def test_without_a_leader_every_worker_counts_and_no_parameter_server(
    story: Stories, framework: Framework
) -> None:
    told = story(2, framework=framework).running()

    told.end("worker", 0)
    assert outcome(told) is None
    told.end("worker", 1)
    assert outcome(told) is Outcome.SUCCEEDED


def test_elastic_pytorch_succeeds_with_any_worker(story: Stories) -> None:
    told = story(2, most=4, ps=0, framework=Framework.PYTORCH).running().end("worker", 1)

    assert outcome(told) is Outcome.SUCCEEDED


def test_pytorch_that_meets_by_rendezvous_succeeds_with_any_worker_at_one_size(story: Stories) -> None:
    options = FrameworkOptions(rendezvous=Rendezvous())
    told = story(2, ps=0, framework=Framework.PYTORCH, options=options).running().end("worker", 1)

    assert outcome(told) is Outcome.SUCCEEDED


def test_mxnet_without_a_scheduler_waits_for_no_server(story: Stories) -> None:
    told = story(2, ps=0, others=("server",), framework=Framework.MXNET).running().end("worker", 0)

    assert outcome(told) is None
    told.end("worker", 1)
    assert outcome(told) is Outcome.SUCCEEDED


def test_mxnet_succeeds_with_its_sole_worker(story: Stories) -> None:
    told = story(1, ps=0, framework=Framework.MXNET).running().end("worker", 0)

    assert outcome(told) is Outcome.SUCCEEDED


def test_a_job_of_parameter_servers_alone_waits_for_all_of_them(story: Stories) -> None:
    told = story(0, ps=2, framework=Framework.PLAIN).running()

    told.end("ps", 0)
    assert outcome(told) is None
    told.end("ps", 1)
    assert outcome(told) is Outcome.SUCCEEDED


def test_plain_roles_all_count(story: Stories) -> None:
    told = story(1, ps=0, others=("reader",), framework=Framework.PLAIN).running().end("worker", 0)

    assert outcome(told) is None
    told.end("reader", 0)
    assert outcome(told) is Outcome.SUCCEEDED


def test_success_comes_before_a_failure_elsewhere(story: Stories) -> None:
    told = story(2).running().end("worker", 1, 1).end("worker", 0)

    assert outcome(told) is Outcome.SUCCEEDED


@pytest.mark.parametrize("state", [ReplicaState.LOST, ReplicaState.REMOVED, ReplicaState.REJECTED])
def test_only_an_exit_with_0_is_a_success(story: Stories, state: ReplicaState) -> None:
    told = story(1, ps=0).running()
    told.see("worker", 0, state)

    assert outcome(told) is not Outcome.SUCCEEDED


@pytest.mark.parametrize("command", [(), ("sleep", "1000")])
def test_where_replicas_are_kept_those_go_nevertheless_that_only_kept_still(
    story: Stories, command: tuple[str, ...]
) -> None:
    run = RunPolicy(clean_pod_policy=CleanPodPolicy.NONE)
    told = story(2, ps=0, others=("launcher",), framework=Framework.MPI, run=run)
    worker, launcher = told.job.roles
    quiet = msgspec.structs.replace(worker, template=Template(image="mpi", command=command))
    told.job = msgspec.structs.replace(told.job, roles=(quiet, launcher))

    told.running().end("launcher", 0).finish(Outcome.SUCCEEDED)

    assert [r.leaving for r in told.record.replicas if r.role == "worker"] == [not command] * 2


def test_the_reason_says_who_succeeded(story: Stories) -> None:
    told = story(2, run=ALL).running().end("worker", 0).end("worker", 1)

    [finish] = decide(told.record, told.now)

    assert isinstance(finish, Finish)
    assert finish.event.reason.message == "all 2 replicas of worker exited with 0"
