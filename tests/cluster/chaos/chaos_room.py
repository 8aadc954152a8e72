"""The whole system on a cluster of the test's own, behind a front that fails as it is told, and the words of these tests."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from front import Front
from history import History

from muster import AsyncClient, Job, Unavailable
from muster_local.system import LocalOptions, LocalSystem
from muster_rpc.v1 import job_pb2
from muster_runtimes.kubernetes.labels import JOB_ID
from muster_testing.cluster import Cluster
from muster_testing.cluster.views import Named

T = TypeVar("T")

NAMESPACE = "jobs"
_LAST_WORDS = 30_000
_PERSISTENCE_S = 60.0


class World(msgspec.Struct, frozen=True):
    """Everything that a test has in its hands."""

    cluster: Cluster
    front: Front
    history: History
    system: LocalSystem
    muster: AsyncClient

    async def submit(self, documents: Mapping[str, str]) -> dict[str, str]:
        """Submit the documents, each once however often it takes; job ids by the documents' keys."""
        submitted = await asyncio.gather(
            *(persist(lambda d=d, k=k: self.muster.submit(d, request_id=k)) for k, d in documents.items())
        )
        return {key: jobs[0].job_id for key, jobs in zip(documents, submitted, strict=True)}

    async def ends(self, job_ids: Sequence[str], *, within_s: float = _PERSISTENCE_S * 4) -> list[Job]:
        """The jobs as they ended."""
        waits = (persist(lambda i=i: self.muster.wait(i), within_s=within_s) for i in job_ids)
        return list(await asyncio.gather(*waits))

    async def cancel(self, job_id: str) -> None:
        """Ask for a job's end."""
        await persist(lambda: self.muster.cancel(job_id, request_id=f"cancel-{job_id}"))

    async def until_running(self, job_id: str) -> None:
        """Wait until all of the job runs."""
        await self.until_attempt(job_id, 1)

    async def until_attempt(self, job_id: str, attempt: int) -> Job:
        """Wait until all of the job runs, in this attempt or a later one."""
        return await persist(lambda: self._reach(job_id, attempt))

    async def delete(self, job_ids: Sequence[str]) -> None:
        """Ask for the jobs to be deleted."""
        await asyncio.gather(
            *(persist(lambda i=i: self.muster.delete(i, request_id=f"delete-{i}")) for i in job_ids)
        )

    async def _reach(self, job_id: str, attempt: int) -> Job:
        async for seen in self.muster.watch(job_id):
            if seen.status.phase == job_pb2.PHASE_RUNNING and seen.status.attempt >= attempt:
                return seen
        raise AssertionError(f"{job_id} ended before attempt {attempt}")

    async def left(self) -> list[str]:
        """What there still is of any job: ``pods/mnist-worker-0`` and so on."""
        found: list[str] = []
        async with self.cluster.connect() as api:
            for kind in ("pods", "services", "configmaps"):
                items = await api.items(f"/api/v1/{kind}", Named, labelSelector=JOB_ID)
                found += [f"{kind}/{item.metadata.name}" for item in items]
        return found

    async def until_nothing_is_left(self, *, timeout_s: float = 60) -> None:
        """Wait until nothing is left of any job; raises ``AssertionError`` with what is."""
        left = await self.left()
        try:
            async with asyncio.timeout(timeout_s):
                while left:
                    await asyncio.sleep(0.3)
                    left = await self.left()
        except TimeoutError:
            raise AssertionError(f"left after {timeout_s:g} s: {left[:20]}") from None


@asynccontextmanager
async def world_on(
    cluster: Cluster,
    folder: Path,
    *,
    copies: Mapping[str, int] | None = None,
    is_direct: bool = False,
    **settings: str,
) -> AsyncGenerator[World]:
    """A world on ``cluster``, past the front where it ``is_direct``.

    ``settings`` are those of the services (``kube_timeout_seconds="3"``).
    """
    environ = {**os.environ, **{f"MUSTER_{name.upper()}": value for name, value in settings.items()}}
    await cluster.create_namespace(NAMESPACE)
    async with AsyncExitStack() as stack:
        front = await stack.enter_async_context(Front.before(cluster, folder / "front"))
        history = await stack.enter_async_context(History.kept(cluster))
        options = LocalOptions(
            kubeconfig=cluster.kubeconfig if is_direct else front.kubeconfig,
            workdir=folder,
            environ=environ,
            copies=copies or {},
            # Who plays the cluster is not to starve them: they would be somewhere else.
            gives_way=False,
        )
        system = await stack.enter_async_context(LocalSystem(folder / "data", options))
        muster = await stack.enter_async_context(AsyncClient(system.address))
        try:
            yield World(cluster, front, history, system, muster)
        except BaseException:
            print(system.log_text()[-_LAST_WORDS:])
            raise


async def persist(ask: Callable[[], Awaitable[T]], *, within_s: float = _PERSISTENCE_S * 4) -> T:
    """Every call can be repeated, and a user whose service is away for a moment repeats it."""
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
    """A job whose pods kwok plays and that leaves none behind; ``run_for`` empty: they run until they are stopped."""
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
    """How many jobs have each phase, by name."""
    names = [job_pb2.Phase.Name(job.status.phase) for job in jobs]
    return {name: names.count(name) for name in names}
