"""Several streams as one: what each source yields, as it comes, and no source outlives the reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def merged(sources: Sequence[AsyncGenerator[T]], *, ahead: int) -> AsyncGenerator[T]:
    """Yield what ``sources`` yield until all have ended; at most ``ahead`` elements are read before they are wanted.

    The sources are closed when the reader leaves, and when one of them fails, whose error is raised as an exception group.
    """
    queue: asyncio.Queue[tuple[T] | None] = asyncio.Queue(maxsize=ahead)

    async def read(source: AsyncGenerator[T]) -> None:
        async with aclosing(source):
            async for element in source:
                await queue.put((element,))

    async def read_all() -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for source in sources:
                    tasks.create_task(read(source))
        except asyncio.CancelledError:
            # The reader has left, and takes nothing from a full queue.
            raise
        except BaseException:
            await queue.put(None)
            raise
        await queue.put(None)

    reading = asyncio.create_task(read_all())
    try:
        while (element := await queue.get()) is not None:
            yield element[0]
        await reading
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
