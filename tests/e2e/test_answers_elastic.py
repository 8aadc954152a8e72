"""The answers to hold, 10 to 21, through the six services, with replicas that are processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest
import pytest_asyncio
from elastic_answers import ANSWERS
from elastic_pool import NODES, QUEUES, Configs, Pool, members
from harness import Launcher

from muster import AsyncClient, Job

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("answers"), pytest.mark.slow]

STUBBORN = {
    "command": ["sh", "-c", "trap '' TERM; while true; do sleep 0.2; done"],
    "gracePeriod": 4,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Pool]:
    launch = Launcher(tmp_path_factory.mktemp("elastic"))
    specs = tuple(
        f"{node.name}:cpu=16,gpu={node.gpus}," + ",".join(f"label.{k}={v}" for k, v in node.labels.items())
        for node in NODES
    )
    async with launch(nodes=specs) as system, AsyncClient(system.address) as muster:
        await muster.apply_queues(QUEUES)
        async with asyncio.timeout(30):
            while len([node async for node in muster.nodes()]) < len(NODES):
                await asyncio.sleep(0.1)

        async def configs(job: Job) -> Configs:
            return await configs_logged(muster, job)

        yield Pool(muster=muster, configs=configs, stubborn=STUBBORN)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.__name__)
async def test_on_this_machine(pool: Pool, answer: Callable[[Pool], Awaitable[None]]) -> None:
    await answer(pool)


async def configs_logged(muster: AsyncClient, job: Job) -> Configs:
    """What the workers have said that they were told."""
    told: Configs = {}
    for one in members(job):
        if one.role == "worker":
            chunks = [chunk.data async for chunk in muster.logs(job.job_id, replicas=[f"worker-{one.index}"])]
            lines = b"".join(chunks).decode().splitlines()
            told.update((one.index, json.loads(line)) for line in lines if line.startswith("{"))
    return told
