"""A pool on which the answers of elasticity are held, and the words that they are written in, whatever runs the replicas."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from watching import until, when

from muster import AsyncClient, Job
from muster_rpc.v1 import job_pb2

QUEUES = """
{apiVersion: muster.dev/v1, kind: Queue, metadata: {name: shrinks}, spec: {starvationAfter: 1s, elastic: {idlePeriod: 1h}}}
---
{apiVersion: muster.dev/v1, kind: Queue, metadata: {name: grows}, spec: {starvationAfter: 1s, elastic: {idlePeriod: 2s}}}
---
{apiVersion: muster.dev/v1, kind: Queue, metadata: {name: greedy}, spec: {elastic: {idlePeriod: 2s, policy: dragon}}}
"""
"""Half a minute of patience is a second here, a quiet minute two seconds."""


class PoolNode(msgspec.Struct, frozen=True):
    """A node of 16 CPUs; jobs of its ``answer`` may stand on it, and where one asks for a ``size`` only on nodes of that."""

    name: str
    answer: str
    gpus: int = 4
    size: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """What jobs select it by."""
        return {"answer": self.answer, **({"size": self.size} if self.size else {})}


NODES = (
    PoolNode("n1", "all"),
    PoolNode("n2", "all"),
    PoolNode("two", "thirteen", gpus=2),
    PoolNode("four", "thirteen", size="four"),
    PoolNode("single", "fourteen"),
    PoolNode("five", "sixteen", gpus=5),
    PoolNode("six", "seventeen", gpus=6),
    PoolNode("three", "eighteen", gpus=3),
    PoolNode("pair", "eighteen", gpus=2),
    PoolNode("wide", "nineteen", gpus=3, size="three"),
    PoolNode("slim", "nineteen", gpus=2, size="two"),
    PoolNode("cpus", "twenty", gpus=0),
    PoolNode("first", "twenty-one", gpus=2, size="two"),
    PoolNode("second", "twenty-one", gpus=1),
    PoolNode("third", "twenty-one", gpus=1),
)
"""One pool has the nodes of all answers; each answer's jobs select their own."""

Workers = Mapping[str, int]
"""The number of workers by node."""

Configs = dict[int, dict[str, dict[str, list[str]]]]
"""``TF_CONFIG`` by the worker's index."""


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """The pool. ``known`` are its nodes' names by the names that they have here.

    ``configs`` says what the workers that run of a job were told, some of them perhaps not yet. ``stubborn`` is how a role is written whose
    replicas take a few seconds to end.
    """

    muster: AsyncClient
    configs: Callable[[Job], Awaitable[Configs]]
    stubborn: Mapping[str, object]
    namespace: str = "default"
    known: Mapping[str, str] = {}

    def gang(
        self,
        name: str,
        workers: int,
        *,
        queue: str = "shrinks",
        nodes: str = "all",
        size: str = "",
        floor: int = 1,
        most: int = 0,
        worker: Mapping[str, object] | None = None,
        servers: int = 1,
        written: Mapping[str, object] | None = None,
        **spec: object,
    ) -> str:
        """A ps and W ``workers``, as the answers have them; ``written`` is what their roles say besides."""

        def role(replicas: int, resources: Mapping[str, object], **rest: int) -> dict[str, object]:
            return {
                "replicas": replicas,
                "image": "localhost/none:1",
                "command": ["sleep", "600"],
                "resources": resources,
                "nodeSelector": {"answer": nodes, **({"size": size} if size else {})},
                "gracePeriod": 1,
                **(written or {}),
                **rest,
            }

        roles = {"worker": role(workers, worker or {"cpu": 1, "gpu": 1}, min=floor, max=most or workers)}
        if servers:
            roles["ps"] = role(servers, {"cpu": 1})
        return json.dumps(
            {
                "apiVersion": "muster.dev/v1",
                "kind": "Job",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"queue": queue, "roles": roles, **spec},
            }
        )

    async def submit(self, document: str) -> str:
        """Its id."""
        (submitted,) = await self.muster.submit(document)
        return submitted.job_id

    async def start(self, document: str) -> str:
        """Its id, as soon as it runs."""
        job_id = await self.submit(document)
        await until(self.muster, job_id, job_pb2.PHASE_RUNNING)
        return job_id

    async def end(self, *job_ids: str) -> None:
        """Cancel the jobs, and wait until they have ended."""
        await asyncio.gather(*(self.muster.cancel(job_id) for job_id in job_ids))
        await asyncio.gather(*(self.muster.wait(job_id) for job_id in job_ids))

    async def get(self, job_id: str) -> Job:
        """The job as it is now."""
        return await self.muster.get(job_id)

    async def sees(self, job_id: str, condition: Callable[[Job], bool]) -> Job:
        """The job as soon as the condition holds."""
        return await when(self.muster, job_id, condition)

    async def stands(self, job_id: str, workers: Workers) -> Job:
        """The job as soon as its workers run so."""
        return await self.sees(job_id, lambda job: self.where(job) == workers and all_run(job))

    def where(self, job: Job) -> Workers:
        """On which nodes the job's workers are."""
        ours = {real: name for name, real in self.known.items()}
        return dict(Counter(ours.get(one.node, one.node) for one in members(job) if one.role == "worker"))

    async def told(self, job_id: str) -> Configs:
        """What each worker was told, by index, as soon as all who run are known to have been."""
        async with asyncio.timeout(20):
            while True:
                job = await self.get(job_id)
                told = await self.configs(job)
                if sorted(told) == indices(job):
                    return told
                await asyncio.sleep(0.2)

    async def fill(self, name: str, *, written: Mapping[str, object] | None = None) -> str:
        """A runs its ps and 4 workers on n1, and 4 workers on n2, of which it needs 2."""
        job_id = await self.submit(self.gang(name, 8, floor=2, written=written))
        await self.stands(job_id, {"n1": 4, "n2": 4})
        return job_id


def members(job: Job) -> list[job_pb2.Replica]:
    """Its replicas but those who leave."""
    return [one for one in job.status.replicas if not one.terminating]


def all_run(job: Job) -> bool:
    """Whether all members run."""
    return all(one.state == job_pb2.REPLICA_STATE_RUNNING for one in members(job))


def indices(job: Job) -> list[int]:
    """The workers' indices."""
    return sorted(one.index for one in members(job) if one.role == "worker")


def running_since(job: Job, index: int) -> int:
    """Since when (ns) a worker runs."""
    return next(
        one.running_at.ToNanoseconds() for one in members(job) if (one.role, one.index) == ("worker", index)
    )
