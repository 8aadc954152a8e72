"""A system of the test's own, and the steps that many tests share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from muster import AsyncClient, Job
from muster_local import ExternalBroker, LocalOptions, LocalSystem, Spans
from muster_rpc.v1 import job_pb2

ROOT = Path(__file__).resolve().parents[2]
LOG_TAIL = 20_000

Connect = Callable[[LocalSystem], AsyncClient]


class Launcher:
    """Starts systems in a directory, and prints the end of their logs when a test fails."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @asynccontextmanager
    async def __call__(
        self,
        *,
        nodes: tuple[str, ...] = ("n1:cpu=4",),
        idle_period_s: float = 60.0,
        instances: Mapping[str, int] | None = None,
        broker: ExternalBroker | None = None,
        loaded: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[LocalSystem]:
        """Run a system; all its replicas are ended afterwards.

        With ``loaded`` its programs have normal priority, so that other tests do not starve them, and record no spans.
        ``environ`` are further variables of its programs.
        """
        options = LocalOptions(
            nodes=nodes,
            idle_period_s=idle_period_s,
            workdir=ROOT,
            instances=instances or {},
            broker=broker,
            lower_priority=not loaded,
            spans=Spans(sink=not loaded),
            environ={**os.environ, **(environ or {})},
        )
        system = LocalSystem(self._directory / "data", options)
        try:
            async with system:
                try:
                    yield system
                except BaseException:
                    print(system.log_text()[-LOG_TAIL:])
                    raise
        finally:
            await system.end_replicas()


async def submit(muster: AsyncClient, document: str) -> str:
    """Submit a document of one job; return the job's id."""
    (submitted,) = await muster.submit(document)
    return submitted.job_id


async def start(muster: AsyncClient, document: str) -> str:
    """Submit a document of one job; return the job's id once it runs."""
    job_id = await submit(muster, document)
    await wait_for_phase(muster, job_id, job_pb2.PHASE_RUNNING)
    return job_id


async def wait_for(muster: AsyncClient, job_id: str, condition: Callable[[Job], bool]) -> Job:
    """Return the job once the condition holds."""
    async with asyncio.timeout(30):
        async for seen in muster.watch(job_id):
            if condition(seen):
                return seen
    raise AssertionError(f"{job_id} ended before the condition held")


async def wait_for_phase(muster: AsyncClient, job_id: str, phase: job_pb2.Phase.ValueType) -> Job:
    """Return the job once it is in the phase."""
    return await wait_for(muster, job_id, lambda job: job.status.phase == phase)


async def wait_for_reason(muster: AsyncClient, job_id: str, code: str) -> Job:
    """Return the job once its status has the reason."""
    return await wait_for(muster, job_id, lambda job: job.status.reason.code == code)


async def cancel(muster: AsyncClient, *job_ids: str) -> None:
    """Cancel the jobs and wait until they have ended."""
    await asyncio.gather(*(muster.cancel(job_id) for job_id in job_ids))
    await asyncio.gather(*(muster.wait(job_id) for job_id in job_ids))


async def output_of(muster: AsyncClient, job: str) -> str:
    """Return the output of all replicas of a job."""
    return b"".join([chunk.data async for chunk in muster.logs(job)]).decode()


async def wait_until_removed(system: LocalSystem, muster: AsyncClient) -> None:
    """Wait until no job, no directory of a job and no build is left."""
    directories = [system.directory.replicas / "jobs", system.directory.replicas / "builds"]
    async with asyncio.timeout(20):
        while [job async for job in muster.list()] or any(
            list(directory.iterdir()) for directory in directories if directory.exists()
        ):
            await asyncio.sleep(0.1)


async def readiness(address: str) -> str:
    """Return what the readiness page of a service at ``address`` says."""
    return (await page(address, "/readyz")).strip()


async def page(address: str, path: str) -> str:
    """Return a page of a service at ``address``, such as ``/metrics``."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n".encode())
    answer = (await asyncio.wait_for(reader.read(), 5)).decode()
    writer.close()
    return answer.partition("\r\n\r\n")[2]
