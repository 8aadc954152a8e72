"""The elastic scenarios through the six services, with replicas that are processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest
import pytest_asyncio
from elastic_pool import NODES, QUEUES, Configs, ElasticPool, gang_of
from elastic_scenarios import SCENARIOS
from harness import Launcher

from muster import AsyncClient, Job

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("scenarios"),
    pytest.mark.slow,
]

SLOW_EXIT = {"command": ["sh", "-c", "trap '' TERM; while true; do sleep 0.2; done"], "gracePeriod": 4}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ElasticPool]:
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
            """Return each ``TF_CONFIG`` that is in the output of a worker."""
            known: Configs = {}
            for one in gang_of(job):
                if one.role == "worker":
                    replicas = [f"worker-{one.index}"]
                    chunks = [chunk.data async for chunk in muster.logs(job.job_id, replicas=replicas)]
                    lines = b"".join(chunks).decode().splitlines()
                    known.update((one.index, json.loads(line)) for line in lines if line.startswith("{"))
            return known

        yield ElasticPool(muster=muster, configs=configs, slow_exit=SLOW_EXIT)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_with_processes(pool: ElasticPool, scenario: Callable[[ElasticPool], Awaitable[None]]) -> None:
    await scenario(pool)
