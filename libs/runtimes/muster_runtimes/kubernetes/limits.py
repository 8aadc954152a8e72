"""How hard one launcher leans on the API server: so many requests at once, so many a second."""

from __future__ import annotations

import asyncio
from types import TracebackType


class Limits:
    """``in_flight`` requests at once; ``per_second`` on average, as many at once as fall into a second (0: no bound).

    ``async with`` it to wait for one's turn, and to have it.
    """

    def __init__(self, *, in_flight: int, per_second: float) -> None:
        self._room = asyncio.Semaphore(in_flight)
        self._gap = 1.0 / per_second if per_second else 0.0
        self._burst = 1.0
        self._next = 0.0

    async def __aenter__(self) -> None:
        await self._room.acquire()
        if not self._gap:
            return
        try:
            await self._pace()
        except BaseException:
            self._room.release()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._room.release()

    async def _pace(self) -> None:
        now = asyncio.get_running_loop().time()
        # Time that nobody used is saved up to the burst.
        self._next = max(self._next, now - self._burst) + self._gap
        if self._next > now:
            await asyncio.sleep(self._next - now)
