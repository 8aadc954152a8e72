"""The records of a partition are kept when it settles, and before anything is done that was decided on them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from muster_bus import BusUnavailable, Refused, StreamFull
from muster_core.events import Command, JobFinished, Outcome

if TYPE_CHECKING:
    from .conftest import Partition

FAILURES = (BusUnavailable("away"), StreamFull("full"), ZeroDivisionError("by zero"))


async def test_a_record_is_kept_when_the_partition_settles_and_not_before(partition: Partition) -> None:
    await partition.submit()
    assert partition.bucket.written == []
    assert partition.shelf.get("j-1") is not None

    await partition.handler.settle()
    assert partition.applied_sequence() == 1


async def test_several_events_of_a_job_are_one_write(partition: Partition) -> None:
    await partition.submit()
    await partition.validate()
    await partition.submit("j-2")
    await partition.handler.settle()

    assert [(record.job_id, record.applied_sequence) for record in partition.bucket.written] == [
        ("j-1", 2),
        ("j-2", 3),
    ]


async def test_a_partition_in_which_nothing_changed_writes_nothing(partition: Partition) -> None:
    await partition.submit()
    await partition.handler.settle()
    await partition.handler.settle()
    assert len(partition.bucket.written) == 1


async def test_a_decision_is_published_after_its_record_was_kept(partition: Partition) -> None:
    await partition.submit()
    await partition.ask(Command.CANCEL)

    ((kept, event),) = partition.life.published
    assert kept is not None
    assert kept.applied_sequence == 2
    assert isinstance(event, JobFinished)
    assert event.outcome is Outcome.CANCELLED


async def test_a_decision_waits_for_the_write_of_its_record(partition: Partition) -> None:
    await partition.submit()
    partition.bucket.open.clear()
    asking = asyncio.create_task(partition.ask(Command.CANCEL))
    await asyncio.sleep(0.01)
    assert len(partition.bucket.written) == 1
    assert partition.life.published == []

    partition.bucket.open.set()
    await asking
    assert len(partition.life.published) == 1


async def test_a_deadline_that_passes_is_acted_on_after_the_record_was_kept(partition: Partition) -> None:
    await partition.submit()
    await partition.validate()
    partition.now += 3600 * 1_000_000
    await partition.handler.expire(partition.now)

    ((kept, event),) = partition.life.published
    assert kept is not None
    assert kept.applied_sequence == 2
    assert isinstance(event, JobFinished)
    assert event.outcome is Outcome.TIMED_OUT


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_write_that_fails_is_tried_again_at_the_next_settle(
    partition: Partition, failure: Exception
) -> None:
    await partition.submit()
    await partition.submit("j-2")
    partition.bucket.failures.append(failure)
    with pytest.raises(type(failure)):
        await partition.handler.settle()
    assert partition.applied_sequence("j-2") == 2

    await partition.handler.settle()
    assert partition.applied_sequence() == 1


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_decision_whose_record_cannot_be_kept_is_taken_later(
    partition: Partition, failure: Exception
) -> None:
    await partition.submit()
    partition.bucket.failures.append(failure)
    with pytest.raises(type(failure)):
        await partition.ask(Command.CANCEL)
    assert partition.life.published == []

    await partition.handler.expire(partition.now)
    ((kept, _),) = partition.life.published
    assert kept is not None


async def test_what_happens_while_a_record_is_written_is_kept_next(partition: Partition) -> None:
    await partition.submit()
    partition.bucket.open.clear()
    settling = asyncio.create_task(partition.handler.settle())
    await asyncio.sleep(0.01)
    validating = asyncio.create_task(partition.validate())
    await asyncio.sleep(0.01)
    partition.bucket.open.set()
    async with asyncio.timeout(10):
        await settling
        await validating

    await partition.handler.settle()
    assert [record.applied_sequence for record in partition.bucket.written] == [1, 2]


async def test_a_record_that_cannot_be_kept_five_times_is_given_up(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    await partition.submit()
    for _ in range(4):
        partition.bucket.failures.append(Refused("too large"))
        with pytest.raises(Refused):
            await partition.handler.settle()
    assert caplog.messages == []
    await partition.submit("j-2")
    partition.bucket.failures.append(Refused("too large"))

    with caplog.at_level(logging.ERROR):
        await partition.handler.settle()
    assert caplog.messages == ["a record is not kept"]
    assert list(partition.bucket.kept) == ["j-2"]
    await partition.handler.settle()
    assert len(partition.bucket.written) == 6


async def test_a_record_that_was_given_up_is_tried_anew_with_the_next_event(partition: Partition) -> None:
    await partition.submit()
    partition.bucket.failures.extend(Refused("too large") for _ in range(5))
    for _ in range(4):
        with pytest.raises(Refused):
            await partition.handler.settle()
    await partition.handler.settle()

    await partition.validate()
    await partition.handler.settle()
    assert partition.applied_sequence() == 2


async def test_a_record_for_which_there_is_no_room_is_tried_until_there_is(partition: Partition) -> None:
    await partition.submit()
    partition.bucket.failures.extend(StreamFull("full") for _ in range(9))
    for _ in range(9):
        with pytest.raises(StreamFull):
            await partition.handler.settle()
    await partition.handler.settle()
    assert partition.applied_sequence() == 1


async def test_a_job_that_was_forgotten_meanwhile_is_dropped(partition: Partition) -> None:
    await partition.submit()
    partition.bucket.stands = False
    await partition.handler.settle()

    assert partition.shelf.get("j-1") is None
    await partition.handler.settle()
    assert len(partition.bucket.written) == 1


async def test_a_job_that_was_forgotten_meanwhile_is_not_decided_on(partition: Partition) -> None:
    await partition.submit()
    partition.bucket.stands = False
    await partition.ask(Command.CANCEL)
    assert partition.life.published == []


async def test_no_write_brings_a_forgotten_job_back(partition: Partition) -> None:
    await partition.submit()
    await partition.end()
    await partition.ask(Command.DELETE)
    assert partition.bucket.kept == {}
    assert partition.shelf.get("j-1") is None

    written = len(partition.bucket.written)
    await partition.handler.settle()
    await partition.handler.expire(partition.now)
    assert len(partition.bucket.written) == written
    assert partition.bucket.kept == {}
