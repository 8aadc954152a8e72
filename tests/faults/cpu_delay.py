"""For how long the broker and the services were ready to run and had no CPU.

A machine that does not let them run delays every status, whatever they do; the checker allows for it. The kernel counts the time for each
thread (`/proc/PID/task/TID/schedstat`, where it is available). A stopped process does not wait.
"""

from __future__ import annotations

import asyncio
import bisect
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

_EVERY_S = 0.2


class CpuDelay:
    """The waits of processes, as sums over time."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._waited: dict[Path, int] = {}
        self._sums: list[tuple[float, float]] = []

    @classmethod
    @asynccontextmanager
    async def watching(cls, pids: Callable[[], Iterable[int]]) -> AsyncGenerator[CpuDelay]:
        """Measure until the end of the block; `pids` returns the processes that run now."""
        cpu_delay = cls(pids)
        reading = asyncio.create_task(cpu_delay._read_repeatedly())
        try:
            yield cpu_delay
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    def waited_s(self, since: float, until: float) -> float:
        """Return how long the processes waited, one after the other, between two times of the monotonic clock."""
        before, after = (bisect.bisect(self._sums, (at, float("inf"))) - 1 for at in (since, until))
        if after < 0:
            return 0.0
        return self._sums[after][1] - self._sums[max(before, 0)][1]

    async def _read_repeatedly(self) -> None:
        total = 0.0
        while True:
            total += sum(self._read(pid) for pid in self._pids())
            self._sums.append((time.monotonic(), total))
            await asyncio.sleep(_EVERY_S)

    def _read(self, pid: int) -> float:
        """Return for how many seconds the thread of a process that waited longest has waited since the last look."""
        longest = 0
        with suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                waited = int((thread / "schedstat").read_text().split()[1])
                longest = max(longest, waited - self._waited.get(thread, waited))
                self._waited[thread] = waited
        return longest / 1e9
