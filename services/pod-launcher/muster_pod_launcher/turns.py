"""One thing at a time per job, many jobs side by side; a job that is touched while it is worked on is worked on once more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from muster_service.logs import fields

log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_SHORTEST_DELAY_S = 0.1
"""Of a timer; an instant that has passed and changes nothing must not keep the job spinning."""


class Turns:
    """Runs ``work(job_id)`` after every ``touch(job_id)``; what fails is tried again with a back-off, for ever."""

    def __init__(self, work: Callable[[str], Awaitable[None]]) -> None:
        self._work = work
        self._running: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def touch(self, job_id: str) -> None:
        """Work on the job as soon as may be."""
        if job_id in self._running:
            self._again.add(job_id)
            return
        self._running[job_id] = asyncio.create_task(self._run(job_id), name=f"turn-{job_id}")

    def touch_in(self, job_id: str, delay_s: float) -> None:
        """Work on the job after a delay; the last call for a job counts."""
        if (timer := self._timers.pop(job_id, None)) is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[job_id] = loop.call_later(max(delay_s, _SHORTEST_DELAY_S), self._due, job_id)

    async def close(self) -> None:
        """Stop all work and wait until it has stopped."""
        await self.stop(lambda _: True)

    async def stop(self, concerns: Callable[[str], bool]) -> None:
        """Stop the work on the jobs that it ``concerns``, and wait until it has stopped."""
        for job_id in [job_id for job_id in self._timers if concerns(job_id)]:
            self._timers.pop(job_id).cancel()
        tasks = [task for job_id, task in self._running.items() if concerns(job_id)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _due(self, job_id: str) -> None:
        self._timers.pop(job_id, None)
        self.touch(job_id)

    async def _run(self, job_id: str) -> None:
        pause_s = _FIRST_PAUSE_S
        try:
            while True:
                self._again.discard(job_id)
                try:
                    await self._work(job_id)
                    pause_s = _FIRST_PAUSE_S
                except Exception:
                    log.exception(
                        "work on a job failed and is tried again", extra=fields(job_id=job_id, in_s=pause_s)
                    )
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                    continue
                if job_id not in self._again:
                    return
        finally:
            del self._running[job_id]
