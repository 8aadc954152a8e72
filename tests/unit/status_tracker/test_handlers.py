"""Records are stored at a flush, and before a decision based on them takes effect."""

from __future__ import annotations

import asyncio
import logging

import pytest

from muster_bus import BusRejected, BusUnavailable, StreamFull
from muster_core.events import Command, JobFinished, Outcome

from .conftest import Partition, run_other_tasks

FAILURES = (BusUnavailable("no response"), StreamFull("full"), ZeroDivisionError("by zero"))


async def test_a_record_is_stored_at_the_flush(partition: Partition) -> None:
    await partition.submit()
    assert partition.store.written == []
    assert partition.cache.get("j-1") is not None

    await partition.handler.flush()
    assert partition.applied_sequence() == 1


async def test_several_events_of_a_job_are_one_write(partition: Partition) -> None:
    await partition.submit()
    await partition.validate()
    await partition.submit("j-2")
    await partition.handler.flush()

    assert [(record.job_id, record.applied_sequence) for record in partition.store.written] == [
        ("j-1", 2),
        ("j-2", 3),
    ]


async def test_an_unchanged_partition_writes_nothing(partition: Partition) -> None:
    await partition.submit()
    await partition.handler.flush()
    await partition.handler.flush()
    assert len(partition.store.written) == 1


async def test_a_decision_is_published_after_its_record_is_stored(partition: Partition) -> None:
    await partition.submit()
    await partition.request(Command.CANCEL)

    ((stored, event),) = partition.publisher.published
    assert stored is not None
    assert stored.applied_sequence == 2
    assert isinstance(event, JobFinished)
    assert event.outcome is Outcome.CANCELLED


async def test_a_decision_waits_for_the_write_of_its_record(partition: Partition) -> None:
    await partition.submit()
    partition.store.writable.clear()
    requesting = asyncio.create_task(partition.request(Command.CANCEL))
    await run_other_tasks()
    assert len(partition.store.written) == 1
    assert partition.publisher.published == []

    partition.store.writable.set()
    await requesting
    assert len(partition.publisher.published) == 1


async def test_a_passed_deadline_is_handled_after_the_record_is_stored(partition: Partition) -> None:
    await partition.submit()
    await partition.validate()
    partition.now += 3600 * 1_000_000
    await partition.handler.expire(partition.now)

    ((stored, event),) = partition.publisher.published
    assert stored is not None
    assert stored.applied_sequence == 2
    assert isinstance(event, JobFinished)
    assert event.outcome is Outcome.TIMED_OUT


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failed_write_is_retried_at_the_next_flush(partition: Partition, failure: Exception) -> None:
    await partition.submit()
    await partition.submit("j-2")
    partition.store.failures.append(failure)
    with pytest.raises(type(failure)):
        await partition.handler.flush()
    assert partition.applied_sequence("j-2") == 2

    await partition.handler.flush()
    assert partition.applied_sequence() == 1


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_decision_waits_until_its_record_can_be_stored(
    partition: Partition, failure: Exception
) -> None:
    await partition.submit()
    partition.store.failures.append(failure)
    with pytest.raises(type(failure)):
        await partition.request(Command.CANCEL)
    assert partition.publisher.published == []

    await partition.handler.expire(partition.now)
    ((stored, _),) = partition.publisher.published
    assert stored is not None


async def test_changes_during_a_write_are_stored_next(partition: Partition) -> None:
    await partition.submit()
    partition.store.writable.clear()
    flushing = asyncio.create_task(partition.handler.flush())
    await run_other_tasks()
    validating = asyncio.create_task(partition.validate())
    await run_other_tasks()
    partition.store.writable.set()
    async with asyncio.timeout(10):
        await flushing
        await validating

    await partition.handler.flush()
    assert [record.applied_sequence for record in partition.store.written] == [1, 2]


async def test_a_record_is_given_up_after_five_failed_writes(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    await partition.submit()
    for _ in range(4):
        partition.store.failures.append(BusRejected("too large"))
        with pytest.raises(BusRejected):
            await partition.handler.flush()
    assert caplog.messages == []
    await partition.submit("j-2")
    partition.store.failures.append(BusRejected("too large"))

    with caplog.at_level(logging.ERROR):
        await partition.handler.flush()
    assert caplog.messages == ["a record cannot be stored"]
    assert list(partition.store.stored) == ["j-2"]
    await partition.handler.flush()
    assert len(partition.store.written) == 6


async def test_a_record_that_was_given_up_is_retried_with_the_next_event(partition: Partition) -> None:
    await partition.submit()
    partition.store.failures.extend(BusRejected("too large") for _ in range(5))
    for _ in range(4):
        with pytest.raises(BusRejected):
            await partition.handler.flush()
    await partition.handler.flush()

    await partition.validate()
    await partition.handler.flush()
    assert partition.applied_sequence() == 2


async def test_a_write_to_a_full_stream_is_retried_until_there_is_space(partition: Partition) -> None:
    await partition.submit()
    partition.store.failures.extend(StreamFull("full") for _ in range(9))
    for _ in range(9):
        with pytest.raises(StreamFull):
            await partition.handler.flush()
    await partition.handler.flush()
    assert partition.applied_sequence() == 1


async def test_a_job_deleted_by_another_owner_is_dropped(partition: Partition) -> None:
    await partition.submit()
    partition.store.exists = False
    await partition.handler.flush()

    assert partition.cache.get("j-1") is None
    await partition.handler.flush()
    assert len(partition.store.written) == 1


async def test_a_job_deleted_by_another_owner_gets_no_decision(partition: Partition) -> None:
    await partition.submit()
    partition.store.exists = False
    await partition.request(Command.CANCEL)
    assert partition.publisher.published == []


async def test_a_record_is_not_stored_again_before_it_is_deleted(partition: Partition) -> None:
    await partition.submit()
    await partition.end()
    await partition.handler.flush()
    written = len(partition.store.written)
    await partition.request(Command.DELETE)

    assert partition.store.stored == {}
    assert len(partition.store.written) == written


async def test_no_write_restores_a_deleted_job(partition: Partition) -> None:
    await partition.submit()
    await partition.end()
    await partition.request(Command.DELETE)
    assert partition.store.stored == {}
    assert partition.cache.get("j-1") is None

    written = len(partition.store.written)
    await partition.handler.flush()
    await partition.handler.expire(partition.now)
    assert len(partition.store.written) == written
    assert partition.store.stored == {}
