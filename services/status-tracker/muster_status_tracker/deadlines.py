"""Deadlines of the jobs of a partition: when to evaluate each job again without an event.

Deadlines follow from the records, so a new owner of the partition has them as soon as it has the records.
"""

from __future__ import annotations

import asyncio
import heapq

_US = 1_000_000
_SHORTEST_S = 0.01


class DeadlineQueue:
    """One deadline (µs) for each job, or none."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        self._sooner = asyncio.Event()

    def set(self, job_id: str, at: int | None) -> None:
        """Replace the deadline of a job; None removes it."""
        if at is None:
            self._at.pop(job_id, None)
            return
        if self._at.get(job_id) == at:
            return
        first = self.next()
        self._at[job_id] = at
        heapq.heappush(self._heap, (at, job_id))
        if first is None or at < first:
            self._sooner.set()

    def next(self) -> int | None:
        """Return the earliest deadline, or None."""
        while self._heap:
            at, job_id = self._heap[0]
            if self._at.get(job_id) == at:
                return at
            heapq.heappop(self._heap)
        return None

    def take_due(self, now: int) -> set[str]:
        """Remove and return the jobs whose deadline has passed."""
        due: set[str] = set()
        while (at := self.next()) is not None and at <= now:
            _, job_id = heapq.heappop(self._heap)
            del self._at[job_id]
            due.add(job_id)
        return due

    async def wait(self, now: int, *, at_most_s: float) -> None:
        """Return at the earliest deadline, when an earlier one is set, or after ``at_most_s`` seconds."""
        self._sooner.clear()
        at = self.next()
        delay_s = at_most_s if at is None else min(max((at - now) / _US, _SHORTEST_S), at_most_s)
        try:
            async with asyncio.timeout(delay_s):
                await self._sooner.wait()
        except TimeoutError:
            return
