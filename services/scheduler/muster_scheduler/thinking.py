"""The state of a pool, for one at a time: what takes long is worked out in a thread, while the lease is renewed and calls are answered.

A decision and an explanation try things on the state itself and take them back in the end. So nobody may look at it meanwhile, and no
event may be folded into it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from threading import Event
from typing import TypeVar

from muster_core.scheduling import PoolState

T = TypeVar("T")

_MOMENT_S = 0.1


class Thinking:
    """Turns at ``state``; it belongs to one event loop."""

    def __init__(self, state: PoolState) -> None:
        self._state = state
        self._turn = asyncio.Lock()
        self._at_rest = Event()
        self._at_rest.set()

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[PoolState]:
        """The state for as long as the block lasts, for what is short."""
        async with self._turn:
            yield self._state

    async def about(self, question: Callable[[PoolState], T]) -> T:
        """Work ``question`` out in a thread. Who is cancelled meanwhile has to wait for its end: nobody takes his turn before."""
        async with self._turn:
            self._at_rest.clear()
            answer = asyncio.ensure_future(asyncio.to_thread(self._work_out, question))
            try:
                return await asyncio.shield(answer)
            except asyncio.CancelledError:
                await asyncio.wait({answer})
                raise

    def glance(self, question: Callable[[PoolState], T]) -> T | None:
        """The answer to what is quickly answered, for who cannot await; None while something is worked out that takes longer than a moment.

        It must be asked in the loop's own thread, so that nobody begins a turn meanwhile.
        """
        return question(self._state) if self._at_rest.wait(_MOMENT_S) else None

    def _work_out(self, question: Callable[[PoolState], T]) -> T:
        try:
            return question(self._state)
        finally:
            self._at_rest.set()
