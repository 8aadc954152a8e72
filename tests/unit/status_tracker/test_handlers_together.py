"""A partition has two tasks, the feed's and that of the deadlines: what either does while the other writes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from muster_bus import StreamFull
from muster_core.events import Command

if TYPE_CHECKING:
    from .conftest import Partition

LATER_US = 3600 * 1_000_000


async def test_a_partition_is_not_settled_while_a_deadline_still_writes_a_record(
    partition: Partition,
) -> None:
    """Else the event would be acknowledged, and nowhere be kept."""
    await partition.submit()
    await partition.validate()
    partition.now += LATER_US
    partition.bucket.open.clear()
    partition.bucket.failures.append(StreamFull("full"))
    expiring = asyncio.create_task(partition.handler.expire(partition.now))
    await asyncio.sleep(0.01)
    settling = asyncio.create_task(partition.handler.settle())
    await asyncio.sleep(0.01)
    partition.bucket.open.set()

    await asyncio.wait({expiring, settling})
    assert isinstance(expiring.exception(), StreamFull)
    assert settling.exception() is not None or partition.applied_sequence() == 2


async def test_a_deadline_that_passes_while_a_write_fails_is_acted_on_later(partition: Partition) -> None:
    await partition.submit()
    await partition.validate()
    partition.bucket.open.clear()
    partition.bucket.failures.append(StreamFull("full"))
    settling = asyncio.create_task(partition.handler.settle())
    await asyncio.sleep(0.01)
    partition.now += LATER_US
    expiring = asyncio.create_task(partition.handler.expire(partition.now))
    await asyncio.sleep(0.01)
    partition.bucket.open.set()
    await asyncio.wait({expiring, settling})
    assert isinstance(settling.exception(), StreamFull)

    await partition.handler.settle()
    await partition.handler.expire(partition.now + LATER_US)
    ((kept, _),) = partition.life.published
    assert kept is not None


async def test_what_is_told_of_a_job_while_it_is_forgotten_is_not_kept(partition: Partition) -> None:
    """Its time is over and its user deletes it, at the same moment."""
    await partition.submit()
    await partition.end()
    await partition.handler.settle()
    partition.now += LATER_US
    partition.bucket.lets_go.clear()
    forgetting = asyncio.create_task(partition.handler.expire(partition.now))
    await asyncio.sleep(0.01)

    deleting = asyncio.create_task(partition.ask(Command.DELETE))
    partition.bucket.lets_go.set()
    async with asyncio.timeout(10):
        await forgetting
        await deleting
    await partition.handler.settle()
    assert partition.shelf.get("j-1") is None
    assert partition.bucket.kept == {}


async def test_a_record_that_changes_during_its_last_try_is_tried_once_more(partition: Partition) -> None:
    await partition.submit()
    await partition.validate()
    partition.bucket.failures.extend(StreamFull("full") for _ in range(5))
    for _ in range(4):
        with pytest.raises(StreamFull):
            await partition.handler.settle()
    partition.now += LATER_US
    partition.bucket.open.clear()
    expiring = asyncio.create_task(partition.handler.expire(partition.now))
    await asyncio.sleep(0.01)
    ending = asyncio.create_task(partition.end())
    await asyncio.sleep(0.01)
    partition.bucket.open.set()
    await asyncio.wait({expiring, ending})

    await partition.handler.settle()
    assert partition.applied_sequence() == 3
