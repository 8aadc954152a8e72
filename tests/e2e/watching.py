"""Waiting for what a test wants to see of a job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from muster import AsyncClient, Job
from muster_rpc.v1 import job_pb2


async def when(muster: AsyncClient, job_id: str, condition: Callable[[Job], bool]) -> Job:
    """The job as soon as the condition holds."""
    async with asyncio.timeout(30):
        async for seen in muster.watch(job_id):
            if condition(seen):
                return seen
    raise AssertionError(f"{job_id} ended before the condition held")


async def until(muster: AsyncClient, job_id: str, phase: job_pb2.Phase.ValueType) -> Job:
    """The job as soon as it is in the phase."""
    return await when(muster, job_id, lambda job: job.status.phase == phase)
