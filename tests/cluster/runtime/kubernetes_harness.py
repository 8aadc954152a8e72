"""Kubernetes runtimes on a real API server, and helpers for launches, observations and objects."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

import msgspec

from muster_core.frameworks import effective_template, environment
from muster_core.lifecycle import Start
from muster_core.models import (
    ENDED_STATES,
    Framework,
    Job,
    JobRecord,
    ReplicaRecord,
    ReplicaState,
    Resources,
    Role,
    Template,
    replica_name,
)
from muster_events.subjects import PARTITIONS, job_id_of
from muster_runtimes import Launch, Observation, ReplicaId
from muster_runtimes.kubernetes import (
    ApiClient,
    Credentials,
    KubernetesOptions,
    KubernetesRuntime,
    LogArchive,
    RateLimiter,
)
from muster_runtimes.kubernetes.objects import Pod
from muster_testing.cluster import Cluster
from muster_testing.cluster.images import PYTHON_IMAGE
from muster_testing.cluster.views import Named

Found = TypeVar("Found")

TIMEOUT_S = 60.0
MEMBERS_AT_FIRST = b'{"attempt":1,"generation":1,"members":{}}'
KWOK = "kwok.muster.dev/"


def now() -> int:
    return time.time_ns() // 1000


class _Reference(msgspec.Struct, frozen=True):
    kind: str
    name: str


class _OwnedMetadata(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    owner_references: tuple[_Reference, ...] = ()


class _Owned(msgspec.Struct, frozen=True):
    metadata: _OwnedMetadata


class KubernetesHarness:
    """Kubernetes runtimes in one namespace of a cluster, with their own pool."""

    def __init__(self, *, cluster: Cluster, namespace: str, path: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.path = path
        self.pool = f"pool-{token_hex(4)}"
        self.kubeconfig = cluster.kubeconfig
        self.job_id = job_id_of(token_hex(8))

    @contextlib.asynccontextmanager
    async def runtime(
        self, *, partitions: int = PARTITIONS, **options: object
    ) -> AsyncGenerator[KubernetesRuntime]:
        """Run a runtime that owns all partitions, or the first ``partitions``."""
        credentials = Credentials(kubeconfig=self.kubeconfig)
        await credentials.load()
        api = ApiClient(credentials=credentials, limits=RateLimiter(in_flight=16, per_second=0))
        runtime = KubernetesRuntime(
            api=api,
            archive=LogArchive(root=self.path / "logs", max_bytes=1_000_000),
            clock=now,
            options=msgspec.convert({"pool": self.pool, **options}, KubernetesOptions),
        )
        task = asyncio.create_task(runtime.run())
        try:
            async with asyncio.timeout(TIMEOUT_S):
                for partition in range(partitions):
                    await runtime.acquire_partition(partition)
            yield runtime
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await api.aclose()

    def job(self, *, workers: int = 1, framework: Framework = Framework.PLAIN, **played: str) -> Job:
        """A job named ``mnist``; ``played`` are kwok annotations of its pods (``run_for="1s"``)."""
        annotations = {KWOK + key.replace("_", "-"): value for key, value in played.items()}
        template = Template(
            image="localhost/none:1",
            command=("train",),
            requests=Resources(cpu=100, memory=2**20),
            annotations=annotations,
            grace_s=5,
        )
        role = Role(name="worker", replicas=workers, min=workers, max=workers, template=template)
        return Job(name="mnist", namespace=self.namespace, framework=framework, roles=(role,))

    def replica(self, index: int = 0, *, attempt: int = 1, restart: int = 0) -> ReplicaId:
        return ReplicaId(job_id=self.job_id, attempt=attempt, role="worker", index=index, restart=restart)

    async def prepare(self, runtime: KubernetesRuntime, job: Job) -> None:
        """Register the job and write its members."""
        runtime.register_job(self.job_id, job)
        await runtime.write_members(self.job_id, MEMBERS_AT_FIRST)

    async def launch(
        self, runtime: KubernetesRuntime, job: Job, replica: ReplicaId, *, node: str
    ) -> Observation:
        """Prepare the job and start one replica."""
        await self.prepare(runtime, job)
        return await runtime.start(await self.launch_of(runtime, job, replica, node=node))

    async def launch_of(
        self, runtime: KubernetesRuntime, job: Job, replica: ReplicaId, *, node: str
    ) -> Launch:
        record = ReplicaRecord(
            role=replica.role, index=replica.index, attempt=replica.attempt, generation=1, node=node
        )
        members = JobRecord(
            job_id=replica.job_id, applied_sequence=1, name=job.name, job=job, replicas=(record,)
        )
        keys = [(role.name, index) for role in job.roles for index in range(role.max)]
        addresses = await runtime.addresses(replica.job_id, keys, job=job.name, namespace=job.namespace)
        context = runtime.context(replica.job_id, addresses)
        step = Start(record)
        return Launch(
            replica=replica,
            name=replica_name(job.name, replica.role, replica.index),
            node=node,
            template=effective_template(job, step.replica),
            env=environment(members, job, record, context=context, traceparent=""),
        )

    async def until(
        self, runtime: KubernetesRuntime, replica: ReplicaId, holds: Callable[[Observation], bool]
    ) -> Observation:
        """Wait for an observation of the replica for which ``holds`` is true."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                for seen in runtime.job_observations(replica.job_id):
                    if seen.replica == replica and holds(seen):
                        return seen
                await asyncio.sleep(0.05)

    async def running(self, runtime: KubernetesRuntime, replica: ReplicaId) -> Observation:
        return await self.until(runtime, replica, lambda seen: seen.state is ReplicaState.RUNNING)

    async def ended(self, runtime: KubernetesRuntime, replica: ReplicaId) -> Observation:
        return await self.until(runtime, replica, lambda seen: seen.state in ENDED_STATES)

    async def pods(self) -> list[Pod]:
        async with self.cluster.connect() as api:
            return await api.items(f"/api/v1/namespaces/{self.namespace}/pods", Pod)

    async def owners(self, pod: Pod) -> list[tuple[str, str]]:
        """Kinds and names of the owners of a pod."""
        async with self.cluster.connect() as api:
            found = await api.items(f"/api/v1/namespaces/{self.namespace}/pods", _Owned)
        (references,) = (
            each.metadata.owner_references for each in found if each.metadata.uid == pod.metadata.uid
        )
        return [(reference.kind, reference.name) for reference in references]

    async def end(self, runtime: KubernetesRuntime, *replicas: ReplicaId) -> None:
        """Stop replicas, and wait until they have ended."""
        for replica in replicas:
            await runtime.stop(replica, grace_s=1)
        for replica in replicas:
            await self.ended(runtime, replica)

    async def names(self, kind: str) -> set[str]:
        async with self.cluster.connect() as api:
            found = await api.items(f"/api/v1/namespaces/{self.namespace}/{kind}", Named)
        return {each.metadata.name for each in found} - {"kube-root-ca.crt"}

    async def delete_pod(self, name: str, **query: str) -> None:
        """Delete a pod like kubectl does."""
        async with self.cluster.connect() as api:
            await api.delete(f"/api/v1/namespaces/{self.namespace}/pods/{name}", **query)

    async def until_gone(self, kind: str) -> None:
        """Wait until the namespace has no objects of a kind."""
        async with asyncio.timeout(TIMEOUT_S):
            while await self.names(kind):
                await asyncio.sleep(0.1)

    async def until_finalizers_removed(self) -> None:
        """Wait until no pod of the namespace has a finalizer."""
        async with asyncio.timeout(TIMEOUT_S):
            while any(pod.metadata.finalizers for pod in await self.pods()):
                await asyncio.sleep(0.05)


def python_job(job: Job, program: str) -> Job:
    """``job`` with this Python program in every replica."""
    role = job.roles[0]
    template = msgspec.structs.replace(
        role.template, image=PYTHON_IMAGE, command=("python3", "-uc", program), grace_s=2
    )
    return msgspec.structs.replace(job, roles=(msgspec.structs.replace(role, template=template),))
