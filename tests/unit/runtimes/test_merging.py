"""Several streams as one: nothing of them is left when the reader leaves or one of them fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from muster_runtimes.merging import merged


class Source:
    """Yields numbers without end, or fails after ``fails_after``; ``closed`` when its generator is."""

    def __init__(self, fails_after: int | None = None) -> None:
        self.read = 0
        self.closed = False
        self._fails_after = fails_after

    async def numbers(self) -> AsyncGenerator[int]:
        """Yield 1, 2, 3, ..."""
        try:
            while self.read != self._fails_after:
                self.read += 1
                yield self.read
                await asyncio.sleep(0)
            raise OSError("the source fails")
        finally:
            self.closed = True


async def finite(*numbers: int) -> AsyncGenerator[int]:
    for number in numbers:
        yield number


async def test_everything_is_yielded_until_all_sources_have_ended() -> None:
    async with aclosing(merged([finite(1, 2), finite(), finite(3)], ahead=1)) as numbers:
        assert sorted([number async for number in numbers]) == [1, 2, 3]


async def test_a_reader_that_leaves_while_the_queue_is_full_leaves_no_source_and_no_task() -> None:
    before = asyncio.all_tasks()
    sources = [Source(), Source()]
    async with aclosing(merged([source.numbers() for source in sources], ahead=2)) as numbers:
        await anext(numbers)
        for _ in range(20):
            await asyncio.sleep(0)
        assert all(source.read <= 4 for source in sources)

    assert all(source.closed for source in sources)
    assert asyncio.all_tasks() == before


async def test_the_failure_of_one_source_ends_the_others_and_reaches_the_reader() -> None:
    sources = [Source(fails_after=3), Source()]
    with pytest.raises(ExceptionGroup) as raised:
        async with aclosing(merged([source.numbers() for source in sources], ahead=1)) as numbers:
            async for _ in numbers:
                pass

    assert raised.value.subgroup(OSError)
    assert all(source.closed for source in sources)
