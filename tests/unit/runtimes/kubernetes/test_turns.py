"""The work on jobs: stopped for those that others look after from now on, and for nobody else."""

from __future__ import annotations

import asyncio

from muster_pod_launcher.turns import Turns


async def test_work_that_is_stopped_does_nothing_more_and_the_rest_goes_on() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def work(job_id: str) -> None:
        begun.set()
        await may_end.wait()
        done.append(job_id)

    turns = Turns(work)
    for job_id in ("given up", "kept"):
        turns.touch(job_id)
    await begun.wait()
    await turns.stop(lambda job_id: job_id == "given up")
    may_end.set()
    async with asyncio.timeout(5):
        while done != ["kept"]:
            await asyncio.sleep(0)
    await turns.close()


async def test_work_that_was_stopped_can_be_begun_again() -> None:
    calls: asyncio.Queue[str] = asyncio.Queue()

    async def work(job_id: str) -> None:
        calls.put_nowait(job_id)
        await asyncio.Event().wait()

    turns = Turns(work)
    for _ in range(2):
        turns.touch("job")
        async with asyncio.timeout(5):
            assert await calls.get() == "job"
        await turns.stop(lambda _: True)
