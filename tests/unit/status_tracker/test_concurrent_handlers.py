"""A partition has two tasks, for events and for deadlines: each may run while the other writes."""

from __future__ import annotations

import asyncio

import pytest

from muster_bus import StreamFull
from muster_core.events import Command

from .conftest import Partition, run_other_tasks

LATER_US = 3600 * 1_000_000


async def test_a_flush_waits_for_writes_of_passed_deadlines(partition: Partition) -> None:
    """Otherwise the event would be acknowledged without being stored."""
    await partition.submit()
    await partition.validate()
    partition.now += LATER_US
    partition.store.writable.clear()
    partition.store.failures.append(StreamFull("full"))
    expiring = asyncio.create_task(partition.handler.expire(partition.now))
    await run_other_tasks()
    flushing = asyncio.create_task(partition.handler.flush())
    await run_other_tasks()
    partition.store.writable.set()

    await asyncio.wait({expiring, flushing})
    assert isinstance(expiring.exception(), StreamFull)
    assert flushing.exception() is None
    assert partition.applied_sequence() == 2


async def test_a_deadline_that_passes_during_a_failed_write_is_handled_later(partition: Partition) -> None:
    await partition.submit()
    await partition.validate()
    partition.store.writable.clear()
    partition.store.failures.append(StreamFull("full"))
    flushing = asyncio.create_task(partition.handler.flush())
    await run_other_tasks()
    partition.now += LATER_US
    expiring = asyncio.create_task(partition.handler.expire(partition.now))
    await run_other_tasks()
    partition.store.writable.set()
    await asyncio.wait({expiring, flushing})
    assert isinstance(flushing.exception(), StreamFull)

    await partition.handler.flush()
    await partition.handler.expire(partition.now + LATER_US)
    ((stored, _),) = partition.publisher.published
    assert stored is not None


async def test_events_during_the_deletion_of_a_job_are_not_stored(partition: Partition) -> None:
    """Its time to live ends while its user deletes it."""
    await partition.submit()
    await partition.end()
    await partition.handler.flush()
    partition.now += LATER_US
    partition.store.deletable.clear()
    expiring = asyncio.create_task(partition.handler.expire(partition.now))
    await run_other_tasks()

    deleting = asyncio.create_task(partition.request(Command.DELETE))
    partition.store.deletable.set()
    async with asyncio.timeout(10):
        await expiring
        await deleting
    await partition.handler.flush()
    assert partition.cache.get("j-1") is None
    assert partition.store.stored == {}


async def test_a_record_is_not_deleted_while_it_is_stored(partition: Partition) -> None:
    await partition.submit()
    await partition.end()
    partition.store.writable.clear()
    flushing = asyncio.create_task(partition.handler.flush())
    await run_other_tasks()
    deleting = asyncio.create_task(partition.request(Command.DELETE))
    await run_other_tasks()
    assert not deleting.done()

    partition.store.writable.set()
    async with asyncio.timeout(10):
        await flushing
        await deleting
    assert partition.store.stored == {}


async def test_a_record_that_changes_during_its_last_attempt_is_retried(partition: Partition) -> None:
    await partition.submit()
    await partition.validate()
    partition.store.failures.extend(StreamFull("full") for _ in range(5))
    for _ in range(4):
        with pytest.raises(StreamFull):
            await partition.handler.flush()
    partition.now += LATER_US
    partition.store.writable.clear()
    expiring = asyncio.create_task(partition.handler.expire(partition.now))
    await run_other_tasks()
    ending = asyncio.create_task(partition.end())
    await run_other_tasks()
    partition.store.writable.set()
    await asyncio.wait({expiring, ending})

    await partition.handler.flush()
    assert partition.applied_sequence() == 3


async def test_a_write_in_flight_while_the_partition_is_lost_is_answered_first(partition: Partition) -> None:
    """Otherwise no instance would record the spans: the next owner finds the record stored."""
    await partition.submit()
    partition.store.writable.clear()
    flushing = asyncio.create_task(partition.handler.flush())
    await run_other_tasks()
    flushing.cancel()
    await run_other_tasks()
    assert not flushing.done()
    partition.store.writable.set()

    await asyncio.wait({flushing})
    assert flushing.cancelled()
    assert partition.recorder.told == {"j-1": partition.applied_sequence()}
