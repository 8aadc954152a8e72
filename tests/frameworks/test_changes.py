"""Real frameworks when jobs grow, when a replica is killed, and when they are cancelled."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

import pytest
from framework_jobs import example, has_environment, processes_with, read_logs, running, when, when_logged

from muster import AsyncClient
from muster_rpc.v1 import job_pb2

if TYPE_CHECKING:
    from .conftest import Needs

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("frameworks"),
    pytest.mark.timeout(170),
]


def mpi(name: str, policy: str) -> str:
    """Return a job of two workers with a sleeping rank in each, which prints its pid first."""
    document = example("mpi/job.yaml", name=name).replace("processes: 2", "processes: 1")
    rank = f"""sh, -c, 'echo rank $$$$ {name}; exec sleep 300'"""
    document = document.replace("python, examples/frameworks/mpi/allreduce.py", rank)
    return re.sub(r"( +)(replicas: .*\n)", rf"\1\2\1restartPolicy: {policy}\n", document)


FOLLOWER = """
apiVersion: muster.dev/v1
kind: Job
metadata: {name: follower}
spec:
  framework: horovod
  elastic: {policy: none}
  roles:
    launcher:
      command: [sh, -c, 'until "$MUSTER_CONFIG/discover_hosts.sh" | tee /dev/stderr | grep -c : | grep -q "$UNTIL"; do sleep 0.1; done']
      env: {UNTIL: "3"}
    worker: {replicas: 2, min: 1, max: 3, image: horovod}
"""


async def test_host_discovery_follows_the_membership(muster: AsyncClient) -> None:
    (submitted,) = await muster.submit(FOLLOWER)
    await when_logged(muster, submitted.job_id, "follower-worker-0:1\nfollower-worker-1:1\n")

    await muster.scale("follower", 3)
    job = await muster.wait(submitted.job_id)

    assert job.status.phase == job_pb2.PHASE_SUCCEEDED, job.status
    assert "follower-worker-2:1" in await read_logs(muster, submitted.job_id)


async def test_a_cancelled_mpi_job_leaves_no_rank_behind(muster: AsyncClient, needs: Needs) -> None:
    needs("mpirun", "openmpi-bin")
    (submitted,) = await muster.submit(mpi("cancelled", "Never"))
    await when_logged(muster, submitted.job_id, "cancelled\nrank")

    await muster.cancel(submitted.job_id)
    job = await muster.wait(submitted.job_id)

    assert job.status.phase == job_pb2.PHASE_CANCELLED
    assert [pid for pid in ranks(await read_logs(muster, submitted.job_id)) if alive(pid)] == []
    assert processes_with(submitted.job_id) == []


async def test_a_killed_mpi_worker_ends_its_rank_and_restarts_the_gang(
    muster: AsyncClient, needs: Needs
) -> None:
    needs("mpirun", "openmpi-bin")
    (submitted,) = await muster.submit(mpi("killed", "OnFailure"))
    await when_logged(muster, submitted.job_id, "killed\nrank")
    first = ranks(await read_logs(muster, submitted.job_id))
    (still,) = [
        pid
        for pid in processes_with("sleep infinity")
        if has_environment(pid, "MUSTER_JOB=killed", "MUSTER_INDEX=1")
    ]

    os.kill(still, signal.SIGKILL)
    job = await when(muster, submitted.job_id, lambda job: job.status.attempt == 2 and len(running(job)) == 3)
    alive_still = [pid for pid in first if alive(pid)]
    await muster.cancel(submitted.job_id)
    await muster.wait(submitted.job_id)

    assert job.status.failures == 1
    assert alive_still == []


def ranks(logs: str) -> list[int]:
    """Return the pids that the ranks printed."""
    return [int(line.split()[1]) for line in logs.splitlines() if line.startswith("rank ")]


def alive(pid: int) -> bool:
    """Return whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
