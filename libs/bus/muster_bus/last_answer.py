"""Calls whose outcome matters to an instance that is just losing its work: another instance continues, and must know who did what."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

_GRACE_S = 1.0


async def until_answered(call: Coroutine[None, None, T], *, grace_s: float = _GRACE_S) -> T:
    """Return the result of ``call``; on a cancellation, let it go on for up to ``grace_s`` seconds first.

    A message that is in flight may be stored although its sender is cancelled: ``call`` includes what depends on the answer.
    """
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        done, _ = await asyncio.wait([task], timeout=grace_s)
        if not done:
            task.cancel()
        elif not task.cancelled() and (error := task.exception()) is not None:
            log.info("the last call of this instance failed: %s", error)
        raise
