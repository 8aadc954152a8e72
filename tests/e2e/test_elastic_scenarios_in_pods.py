"""The elastic scenarios through the six services, with replicas that are pods of simulated nodes."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from secrets import token_hex

import msgspec
import pytest
import pytest_asyncio
from elastic_pool import NODES, QUEUES, Configs, ElasticPool, indices
from elastic_scenarios import SCENARIOS

from muster import AsyncClient, Job
from muster_local import LocalOptions, LocalSystem
from muster_testing.cluster import Cluster
from muster_testing.cluster.fixtures import cluster, cluster_tools

__all__ = ["cluster", "cluster_tools"]

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("cluster"), pytest.mark.slow]

SLOW_EXIT = {"annotations": {"kwok.muster.dev/takes-to-end": "4s"}, "gracePeriod": 10}
_LOG_TAIL = 20_000


class _Variable(msgspec.Struct):
    name: str
    value: str = ""


class _Container(msgspec.Struct):
    env: list[_Variable] = []


class _Spec(msgspec.Struct):
    containers: list[_Container]


class _Pod(msgspec.Struct):
    spec: _Spec


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ElasticPool]:
    name = f"elastic-{token_hex(4)}"
    await cluster.create_namespace(name)
    known: dict[str, str] = {}
    for node in NODES:
        (known[node.name],) = await cluster.add_kwok_nodes(
            1, cpu="16", memory="64Gi", gpus=node.gpus, labels=node.labels, prefix=f"{name}-{node.name}"
        )
    directory = tmp_path_factory.mktemp("elastic")
    system = LocalSystem(directory / "data", LocalOptions(kubeconfig=cluster.kubeconfig, workdir=directory))
    async with system, AsyncClient(system.address) as muster:
        await muster.apply_queues(QUEUES)

        async def configs(job: Job) -> Configs:
            return await configs_in_pods(cluster, name, job)

        try:
            yield ElasticPool(
                muster=muster, configs=configs, slow_exit=SLOW_EXIT, namespace=name, node_names=known
            )
        finally:
            print(system.log_text()[-_LOG_TAIL:])
    await cluster.delete_namespace(name)
    await cluster.remove_nodes(list(known.values()))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_in_pods(pool: ElasticPool, scenario: Callable[[ElasticPool], Awaitable[None]]) -> None:
    await scenario(pool)


async def configs_in_pods(cluster: Cluster, namespace: str, job: Job) -> Configs:
    """Return ``TF_CONFIG`` in the environment of the workers' pods."""
    configs: Configs = {}
    async with cluster.connect() as api:
        for index in indices(job):
            path = f"/api/v1/namespaces/{namespace}/pods/{job.name}-worker-{index}"
            pod = await api.get(path, _Pod)
            configs.update(
                (index, json.loads(one.value))
                for one in pod.spec.containers[0].env
                if one.name == "TF_CONFIG"
            )
    return configs
