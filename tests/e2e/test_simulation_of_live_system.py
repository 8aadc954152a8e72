"""``muster simulate --from-live`` on a running system: its jobs, nodes and queues, decided as the system decides."""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial
from pathlib import Path

from documents import job
from harness import Connect, Launcher, start, submit, wait_for_reason

from muster_local import LocalSystem

QUEUES = """
{apiVersion: muster.dev/v1, kind: Queue, metadata: {name: bounded}, spec: {limit: {cpu: 2}}}
---
{apiVersion: muster.dev/v1, kind: Queue, metadata: {name: open}}
"""
MUSTER = Path(sys.executable).with_name("muster")
TIMEOUT_S = 60
HOUR_S = 3600

Times = dict[str, dict[str, float]]
"""When each job would be placed and finished, in seconds from now, by job id."""


async def simulated(system: LocalSystem, *arguments: str) -> Times:
    """Simulate the system under its queues."""
    process = await asyncio.create_subprocess_exec(
        MUSTER,
        *("simulate", "--from-live", "--server", system.address),
        *("--policy", "current", "--assume", "1h", "-o", "json", *arguments),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(TIMEOUT_S):
        output, _ = await process.communicate()
    assert process.returncode == 0
    (result,) = json.loads(output)["results"]
    return {one["job"]: one for one in result["perJob"]}


async def test_present_jobs_are_simulated_with_the_queues_in_force(
    launch: Launcher, connect: Connect
) -> None:
    bounded, unbounded = partial(job, cpu=1, queue="bounded"), partial(job, cpu=1, queue="open")
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        await muster.apply_queues(QUEUES)
        await muster.wait(await submit(muster, unbounded("done", "true")))
        suspended = await submit(muster, unbounded("suspended"))
        await muster.suspend(suspended)
        runs = await start(muster, bounded("runs", replicas=2))
        limited = await submit(muster, bounded("limited"))
        waits = await submit(muster, unbounded("waits", replicas=3))
        await wait_for_reason(muster, limited, "QueueLimit")
        await wait_for_reason(muster, waits, "InsufficientResources")

        now = await simulated(system)
        larger = await simulated(system, "--cluster", "1x0gpu-8cpu-64gib")

    assert set(now) == set(larger) == {runs, limited, waits}
    # On the present cluster both wait for the running job: one for capacity, one for its queue's limit.
    ended = now[runs]["finished"]
    assert HOUR_S / 2 < ended <= HOUR_S + 10
    assert now[limited]["placed"] >= ended
    assert now[waits]["placed"] >= ended
    # With more capacity the first starts, and the second does not.
    assert larger[waits]["placed"] < HOUR_S / 2
    assert larger[limited]["placed"] >= larger[runs]["finished"]
