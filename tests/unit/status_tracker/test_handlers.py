"""The records of a lane are kept when it settles, and before anything is done that was decided on them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from muster_bus import BusUnavailable, Refused, StreamFull
from muster_core.events import Command, JobFinished, Outcome

if TYPE_CHECKING:
    from .conftest import Lane

FAILURES = (BusUnavailable("away"), StreamFull("full"), ZeroDivisionError("by zero"))


async def test_a_record_is_kept_when_the_lane_settles_and_not_before(lane: Lane) -> None:
    await lane.submit()
    assert lane.bucket.written == []
    assert lane.shelf.get("j-1") is not None

    await lane.handler.settle()
    assert lane.folded() == 1


async def test_several_facts_of_a_job_are_one_write(lane: Lane) -> None:
    await lane.submit()
    await lane.validate()
    await lane.submit("j-2")
    await lane.handler.settle()

    assert [(record.job_id, record.folded) for record in lane.bucket.written] == [("j-1", 2), ("j-2", 3)]


async def test_a_lane_in_which_nothing_changed_writes_nothing(lane: Lane) -> None:
    await lane.submit()
    await lane.handler.settle()
    await lane.handler.settle()
    assert len(lane.bucket.written) == 1


async def test_a_decision_is_published_after_its_record_was_kept(lane: Lane) -> None:
    await lane.submit()
    await lane.ask(Command.CANCEL)

    ((kept, fact),) = lane.life.published
    assert kept is not None
    assert kept.folded == 2
    assert isinstance(fact, JobFinished)
    assert fact.outcome is Outcome.CANCELLED


async def test_a_decision_waits_for_the_write_of_its_record(lane: Lane) -> None:
    await lane.submit()
    lane.bucket.open.clear()
    asking = asyncio.create_task(lane.ask(Command.CANCEL))
    await asyncio.sleep(0.01)
    assert len(lane.bucket.written) == 1
    assert lane.life.published == []

    lane.bucket.open.set()
    await asking
    assert len(lane.life.published) == 1


async def test_a_deadline_that_passes_is_acted_on_after_the_record_was_kept(lane: Lane) -> None:
    await lane.submit()
    await lane.validate()
    lane.now += 3600 * 1_000_000
    await lane.handler.expire(lane.now)

    ((kept, fact),) = lane.life.published
    assert kept is not None
    assert kept.folded == 2
    assert isinstance(fact, JobFinished)
    assert fact.outcome is Outcome.TIMED_OUT


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_write_that_fails_is_tried_again_at_the_next_settle(lane: Lane, failure: Exception) -> None:
    await lane.submit()
    await lane.submit("j-2")
    lane.bucket.failures.append(failure)
    with pytest.raises(type(failure)):
        await lane.handler.settle()
    assert lane.folded("j-2") == 2

    await lane.handler.settle()
    assert lane.folded() == 1


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_decision_whose_record_cannot_be_kept_is_taken_later(lane: Lane, failure: Exception) -> None:
    await lane.submit()
    lane.bucket.failures.append(failure)
    with pytest.raises(type(failure)):
        await lane.ask(Command.CANCEL)
    assert lane.life.published == []

    await lane.handler.expire(lane.now)
    ((kept, _),) = lane.life.published
    assert kept is not None


async def test_what_happens_while_a_record_is_written_is_kept_next(lane: Lane) -> None:
    await lane.submit()
    lane.bucket.open.clear()
    settling = asyncio.create_task(lane.handler.settle())
    await asyncio.sleep(0.01)
    validating = asyncio.create_task(lane.validate())
    await asyncio.sleep(0.01)
    lane.bucket.open.set()
    async with asyncio.timeout(10):
        await settling
        await validating

    await lane.handler.settle()
    assert [record.folded for record in lane.bucket.written] == [1, 2]


async def test_a_record_that_cannot_be_kept_five_times_is_given_up(
    lane: Lane, caplog: pytest.LogCaptureFixture
) -> None:
    await lane.submit()
    for _ in range(4):
        lane.bucket.failures.append(Refused("too large"))
        with pytest.raises(Refused):
            await lane.handler.settle()
    assert caplog.messages == []
    await lane.submit("j-2")
    lane.bucket.failures.append(Refused("too large"))

    with caplog.at_level(logging.ERROR):
        await lane.handler.settle()
    assert caplog.messages == ["a record is not kept"]
    assert list(lane.bucket.kept) == ["j-2"]
    await lane.handler.settle()
    assert len(lane.bucket.written) == 6


async def test_a_record_that_was_given_up_is_tried_anew_with_the_next_fact(lane: Lane) -> None:
    await lane.submit()
    lane.bucket.failures.extend(Refused("too large") for _ in range(5))
    for _ in range(4):
        with pytest.raises(Refused):
            await lane.handler.settle()
    await lane.handler.settle()

    await lane.validate()
    await lane.handler.settle()
    assert lane.folded() == 2


async def test_a_record_for_which_there_is_no_room_is_tried_until_there_is(lane: Lane) -> None:
    await lane.submit()
    lane.bucket.failures.extend(StreamFull("full") for _ in range(9))
    for _ in range(9):
        with pytest.raises(StreamFull):
            await lane.handler.settle()
    await lane.handler.settle()
    assert lane.folded() == 1


async def test_a_job_that_was_forgotten_meanwhile_is_dropped(lane: Lane) -> None:
    await lane.submit()
    lane.bucket.stands = False
    await lane.handler.settle()

    assert lane.shelf.get("j-1") is None
    await lane.handler.settle()
    assert len(lane.bucket.written) == 1


async def test_a_job_that_was_forgotten_meanwhile_is_not_decided_on(lane: Lane) -> None:
    await lane.submit()
    lane.bucket.stands = False
    await lane.ask(Command.CANCEL)
    assert lane.life.published == []


async def test_no_write_brings_a_forgotten_job_back(lane: Lane) -> None:
    await lane.submit()
    await lane.end()
    await lane.ask(Command.DELETE)
    assert lane.bucket.kept == {}
    assert lane.shelf.get("j-1") is None

    written = len(lane.bucket.written)
    await lane.handler.settle()
    await lane.handler.expire(lane.now)
    assert len(lane.bucket.written) == written
    assert lane.bucket.kept == {}
