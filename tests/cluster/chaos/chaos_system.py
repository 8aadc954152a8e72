"""The whole system on the test's own cluster, behind a fault proxy, and helpers for jobs."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from fault_proxy import FaultProxy
from pod_history import PodHistory

from muster import AsyncClient, Job, Unavailable
from muster_local import LocalOptions, LocalSystem
from muster_rpc.v1 import job_pb2
from muster_runtimes.kubernetes.labels import JOB_ID
from muster_testing.cluster import Cluster
from muster_testing.cluster.views import Named

T = TypeVar("T")

NAMESPACE = "jobs"
_LAST_WORDS = 30_000
_PERSISTENCE_S = 60.0


class ChaosSystem(msgspec.Struct, frozen=True):
    """The cluster, the fault proxy, the pod history, the services and a client."""

    cluster: Cluster
    proxy: FaultProxy
    history: PodHistory
    system: LocalSystem
    muster: AsyncClient

    async def submit(self, documents: Mapping[str, str]) -> dict[str, str]:
        """Submit each document once, with retries; returns job ids by the documents' keys."""
        submitted = await asyncio.gather(
            *(retry(lambda d=d, k=k: self.muster.submit(d, request_id=k)) for k, d in documents.items())
        )
        return {key: jobs[0].job_id for key, jobs in zip(documents, submitted, strict=True)}

    async def ends(self, job_ids: Sequence[str], *, within_s: float = _PERSISTENCE_S * 4) -> list[Job]:
        """Wait for the ends of jobs, and return them."""
        waits = (retry(lambda i=i: self.muster.wait(i), within_s=within_s) for i in job_ids)
        return list(await asyncio.gather(*waits))

    async def cancel(self, job_id: str) -> None:
        """Cancel a job."""
        await retry(lambda: self.muster.cancel(job_id, request_id=f"cancel-{job_id}"))

    async def until_running(self, job_id: str) -> None:
        """Wait until the whole gang runs."""
        await self.until_attempt(job_id, 1)

    async def until_attempt(self, job_id: str, attempt: int) -> Job:
        """Wait until the whole gang runs, in this attempt or a later one."""
        return await retry(lambda: self._reach(job_id, attempt))

    async def delete(self, job_ids: Sequence[str]) -> None:
        """Delete jobs."""
        await asyncio.gather(
            *(retry(lambda i=i: self.muster.delete(i, request_id=f"delete-{i}")) for i in job_ids)
        )

    async def _reach(self, job_id: str, attempt: int) -> Job:
        async for seen in self.muster.watch(job_id):
            if seen.status.phase == job_pb2.PHASE_RUNNING and seen.status.attempt >= attempt:
                return seen
        raise AssertionError(f"{job_id} ended before attempt {attempt}")

    async def remaining_objects(self) -> list[str]:
        """The remaining objects of all jobs, such as ``pods/mnist-worker-0``."""
        found: list[str] = []
        async with self.cluster.connect() as api:
            for kind in ("pods", "services", "configmaps"):
                items = await api.items(f"/api/v1/{kind}", Named, labelSelector=JOB_ID)
                found += [f"{kind}/{item.metadata.name}" for item in items]
        return found

    async def until_no_objects_remain(self, *, timeout_s: float = 60) -> None:
        """Wait until no objects remain; raises ``AssertionError`` with the remaining ones."""
        left = await self.remaining_objects()
        try:
            async with asyncio.timeout(timeout_s):
                while left:
                    await asyncio.sleep(0.3)
                    left = await self.remaining_objects()
        except TimeoutError:
            raise AssertionError(f"left after {timeout_s:g} s: {left[:20]}") from None


@asynccontextmanager
async def chaos_system_on(
    cluster: Cluster,
    folder: Path,
    *,
    instances: Mapping[str, int] | None = None,
    is_direct: bool = False,
    **settings: str,
) -> AsyncGenerator[ChaosSystem]:
    """Start the system on ``cluster``, without the fault proxy if ``is_direct``.

    ``settings`` are those of the services (``kube_timeout_seconds="3"``).
    """
    environ = {**os.environ, **{f"MUSTER_{name.upper()}": value for name, value in settings.items()}}
    await cluster.create_namespace(NAMESPACE)
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(FaultProxy.before(cluster, folder / "proxy"))
        history = await stack.enter_async_context(PodHistory.kept(cluster))
        options = LocalOptions(
            kubeconfig=cluster.kubeconfig if is_direct else proxy.kubeconfig,
            workdir=folder,
            environ=environ,
            instances=instances or {},
            # The simulated cluster must not starve the services, which would be on other machines.
            lower_priority=False,
        )
        system = await stack.enter_async_context(LocalSystem(folder / "data", options))
        muster = await stack.enter_async_context(AsyncClient(system.address))
        try:
            yield ChaosSystem(cluster, proxy, history, system, muster)
        except BaseException:
            print(system.log_text()[-_LAST_WORDS:])
            raise


async def retry(ask: Callable[[], Awaitable[T]], *, within_s: float = _PERSISTENCE_S * 4) -> T:
    """Repeat a call while the service is unavailable; all calls are idempotent."""
    async with asyncio.timeout(within_s):
        while True:
            try:
                return await ask()
            except Unavailable:
                await asyncio.sleep(0.3)


def gang(
    name: str,
    *,
    workers: int = 2,
    masters: int = 0,
    cpu: str = "500m",
    gpus: int = 0,
    run_for: str = "1s",
    framework: str = "pytorch",
) -> str:
    """A job with simulated pods that are deleted at its end; with an empty ``run_for`` they run until they are stopped."""
    resources: dict[str, object] = {"cpu": cpu, "memory": "64Mi", **({"gpu": gpus} if gpus else {})}
    role: dict[str, object] = {
        "image": "localhost/none:1",
        "command": ["train"],
        "resources": resources,
        "gracePeriod": "5s",
        "annotations": {"kwok.muster.dev/run-for": run_for} if run_for else {},
    }
    roles = {"master": masters, "worker": workers}
    spec = {
        "framework": framework,
        "roles": {role_name: {**role, "replicas": count} for role_name, count in roles.items() if count},
        "run": {"cleanPodPolicy": "All"},
    }
    metadata = {"name": name, "namespace": NAMESPACE}
    return json.dumps({"apiVersion": "muster.dev/v1", "kind": "Job", "metadata": metadata, "spec": spec})


def phases(jobs: Sequence[Job]) -> dict[str, int]:
    """The number of jobs by phase."""
    names = [job_pb2.Phase.Name(job.status.phase) for job in jobs]
    return {name: names.count(name) for name in names}
