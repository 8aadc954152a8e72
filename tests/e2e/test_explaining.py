"""Why a job waits, and what helps, asked of the running system; and what is said when nobody can be asked."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from documents import job
from harness import Connect, Launcher
from watching import until, when

from muster import AsyncClient
from muster_local import LocalSystem
from muster_rpc.v1 import explanation_pb2, job_pb2
from muster_rpc.v1.explanation_pb2 import Explanation

NODES = ("n1:cpu=16,gpu=4", "n2:cpu=16,gpu=4")


def gpus(name: str, replicas: int, *, minimum: int | None = None, picky: bool = False) -> str:
    """A job of replicas that sleep, with one GPU each."""
    document = json.loads(job(name, "sleep", "600", replicas=replicas, minimum=minimum or replicas))
    worker = document["spec"]["roles"]["worker"]
    worker["resources"]["gpu"] = 1
    if picky:
        worker["nodeSelector"] = {"disk": "ssd"}
    return json.dumps(document)


async def waiting(muster: AsyncClient, document: str) -> tuple[str, Explanation]:
    """Submit a job that has to wait: its id, and why once it was told."""
    (submitted,) = await muster.submit(document)
    await when(muster, submitted.job_id, lambda job: bool(job.status.reason.numbers))
    return submitted.job_id, await muster.explain(submitted.job_id)


async def command(system: LocalSystem, *arguments: str) -> str:
    """What the ``muster`` command prints."""
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


async def test_what_is_said_to_help_helps(launch: Launcher, connect: Connect) -> None:
    async with launch(nodes=NODES) as system, connect(system) as muster:
        (elastic,) = await muster.submit(gpus("elastic", 8, minimum=2))
        await until(muster, elastic.job_id, job_pb2.PHASE_RUNNING)
        running = await muster.explain("elastic")
        (worker,) = running.roles
        assert (worker.size, worker.min, worker.surplus, worker.can_add) == (8, 2, 6, 0)

        picky, said = await waiting(muster, gpus("picky", 1, picky=True))
        assert said.reason.code == "NoMatchingNode"
        assert [(one.constraint, one.nodes) for one in said.filtered] == [
            (explanation_pb2.CONSTRAINT_NODE_SELECTOR, 2)
        ]
        assert said.nodes == 2

        big, said = await waiting(muster, gpus("big", 3))
        assert (said.name, said.queue, said.position, list(said.ahead)) == ("big", "default", 2, ["picky"])
        assert [(one.resource, one.needed, one.free) for one in said.missing] == [("gpu", 3000, 0)]
        assert said.nearest_miss == "short of 3 GPU: 0 of 3 needed are free, on any node"
        assert said.feasible_when_empty
        assert said.expected_from.startswith("unknown: the job starts as soon as it fits")
        assert any(
            one.message.startswith("would start now if elastic shrank by 3 workers") for one in said.remedies
        )

        page = await command(system, "explain", "big")
        assert page.startswith("big is Queued: short of 3 GPU")
        nodes = (await command(system, "top", "node", "-d")).splitlines()
        assert nodes[-1].startswith("Allocated on 2 nodes: GPU 8/8 (100.0 %)")
        assert sum("elastic-worker-" in line for line in nodes) == 8
        jobs = (await command(system, "top", "job")).splitlines()
        assert jobs[-1] == "3 jobs: 8 of 12 GPUs allocated, 8 of 12 replicas running"

        await muster.scale("elastic", 5)
        await until(muster, big, job_pb2.PHASE_RUNNING)
        for job_id in (picky, big, elastic.job_id):
            await muster.cancel(job_id)
            await muster.wait(job_id)
        ended = await muster.explain(big)
        assert (ended.reason.code, list(ended.roles)) == ("Cancelled", [])


async def test_a_failed_job_says_which_replica_failed_and_where_to_look(
    launch: Launcher, connect: Connect
) -> None:
    async with launch() as system, connect(system) as muster:
        (submitted,) = await muster.submit(job("doomed", "sh", "-c", "exit 3"))
        await muster.wait(submitted.job_id)
        said = await muster.explain("doomed")
        assert said.phase == job_pb2.PHASE_FAILED
        assert "doomed-worker-0 on n1 exited with 3" in said.notes[0]
        assert [one.message for one in said.remedies] == ["read the logs of its replicas: muster logs doomed"]


async def test_while_the_scheduler_is_away_its_last_word_is_told_with_its_time(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=NODES) as system, connect(system) as muster:
        job_id, said = await waiting(muster, gpus("big", 9))
        assert not said.HasField("recorded_at")
        scheduler = system.services["scheduler"]
        os.kill(scheduler, signal.SIGSTOP)
        try:
            then = await muster.explain(job_id)
        finally:
            os.kill(scheduler, signal.SIGCONT)
        assert then.reason == said.reason
        assert then.recorded_at.ToMicroseconds() > 0
        assert list(then.notes) == ["the scheduler is unavailable: this is the last recorded reason"]
        async with asyncio.timeout(30):
            while (await muster.explain(job_id)).HasField("recorded_at"):
                await asyncio.sleep(0.2)
        await muster.cancel(job_id)
        await muster.wait(job_id)
