"""The status of jobs and their processes agree: through starts, restarts, resizes, suspensions, cancellations and ends.

The tests measure no times (``make bench ARGS="--only status_lag"`` does): the status converges to the processes, is never ahead
of them and never goes back.
"""

from __future__ import annotations

import asyncio

import pytest
from documents import job
from harness import Connect, Launcher
from process_monitor import ProcessMonitor, monitored

from muster import AsyncClient
from muster_local import LocalSystem
from muster_rpc.v1 import job_pb2

TRACKER = "status-tracker"
CROWD = 8


@pytest.mark.timeout(240)
@pytest.mark.parametrize("victim", [None, TRACKER, "pod-launcher"])
async def test_status_converges_to_the_processes_and_is_never_ahead_of_them(
    launch: Launcher, connect: Connect, victim: str | None
) -> None:
    async with (
        launch(nodes=("n1:cpu=16",)) as system,
        connect(system) as muster,
        monitored(system, muster) as monitor,
        asyncio.TaskGroup() as tasks,
    ):
        long, fails = await start_jobs(muster, monitor, tasks)
        crowd = [
            tasks.create_task(run_short_job(muster, monitor, f"short-{number}", seconds=0.3 * number))
            for number in range(CROWD)
        ]
        if victim is not None:
            system.kill(victim)
        await restart_and_resize(muster, monitor, long)
        await cancel_job(system, muster, monitor, long, victim)
        failed = await muster.wait(fails)
        await asyncio.gather(*crowd)

    assert (failed.status.phase, failed.status.failures) == (job_pb2.PHASE_FAILED, 2)
    assert len([run for run in monitor.begun if run.job_id == fails]) == 3
    assert monitor.looks > CROWD


async def start_jobs(
    muster: AsyncClient, monitor: ProcessMonitor, tasks: asyncio.TaskGroup
) -> tuple[str, str]:
    """Start and follow a job that continues and one that fails repeatedly."""
    documents = (
        job("long", "sleep", "600", replicas=3, minimum=1, maximum=6),
        job("fails", "sh", "-c", "sleep 0.3; exit 3", restart_policy="OnFailure", run={"backoffLimit": 2}),
    )
    ids: list[str] = []
    for document in documents:
        (submitted,) = await muster.submit(document)
        ids.append(submitted.job_id)
        tasks.create_task(monitor.follow(submitted.job_id))
    await monitor.agrees(ids[0], running=3)
    return ids[0], ids[1]


async def restart_and_resize(muster: AsyncClient, monitor: ProcessMonitor, job_id: str) -> None:
    """Restart one replica, then all; scale up and down, suspend and resume."""
    await muster.restart(job_id, replica="worker-1")
    await wait_for_restart(monitor, job_id, attempt=1, restart=1)
    await muster.restart(job_id)
    await wait_for_restart(monitor, job_id, attempt=2, restart=0)
    for size in (6, 2, 4):
        await muster.scale(job_id, size, role="worker")
        await monitor.agrees(job_id, running=size)
    await muster.suspend(job_id)
    await monitor.agrees(job_id, running=0)
    await muster.resume(job_id)
    await monitor.agrees(job_id, running=3)


async def cancel_job(
    system: LocalSystem, muster: AsyncClient, monitor: ProcessMonitor, job_id: str, victim: str | None
) -> None:
    """Cancel the job and kill the victim at the same time."""
    await muster.cancel(job_id)
    if victim is not None:
        system.kill(victim)
    seen = await monitor.agrees(job_id, running=0)
    assert seen.status.phase == job_pb2.PHASE_CANCELLED


async def wait_for_restart(monitor: ProcessMonitor, job_id: str, *, attempt: int, restart: int) -> None:
    """Wait until all three replicas run, worker-1 with this attempt and restart."""
    async with asyncio.timeout(60):
        while True:
            seen = await monitor.agrees(job_id, running=3)
            runs = {(one.attempt, one.index, one.restart) for one in seen.status.replicas}
            if (attempt, 1, restart) in runs:
                return
            await asyncio.sleep(0.05)


async def run_short_job(muster: AsyncClient, monitor: ProcessMonitor, name: str, *, seconds: float) -> None:
    """Run a job for some seconds, until it succeeds."""
    (submitted,) = await muster.submit(job(name, "sleep", f"{seconds:g}", replicas=2))
    await monitor.follow(submitted.job_id)
    ended = await monitor.agrees(submitted.job_id, running=0)
    assert ended.status.phase == job_pb2.PHASE_SUCCEEDED
