"""Running a coroutine where there is no event loop, and none may be left behind: in the fixtures of a session."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


def run_beside(part: Coroutine[None, None, T]) -> T:
    """Run ``part`` to its end in a loop of its own; unlike ``asyncio.run`` it leaves the thread's current loop alone."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(part)
    finally:
        loop.close()
