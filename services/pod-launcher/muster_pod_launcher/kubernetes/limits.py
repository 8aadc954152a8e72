"""How hard one launcher leans on the API server: so many requests at once, so many a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Limits:
    """``in_flight`` requests at once; ``per_second`` on average, as many at once as fall into a second (0: no bound)."""

    def __init__(self, *, in_flight: int, per_second: float) -> None:
        self._room = asyncio.Semaphore(in_flight)
        self._gap = 1.0 / per_second if per_second else 0.0
        self._burst = 1.0
        self._next = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Wait for one's turn, and have it."""
        async with self._room:
            if self._gap:
                await self._pace()
            yield

    async def _pace(self) -> None:
        now = asyncio.get_running_loop().time()
        # Time that nobody used is saved up to the burst.
        self._next = max(self._next, now - self._burst) + self._gap
        if self._next > now:
            await asyncio.sleep(self._next - now)
