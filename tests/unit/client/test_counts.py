"""The number of replicas of a job that run or have succeeded."""

from __future__ import annotations

from muster._cli.formatting import running_of_all
from muster_rpc.v1 import job_pb2


def of_an_mpi_job(phase: job_pb2.Phase.ValueType, *, code: int) -> job_pb2.Job:
    """A job whose launcher has ended, and whose workers were stopped for that."""
    job = job_pb2.Job(name="mpi")
    job.status.phase = phase
    job.status.attempt = 1
    launcher = job.status.replicas.add(role="launcher", attempt=1, exit_code=code)
    launcher.ended_at.seconds = 100
    for index in range(2):
        worker = job.status.replicas.add(role="worker", index=index, attempt=1, signal=15, terminating=True)
        worker.ended_at.seconds = 101
    return job


def test_of_a_job_that_succeeded_those_count_that_ended_by_themselves() -> None:
    assert running_of_all(of_an_mpi_job(job_pb2.PHASE_SUCCEEDED, code=0)) == "1/1"


def test_those_that_go_on_after_the_success_do_not_count() -> None:
    job = of_an_mpi_job(job_pb2.PHASE_SUCCEEDED, code=0)
    job.status.replicas.add(role="worker", index=2, attempt=1, state=job_pb2.REPLICA_STATE_RUNNING)
    assert running_of_all(job) == "1/1"


def test_of_a_job_that_failed_all_count() -> None:
    assert running_of_all(of_an_mpi_job(job_pb2.PHASE_FAILED, code=1)) == "0/3"
