"""Background tasks of a test, and polling for conditions without a notification."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Self, TypeVar

_POLL_S = 0.01

T = TypeVar("T")


class Background:
    """Runs coroutines beside the test and cancels them at its end."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, part: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run ``part`` until the end of the test."""
        task = asyncio.create_task(part)
        self._tasks.append(task)
        return task

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=10)


async def eventually(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    """Return once ``condition`` holds; raises ``TimeoutError``."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(_POLL_S)


async def answered(ask: Callable[[], Awaitable[T]], timeout_s: float = 20) -> T:
    """Return the first true result of ``ask``; raises ``TimeoutError``."""
    async with asyncio.timeout(timeout_s):
        while True:
            if answer := await ask():
                return answer
            await asyncio.sleep(_POLL_S)
