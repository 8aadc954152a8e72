"""A work queue of jobs: one run per job at a time, many jobs concurrently; a job added during its run runs again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from muster_service.logs import fields

log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_SHORTEST_DELAY_S = 0.1
"""The shortest delay of a timer, so that a due time in the past does not make the job spin."""


class JobWorkQueue:
    """Runs ``process(job_id)`` after every ``add(job_id)``; failures are retried with back-off."""

    def __init__(self, process: Callable[[str], Awaitable[None]]) -> None:
        self._process = process
        self._running: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add(self, job_id: str) -> None:
        """Process the job as soon as possible."""
        if job_id in self._running:
            self._again.add(job_id)
            return
        self._running[job_id] = asyncio.create_task(self._run(job_id), name=f"process-{job_id}")

    def add_after(self, job_id: str, delay_s: float) -> None:
        """Process the job after a delay; the last call for a job counts."""
        if (timer := self._timers.pop(job_id, None)) is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[job_id] = loop.call_later(max(delay_s, _SHORTEST_DELAY_S), self._due, job_id)

    async def close(self) -> None:
        """Stop all work, and wait for its end."""
        await self.stop(lambda _: True)

    async def stop(self, selects: Callable[[str], bool]) -> None:
        """Stop the work on the jobs that ``selects`` returns True for, and wait for its end."""
        for job_id in [job_id for job_id in self._timers if selects(job_id)]:
            self._timers.pop(job_id).cancel()
        tasks = {job_id: task for job_id, task in self._running.items() if selects(job_id)}
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        for job_id, task in tasks.items():
            # A task that is cancelled before its first step does not reach its own clean-up.
            if self._running.get(job_id) is task:
                del self._running[job_id]

    def _due(self, job_id: str) -> None:
        self._timers.pop(job_id, None)
        self.add(job_id)

    async def _run(self, job_id: str) -> None:
        pause_s = _FIRST_PAUSE_S
        try:
            while True:
                self._again.discard(job_id)
                try:
                    await self._process(job_id)
                    pause_s = _FIRST_PAUSE_S
                except Exception:
                    log.exception(
                        "processing of a job failed, retrying", extra=fields(job_id=job_id, in_s=pause_s)
                    )
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                    continue
                if job_id not in self._again:
                    return
        finally:
            del self._running[job_id]
