"""Notices that this process did not run for a while: it was stopped, or its machine was suspended or overloaded.

What a reader has in memory is as old as the pause, until it has read what was stored meanwhile. A lease does not tell: an instance that
was paused for less than its lease, or is alone, keeps it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from muster_bus.lease_time import elapsed_s

log = logging.getLogger(__name__)

_TICK_S = 0.25
_LONGEST_S = 0.75
"""A process that has not run for longer was paused."""
_TRIES = 3


class PauseDetector:
    """Calls ``catch_up`` after each pause, which returns when everything that was stored before the call is read."""

    def __init__(self, catch_up: Callable[[], Awaitable[None]]) -> None:
        self._catch_up = catch_up
        self._ran_at = elapsed_s()

    @property
    def has_caught_up(self) -> bool:
        """Whether the process was not paused, or has caught up since; right from the first instruction after a pause."""
        return elapsed_s() - self._ran_at <= _LONGEST_S

    async def run(self) -> None:
        """Look for pauses until cancelled."""
        self._ran_at = elapsed_s()
        while True:
            await asyncio.sleep(_TICK_S)
            if not self.has_caught_up:
                log.info("this process did not run for %.1f s", elapsed_s() - self._ran_at)
                await self._resume()
            self._ran_at = elapsed_s()

    async def _resume(self) -> None:
        # A slow one may have been paused itself.
        for _ in range(_TRIES):
            began = elapsed_s()
            await self._catch_up()
            if elapsed_s() - began <= _LONGEST_S:
                return
