"""Jobs that have ended cost pod-launcher nothing, keep their logs, and leave nothing when they are deleted."""

from __future__ import annotations

import asyncio
import os
import signal

from documents import job
from harness import Connect, Launcher, output_of, submit, wait_for_phase

from muster_local import LocalSystem
from muster_rpc.v1 import job_pb2
from muster_runtimes.process.state_files import StateDirectory

SUCCEEDED = job_pb2.PHASE_SUCCEEDED


async def wait_until_archived(system: LocalSystem, *job_ids: str) -> None:
    """Wait until these jobs have directories, and no job is live."""
    directory = StateDirectory(system.directory.replicas)
    async with asyncio.timeout(20):
        while directory.archived_job_ids() != set(job_ids) or list(directory.job_ids()):
            await asyncio.sleep(0.1)


async def test_ended_jobs_are_archived_with_their_logs_until_they_are_deleted(
    launch: Launcher, connect: Connect
) -> None:
    async with launch() as system, connect(system) as muster:
        job_id = await submit(muster, job("first", "echo", "trained"))
        await wait_for_phase(muster, job_id, SUCCEEDED)
        await wait_until_archived(system, job_id)
        for _ in range(2):
            assert await output_of(muster, "first") == "trained\n"
        await wait_until_archived(system, job_id)
        assert list((system.directory.replicas / "ports").iterdir()) == []

        system.kill("pod-launcher")
        await system.wait_ready()
        await asyncio.sleep(1)
        await wait_until_archived(system, job_id)
        assert await output_of(muster, "first") == "trained\n"

        await muster.delete("first")
        await wait_until_archived(system)


async def test_a_job_that_is_deleted_while_pod_launcher_is_away_leaves_nothing(
    launch: Launcher, connect: Connect
) -> None:
    async with launch() as system, connect(system) as muster:
        kept, deleted = [await submit(muster, job(name, "true")) for name in ("kept", "deleted")]
        for job_id in (kept, deleted):
            await wait_for_phase(muster, job_id, SUCCEEDED)
        await wait_until_archived(system, kept, deleted)

        os.kill(system.services["pod-launcher"], signal.SIGSTOP)
        await muster.delete("deleted")
        system.kill("pod-launcher")
        await system.wait_ready()
        await wait_until_archived(system, kept)
        assert await output_of(muster, "kept") == ""
