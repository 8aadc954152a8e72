"""Time as something that is handed in: whoever waits asks a clock, so that a test can turn its hands."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time and lets one wait for it."""

    def now_ns(self) -> int:
        """Nanoseconds since 1970, UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`; at once, but not before others had a turn, when they are 0 or fewer."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ns(self) -> int:
        """Nanoseconds since 1970, UTC."""
        return time.time_ns()

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of real time."""
        await asyncio.sleep(max(0.0, seconds))
