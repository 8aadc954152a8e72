"""Exclusive access to the state of a pool; long calculations run in a thread, while the event loop renews the lease.

A scheduling cycle and an explanation make tentative changes of the state and roll them back. Meanwhile nothing else may read
the state, and no event may be applied to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from threading import Event
from typing import TypeVar

from muster_core.scheduling import PoolState

T = TypeVar("T")

_BRIEF_S = 0.1


class StateAccess:
    """Access to ``state``, from one event loop."""

    def __init__(self, state: PoolState) -> None:
        self._state = state
        self._lock = asyncio.Lock()
        self._idle = Event()
        self._idle.set()

    @asynccontextmanager
    async def exclusive(self) -> AsyncGenerator[PoolState]:
        """Lock the state for the block, which must be short."""
        async with self._lock:
            yield self._state

    async def in_thread(self, calculate: Callable[[PoolState], T]) -> T:
        """Run ``calculate`` in a thread. A cancelled caller waits for its end, so that the state stays locked until then."""
        async with self._lock:
            self._idle.clear()
            calculation = asyncio.ensure_future(asyncio.to_thread(self._calculate, calculate))
            try:
                return await asyncio.shield(calculation)
            except asyncio.CancelledError:
                await asyncio.wait({calculation})
                raise

    def try_briefly(self, calculate: Callable[[PoolState], T]) -> T | None:
        """Run a short ``calculate`` without awaiting; returns None while a calculation takes longer than 100 ms.

        Call it in the thread of the event loop, so that no other access begins meanwhile.
        """
        return calculate(self._state) if self._idle.wait(_BRIEF_S) else None

    def _calculate(self, calculate: Callable[[PoolState], T]) -> T:
        try:
            return calculate(self._state)
        finally:
            self._idle.set()
