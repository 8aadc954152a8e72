"""``muster simulate --from-live``, asked of a system that runs: its jobs, its nodes and its queues, as it would decide itself."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import cast

from harness import Connect, Launcher
from watching import until, when

from muster import AsyncClient
from muster_local import LocalSystem
from muster_rpc.v1 import job_pb2

QUEUES = """
{apiVersion: muster.dev/v1, kind: Queue, metadata: {name: bounded}, spec: {limit: {cpu: 2}}}
---
{apiVersion: muster.dev/v1, kind: Queue, metadata: {name: open}}
"""
MUSTER = Path(sys.executable).with_name("muster")
PATIENCE_S = 60
HOUR_S = 3600


def gang(name: str, workers: int, *command: str, queue: str = "open") -> str:
    """A job of so many workers with a CPU each."""
    worker = {"replicas": workers, "command": list(command), "resources": {"cpu": 1}, "gracePeriod": 1}
    return json.dumps(
        {
            "apiVersion": "muster.dev/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"queue": queue, "roles": {"worker": worker}},
        }
    )


async def submitted(muster: AsyncClient, document: str) -> str:
    """The job's id."""
    (one,) = await muster.submit(document)
    return one.job_id


async def simulated(system: LocalSystem, *words: str) -> dict[str, dict[str, float | None]]:
    """What would become of each job under the queues in force, by its id."""
    process = await asyncio.create_subprocess_exec(
        MUSTER,
        *("simulate", "--from-live", "--server", system.address),
        *("--policy", "current", "--assume", "1h", "-o", "json", *words),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_S):
        said, _ = await process.communicate()
    assert process.returncode == 0
    (result,) = json.loads(said)["results"]
    return {str(one["job"]): cast("dict[str, float | None]", one) for one in result["perJob"]}


async def test_what_runs_and_waits_now_is_played_on_by_the_rules_in_force(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        await muster.apply_queues(QUEUES)
        done = await submitted(muster, gang("quick", 1, "true"))
        await muster.wait(done)
        held = await submitted(muster, gang("held", 1, "sleep", "600"))
        await muster.suspend(held)
        runs = await submitted(muster, gang("runs", 2, "sleep", "600", queue="bounded"))
        await until(muster, runs, job_pb2.PHASE_RUNNING)
        limited = await submitted(muster, gang("limited", 1, "sleep", "600", queue="bounded"))
        waits = await submitted(muster, gang("waits", 3, "sleep", "600"))
        for one, code in ((limited, "QueueLimit"), (waits, "InsufficientResources")):
            await when(muster, one, lambda job, code=code: job.status.reason.code == code)

        now = await simulated(system)
        larger = await simulated(system, "--cluster", "1x0gpu-8cpu-64gib")

    assert set(now) == set(larger) == {runs, limited, waits}
    # On the present cluster both wait for the running job: one for capacity, one for its queue's limit.
    ended = finished(now, runs)
    assert HOUR_S / 2 < ended <= HOUR_S + 10
    assert placed(now, limited) >= ended
    assert placed(now, waits) >= ended
    # With more capacity the first starts, and the second does not.
    assert placed(larger, waits) < HOUR_S / 2
    assert placed(larger, limited) >= finished(larger, runs)


def placed(said: dict[str, dict[str, float | None]], job_id: str) -> float:
    """When the job would be placed, in seconds from now."""
    at = said[job_id]["placed"]
    assert at is not None
    return at


def finished(said: dict[str, dict[str, float | None]], job_id: str) -> float:
    """When the job would end, in seconds from now."""
    at = said[job_id]["finished"]
    assert at is not None
    return at
