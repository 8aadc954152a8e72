"""Time from a submission to its placement on an idle system, and the memory of the six services after some jobs."""

import asyncio
import time
from pathlib import Path

from bench_documents import job
from jobs import received_events
from measuring import Measurement, percentile
from processes import memory_of, with_descendants
from system_under_test import running_system

from muster.aio import AsyncClient
from muster_core.events import JobPlaced
from muster_local import LocalSystem

NAMES = ("submit_to_placed_p50_ms", "submit_to_placed_p99_ms", "services_rss_mib", "services_pss_mib")

_JOBS = 100


async def measure(root: Path, *, quick: bool) -> list[Measurement]:
    """Run jobs one by one for the time to placement, then the rest concurrently, then measure memory."""
    alone = 15 if quick else 50
    async with running_system(root) as system, AsyncClient(system.address) as muster:
        waits = await _placed_one_by_one(system, muster, alone)
        await asyncio.gather(*(_pass(muster, f"crowd-{number}") for number in range(_JOBS - alone)))
        services = {name: memory_of(with_descendants(pid)) for name, pid in system.services.items()}
    weights = ", ".join(f"{name} {memory.rss:.0f}" for name, memory in services.items())
    note = f"{alone} jobs, one at a time, until the event is received"
    return [
        Measurement(
            name="submit_to_placed_p50_ms", value=percentile(waits, 0.5), unit="ms", budget=20, note=note
        ),
        Measurement(name="submit_to_placed_p99_ms", value=percentile(waits, 0.99), unit="ms"),
        Measurement(
            name="services_rss_mib",
            value=sum(memory.rss for memory in services.values()),
            unit="MiB",
            budget=400,
            note=f"after {_JOBS} jobs, helpers included: {weights}",
        ),
        Measurement(
            name="services_pss_mib",
            value=sum(memory.pss for memory in services.values()),
            unit="MiB",
            note="the same with shared pages divided among the processes",
        ),
    ]


async def _placed_one_by_one(system: LocalSystem, muster: AsyncClient, count: int) -> list[float]:
    """Return milliseconds from each submission to its placement, without the first job, which warms up."""
    waits: list[float] = []
    async with received_events(system) as events:
        for number in range(count + 1):
            request_id = f"alone-{number}"
            began = time.perf_counter()
            placed = asyncio.create_task(events.first(JobPlaced, request_id))
            placed.add_done_callback(
                lambda _, began=began: waits.append(1000 * (time.perf_counter() - began))
            )
            (submitted,) = await muster.submit(job(request_id, "true"), request_id=request_id)
            await placed
            await muster.wait(submitted.job_id)
    return waits[1:]


async def _pass(muster: AsyncClient, name: str) -> None:
    (submitted,) = await muster.submit(job(name, "true"), request_id=name)
    await muster.wait(submitted.job_id)
