"""The work queue of jobs stops the work on released jobs only."""

from __future__ import annotations

import asyncio

from muster_pod_launcher.work_queue import JobWorkQueue


async def test_stopped_jobs_are_not_processed_and_others_are() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def process(job_id: str) -> None:
        begun.set()
        await may_end.wait()
        done.append(job_id)

    work_queue = JobWorkQueue(process)
    for job_id in ("stopped", "kept"):
        work_queue.add(job_id)
    await begun.wait()
    await work_queue.stop(lambda job_id: job_id == "stopped")
    may_end.set()
    async with asyncio.timeout(5):
        while done != ["kept"]:
            await asyncio.sleep(0)
    await work_queue.close()


async def test_stopped_jobs_can_be_added_again() -> None:
    calls: asyncio.Queue[str] = asyncio.Queue()

    async def process(job_id: str) -> None:
        calls.put_nowait(job_id)
        await asyncio.Event().wait()

    work_queue = JobWorkQueue(process)
    for _ in range(2):
        work_queue.add("job")
        async with asyncio.timeout(5):
            assert await calls.get() == "job"
        await work_queue.stop(lambda _: True)


async def test_jobs_that_are_stopped_before_their_work_begins_can_be_added_again() -> None:
    calls: asyncio.Queue[str] = asyncio.Queue()

    async def process(job_id: str) -> None:
        calls.put_nowait(job_id)

    work_queue = JobWorkQueue(process)
    work_queue.add("job")
    await work_queue.stop(lambda _: True)
    assert calls.empty()
    work_queue.add("job")
    async with asyncio.timeout(5):
        assert await calls.get() == "job"
    await work_queue.close()
