"""How much longer than its CPU time a process takes: `python cpu_delay.py` works a little, again and again, and prints what it waited.

The services run with the same priority. A machine that does not let them run delays every status, whatever the services do; the checker
allows for it. The kernel says for how long some task has waited for a CPU (pressure stall information, where it is available).
"""

from __future__ import annotations

import asyncio
import bisect
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

_PAUSE_S = 0.1
_WORK_S = 0.005
_WORTH_S = 0.005
_WINDOW_S = 3.0
_PRESSURE = Path("/proc/pressure/cpu")
_PRESSURE_EVERY_S = 0.2


class CpuDelay:
    """The delays that such a process has had."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, float]] = []
        self._stalled: list[tuple[float, float]] = []

    @classmethod
    @asynccontextmanager
    async def watching(cls) -> AsyncGenerator[CpuDelay]:
        """Measure until the end of the block."""
        cpu_delay = cls()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", str(Path(__file__)), stdout=asyncio.subprocess.PIPE
        )
        reading = [asyncio.create_task(one) for one in (cpu_delay._read(process), cpu_delay._read_pressure())]
        try:
            yield cpu_delay
        finally:
            process.kill()
            await process.wait()
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)

    def lag_s(self, at: float) -> float:
        """Return the longest delay in the seconds before a time of the monotonic clock."""
        return max((lag for when, lag in self._seen if at - _WINDOW_S <= when), default=0.0)

    def stalled_s(self, since: float, until: float) -> float:
        """Return for how many seconds of this time of the monotonic clock some task waited for a CPU."""
        before, after = (bisect.bisect(self._stalled, (at, float("inf"))) - 1 for at in (since, until))
        if after < 0:
            return 0.0
        return self._stalled[after][1] - self._stalled[max(before, 0)][1]

    async def _read_pressure(self) -> None:
        while _PRESSURE.exists():
            some = _PRESSURE.read_text().split("\n", 1)[0]
            self._stalled.append((time.monotonic(), int(some.rpartition("=")[2]) / 1e6))
            await asyncio.sleep(_PRESSURE_EVERY_S)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            at, lag = map(float, line.split())
            self._seen.append((at, lag))


def main() -> None:
    """Print the time and the length of every delay that matters."""
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    while True:
        began = time.monotonic()
        time.sleep(_PAUSE_S)
        used = time.thread_time()
        while time.thread_time() - used < _WORK_S:
            pass
        now = time.monotonic()
        waited = now - began - _PAUSE_S - _WORK_S
        if waited > _WORTH_S:
            sys.stdout.write(f"{now:.4f} {waited:.4f}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
