"""The pool of the elastic scenarios: its nodes and queues, and what a scenario does and sees, whatever runs the replicas."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import harness
import msgspec
from documents import gang

from muster import AsyncClient, Job
from muster_rpc.v1 import job_pb2

QUEUES = """
{apiVersion: muster.dev/v1, kind: Queue, metadata: {name: shrinks}, spec: {starvationAfter: 1s, elastic: {idlePeriod: 1h}}}
---
{apiVersion: muster.dev/v1, kind: Queue, metadata: {name: grows}, spec: {starvationAfter: 1s, elastic: {idlePeriod: 2s}}}
---
{apiVersion: muster.dev/v1, kind: Queue, metadata: {name: greedy}, spec: {elastic: {idlePeriod: 2s, policy: dragon}}}
"""


class PoolNode(msgspec.Struct, frozen=True):
    """A node of 16 CPUs for the jobs of a scenario, some of which select nodes of a ``size``."""

    name: str
    scenario: str
    gpus: int = 4
    size: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """The labels that jobs select."""
        return {"scenario": self.scenario, **({"size": self.size} if self.size else {})}


NODES = (
    PoolNode("n1", "all"),
    PoolNode("n2", "all"),
    PoolNode("two", "helpful-node", gpus=2),
    PoolNode("four", "helpful-node", size="four"),
    PoolNode("single", "no-gpu"),
    PoolNode("five", "growth", gpus=5),
    PoolNode("six", "sharing", gpus=6),
    PoolNode("three", "maximum", gpus=3),
    PoolNode("pair", "maximum", gpus=2),
    PoolNode("wide", "misfit", gpus=3, size="three"),
    PoolNode("slim", "misfit", gpus=2, size="two"),
    PoolNode("cpus", "tf-config", gpus=0),
    PoolNode("first", "indices", gpus=2, size="two"),
    PoolNode("second", "indices", gpus=1),
    PoolNode("third", "indices", gpus=1),
)
"""One pool has the nodes of all scenarios; the jobs of each select their own."""

Configs = dict[int, dict[str, dict[str, list[str]]]]
"""``TF_CONFIG`` by the worker's index."""


class ElasticPool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool under test.

    ``configs`` returns the known ``TF_CONFIG`` of a job's workers. ``slow_exit`` are fields of a role whose replicas take a few
    seconds to exit. ``node_names`` maps the names of ``NODES`` to the real ones, where they differ.
    """

    muster: AsyncClient
    configs: Callable[[Job], Awaitable[Configs]]
    slow_exit: Mapping[str, object]
    namespace: str = "default"
    node_names: Mapping[str, str] = {}

    async def submit(self, name: str, workers: int, *, queue: str = "shrinks", **rest: Any) -> str:
        """Submit a gang, described as by ``documents.gang``; return its id."""
        document = gang(name, workers, queue=queue, namespace=self.namespace, **rest)
        return await harness.submit(self.muster, document)

    async def start(self, name: str, workers: int, **rest: Any) -> str:
        """Submit a gang; return its id once it runs."""
        job_id = await self.submit(name, workers, **rest)
        await harness.wait_for_phase(self.muster, job_id, job_pb2.PHASE_RUNNING)
        return job_id

    async def wait_for(self, job_id: str, condition: Callable[[Job], bool]) -> Job:
        """Return the job once the condition holds."""
        return await harness.wait_for(self.muster, job_id, condition)

    async def wait_until_on(self, job_id: str, workers: Mapping[str, int]) -> Job:
        """Return the job once it runs with these numbers of workers by node."""
        return await self.wait_for(job_id, lambda job: self.nodes_of(job) == workers and all_run(job))

    async def nodes(self, job_id: str) -> Mapping[str, int]:
        """Return the number of a job's workers by node."""
        return self.nodes_of(await self.muster.get(job_id))

    def nodes_of(self, job: Job) -> Mapping[str, int]:
        """Return the number of a job's workers by node."""
        names = {real: name for name, real in self.node_names.items()}
        return dict(Counter(names.get(one.node, one.node) for one in gang_of(job) if one.role == "worker"))

    async def tf_configs(self, job_id: str) -> Configs:
        """Return the ``TF_CONFIG`` of each worker by index, once all are known."""
        async with asyncio.timeout(20):
            while True:
                job = await self.muster.get(job_id)
                configs = await self.configs(job)
                if sorted(configs) == indices(job):
                    return configs
                await asyncio.sleep(0.2)

    async def fill(self, name: str, *, role: Mapping[str, object] | None = None) -> str:
        """Start a job with a ps and 4 workers on n1, and 4 workers on n2; its minimum is 2 workers."""
        job_id = await self.submit(name, 8, floor=2, role=role)
        await self.wait_until_on(job_id, {"n1": 4, "n2": 4})
        return job_id


def gang_of(job: Job) -> list[job_pb2.Replica]:
    """Return the replicas of a job that are not terminating."""
    return [one for one in job.status.replicas if not one.terminating]


def all_run(job: Job) -> bool:
    """Return whether all replicas run."""
    return all(one.state == job_pb2.REPLICA_STATE_RUNNING for one in gang_of(job))


def indices(job: Job) -> list[int]:
    """Return the workers' indices."""
    return sorted(one.index for one in gang_of(job) if one.role == "worker")


def running_since(job: Job, index: int) -> int:
    """Return since when (ns) a worker runs."""
    return next(
        one.running_at.ToNanoseconds() for one in gang_of(job) if (one.role, one.index) == ("worker", index)
    )
