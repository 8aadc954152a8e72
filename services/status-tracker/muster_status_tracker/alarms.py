"""When each job of a partition is to be looked at again although nothing happens to it.

Nothing of this is kept: the instants follow from the records, so that whoever takes a partition over has them when it has those.
"""

from __future__ import annotations

import asyncio
import heapq

_US = 1_000_000
_SHORTEST_S = 0.01


class Alarms:
    """One instant (µs) for each job, or none."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        self._sooner = asyncio.Event()

    def set(self, job_id: str, at: int | None) -> None:
        """Look at the job again at this instant, and not at the one that was set before."""
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
        """The earliest instant."""
        while self._heap:
            at, job_id = self._heap[0]
            if self._at.get(job_id) == at:
                return at
            heapq.heappop(self._heap)
        return None

    def ring(self, now: int) -> set[str]:
        """The jobs whose instant has come; each rings once."""
        rung: set[str] = set()
        while (at := self.next()) is not None and at <= now:
            _, job_id = heapq.heappop(self._heap)
            del self._at[job_id]
            rung.add(job_id)
        return rung

    async def wait(self, now: int, *, at_most_s: float) -> None:
        """Return when the earliest instant has come, when another became the earliest, or after ``at_most_s`` seconds."""
        self._sooner.clear()
        at = self.next()
        delay_s = at_most_s if at is None else min(max((at - now) / _US, _SHORTEST_S), at_most_s)
        try:
            async with asyncio.timeout(delay_s):
                await self._sooner.wait()
        except TimeoutError:
            return
