"""Explanations of the running system: why a job waits, what would help, and what an unavailable scheduler recorded."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from documents import job
from harness import Connect, Launcher, cancel, start, submit, wait_for, wait_for_phase

from muster import AsyncClient
from muster_local import LocalSystem
from muster_rpc.v1 import explanation_pb2, job_pb2
from muster_rpc.v1.explanation_pb2 import Explanation

NODES = ("n1:cpu=16,gpu=4", "n2:cpu=16,gpu=4")


def gpus(name: str, replicas: int, *, minimum: int | None = None, **worker: object) -> str:
    """Return a job with one GPU for each replica."""
    worker["resources"] = {"cpu": "100m", "gpu": 1}
    return job(name, replicas=replicas, minimum=minimum or replicas, worker=worker)


async def waiting(muster: AsyncClient, document: str) -> tuple[str, Explanation]:
    """Submit a job that has to wait; return its id and its explanation."""
    job_id = await submit(muster, document)
    await wait_for(muster, job_id, lambda job: bool(job.status.reason.numbers))
    return job_id, await muster.explain(job_id)


async def command(system: LocalSystem, *arguments: str) -> str:
    """Return the output of the ``muster`` command."""
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).parent / "muster",
        *arguments,
        env={**os.environ, "MUSTER_SERVER": system.address},
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(30):
        out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def test_a_remedy_of_an_explanation_lets_the_job_start(launch: Launcher, connect: Connect) -> None:
    async with launch(nodes=NODES) as system, connect(system) as muster:
        elastic = await start(muster, gpus("elastic", 8, minimum=2))
        running = await muster.explain("elastic")
        (worker,) = running.roles
        assert (worker.size, worker.min, worker.surplus, worker.can_add) == (8, 2, 6, 0)

        picky, explanation = await waiting(muster, gpus("picky", 1, nodeSelector={"disk": "ssd"}))
        assert explanation.reason.code == "NoMatchingNode"
        assert [(one.constraint, one.nodes) for one in explanation.filtered] == [
            (explanation_pb2.CONSTRAINT_NODE_SELECTOR, 2)
        ]
        assert explanation.nodes == 2

        big, explanation = await waiting(muster, gpus("big", 3))
        assert (explanation.name, explanation.queue, explanation.position, list(explanation.ahead)) == (
            "big",
            "default",
            2,
            ["picky"],
        )
        assert [(one.resource, one.needed, one.free) for one in explanation.missing] == [("gpu", 3000, 0)]
        assert explanation.nearest_miss == "short of 3 GPU: 0 of 3 needed are free, on any node"
        assert explanation.feasible_when_empty
        assert explanation.expected_from.startswith("unknown: the job starts as soon as it fits")
        assert any(
            one.message.startswith("would start now if elastic shrank by 3 workers")
            for one in explanation.remedies
        )

        page = await command(system, "explain", "big")
        assert page.startswith("big is Queued: short of 3 GPU")
        nodes = (await command(system, "top", "node", "-d")).splitlines()
        assert nodes[-1].startswith("Allocated on 2 nodes: GPU 8/8 (100.0 %)")
        assert sum("elastic-worker-" in line for line in nodes) == 8
        jobs = (await command(system, "top", "job")).splitlines()
        assert jobs[-1] == "3 jobs: 8 of 12 GPUs allocated, 8 of 12 replicas running"

        await muster.scale("elastic", 5)
        await wait_for_phase(muster, big, job_pb2.PHASE_RUNNING)
        await cancel(muster, picky, big, elastic)
        ended = await muster.explain(big)
        assert (ended.reason.code, list(ended.roles)) == ("Cancelled", [])


async def test_the_explanation_of_a_failed_job_names_the_replica_and_its_logs(
    launch: Launcher, connect: Connect
) -> None:
    async with launch() as system, connect(system) as muster:
        await muster.wait(await submit(muster, job("doomed", "sh", "-c", "exit 3")))
        explanation = await muster.explain("doomed")
        assert explanation.phase == job_pb2.PHASE_FAILED
        assert "doomed-worker-0 on n1 exited with 3" in explanation.notes[0]
        assert [one.message for one in explanation.remedies] == [
            "read the logs of its replicas: muster logs doomed"
        ]


async def test_without_the_scheduler_the_last_recorded_reason_is_shown_with_its_time(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=NODES) as system, connect(system) as muster:
        job_id, explanation = await waiting(muster, gpus("big", 9))
        assert not explanation.HasField("recorded_at")
        scheduler = system.services["scheduler"]
        os.kill(scheduler, signal.SIGSTOP)
        try:
            then = await muster.explain(job_id)
        finally:
            os.kill(scheduler, signal.SIGCONT)
        assert then.reason == explanation.reason
        assert then.recorded_at.ToMicroseconds() > 0
        assert list(then.notes) == ["the scheduler is unavailable: this is the last recorded reason"]
        async with asyncio.timeout(30):
            while (await muster.explain(job_id)).HasField("recorded_at"):
                await asyncio.sleep(0.2)
        await cancel(muster, job_id)
