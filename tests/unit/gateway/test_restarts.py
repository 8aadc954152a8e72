"""What may be started again by hand, and what is answered where it may not."""

from __future__ import annotations

import pytest

from muster_core.events import Command
from muster_gateway.restarts import CannotRestart, restart_command
from muster_rpc.v1 import job_pb2

RUNNING = job_pb2.REPLICA_STATE_RUNNING


def job(phase: job_pb2.Phase.ValueType, *replicas: job_pb2.Replica) -> job_pb2.Job:
    status = job_pb2.JobStatus(phase=phase, attempt=2, replicas=replicas)
    return job_pb2.Job(job_id="j-1", name="demo", status=status)


def replica(
    index: int, state: job_pb2.ReplicaState.ValueType = RUNNING, *, attempt: int = 2, leaving: bool = False
) -> job_pb2.Replica:
    return job_pb2.Replica(role="worker", index=index, attempt=attempt, state=state, leaving=leaving)


def test_without_a_replica_it_is_the_whole_gang():
    command = restart_command(job(job_pb2.PHASE_RUNNING, replica(0)), "", "r-1")

    assert (command.command, command.request_id) == (Command.RESTART, "r-1")
    assert (command.role, command.target) == ("", None)


@pytest.mark.parametrize("name", ["worker-1", "demo-worker-1"])
def test_a_replica_is_known_by_its_short_name_and_by_its_whole_one(name: str):
    command = restart_command(job(job_pb2.PHASE_RUNNING, replica(0), replica(1)), name, "r-1")

    assert (command.role, command.target) == ("worker", 1)


@pytest.mark.parametrize(
    "phase", [job_pb2.PHASE_QUEUED, job_pb2.PHASE_SUSPENDED, job_pb2.PHASE_RESTARTING, job_pb2.PHASE_EVICTED]
)
def test_a_job_that_has_no_room_has_nothing_to_start_again(phase: job_pb2.Phase.ValueType):
    with pytest.raises(CannotRestart, match="job demo has nothing to start again: it is"):
        restart_command(job(phase, replica(0)), "", "r-1")


@pytest.mark.parametrize("other", [replica(7), replica(1, attempt=1), replica(1, leaving=True)])
def test_a_replica_that_is_no_member_is_not_there(other: job_pb2.Replica):
    with pytest.raises(CannotRestart, match="job demo has no replica worker-1 now"):
        restart_command(job(job_pb2.PHASE_RUNNING, replica(0), other), "worker-1", "r-1")


def test_a_replica_that_has_ended_is_not_started_again():
    gone = replica(1, job_pb2.REPLICA_STATE_EXITED)
    with pytest.raises(CannotRestart, match="replica worker-1 of job demo does not run: it is exited"):
        restart_command(job(job_pb2.PHASE_RUNNING, gone), "worker-1", "r-1")
