"""What is told of jobs and what runs of them are the same: through starts, restarts, changes of size, suspensions, cancels and ends.

Nothing is timed here (``make bench ARGS="--only status_lag"`` does that): status always comes to agree with the processes, and on its way
there it is never ahead of them and never goes back.
"""

from __future__ import annotations

import asyncio

import pytest
from documents import job
from harness import Connect, Launcher
from replica_witness import Witness, witnessed

from muster import AsyncClient
from muster_local import LocalSystem
from muster_rpc.v1 import job_pb2

TRACKER = "status-tracker"
CROWD = 8


@pytest.mark.timeout(240)
@pytest.mark.parametrize("dies", [None, TRACKER, "pod-launcher"])
async def test_status_comes_to_say_what_runs_and_is_never_ahead_of_it(
    launch: Launcher, connect: Connect, dies: str | None
) -> None:
    async with (
        launch(nodes=("n1:cpu=16",)) as system,
        connect(system) as muster,
        witnessed(system, muster) as witness,
        asyncio.TaskGroup() as tasks,
    ):
        long, fails = await begin(muster, witness, tasks)
        crowd = [
            tasks.create_task(pass_by(muster, witness, f"short-{number}", seconds=0.3 * number))
            for number in range(CROWD)
        ]
        if dies is not None:
            system.kill(dies)
        await change(muster, witness, long)
        await end(system, muster, witness, long, dies)
        failed = await muster.wait(fails)
        await asyncio.gather(*crowd)

    assert (failed.status.phase, failed.status.failures) == (job_pb2.PHASE_FAILED, 2)
    assert len([run for run in witness.begun if run.job_id == fails]) == 3
    assert witness.looks > CROWD


async def begin(muster: AsyncClient, witness: Witness, tasks: asyncio.TaskGroup) -> tuple[str, str]:
    """A job that stays and one that fails again and again, both followed."""
    documents = (
        job("long", "sleep", "600", replicas=3, minimum=1, maximum=6),
        job("fails", "sh", "-c", "sleep 0.3; exit 3", restart_policy="OnFailure", run={"backoffLimit": 2}),
    )
    ids: list[str] = []
    for document in documents:
        (submitted,) = await muster.submit(document)
        ids.append(submitted.job_id)
        tasks.create_task(witness.follow(submitted.job_id))
    await witness.agrees(ids[0], running=3)
    return ids[0], ids[1]


async def change(muster: AsyncClient, witness: Witness, job_id: str) -> None:
    """Restart one replica, then all; grow, shrink, hold and go on."""
    await muster.restart(job_id, replica="worker-1")
    await runs_anew(witness, job_id, attempt=1, restart=1)
    await muster.restart(job_id)
    await runs_anew(witness, job_id, attempt=2, restart=0)
    for size in (6, 2, 4):
        await muster.scale(job_id, size, role="worker")
        await witness.agrees(job_id, running=size)
    await muster.suspend(job_id)
    await witness.agrees(job_id, running=0)
    await muster.resume(job_id)
    await witness.agrees(job_id, running=3)


async def end(
    system: LocalSystem, muster: AsyncClient, witness: Witness, job_id: str, dies: str | None
) -> None:
    """Cancel the job, and kill whoever is to die just then."""
    await muster.cancel(job_id)
    if dies is not None:
        system.kill(dies)
    seen = await witness.agrees(job_id, running=0)
    assert seen.status.phase == job_pb2.PHASE_CANCELLED


async def runs_anew(witness: Witness, job_id: str, *, attempt: int, restart: int) -> None:
    """Return when all three run, worker-1 with these numbers."""
    async with asyncio.timeout(60):
        while True:
            seen = await witness.agrees(job_id, running=3)
            runs = {(one.attempt, one.index, one.restart) for one in seen.status.replicas}
            if (attempt, 1, restart) in runs:
                return
            await asyncio.sleep(0.05)


async def pass_by(muster: AsyncClient, witness: Witness, name: str, *, seconds: float) -> None:
    """A job that runs for so long and succeeds."""
    (submitted,) = await muster.submit(job(name, "sleep", f"{seconds:g}", replicas=2))
    await witness.follow(submitted.job_id)
    ended = await witness.agrees(submitted.job_id, running=0)
    assert ended.status.phase == job_pb2.PHASE_SUCCEEDED
