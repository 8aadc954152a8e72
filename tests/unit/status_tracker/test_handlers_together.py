"""A lane has two tasks, the feed's and that of the deadlines: what either does while the other writes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from muster_bus import StreamFull
from muster_core.events import Command

if TYPE_CHECKING:
    from .conftest import Lane

LATER_US = 3600 * 1_000_000


async def test_a_lane_is_not_settled_while_a_deadline_still_writes_a_record(lane: Lane) -> None:
    """Else the fact would be acknowledged, and nowhere be kept."""
    await lane.submit()
    await lane.validate()
    lane.now += LATER_US
    lane.bucket.open.clear()
    lane.bucket.failures.append(StreamFull("full"))
    expiring = asyncio.create_task(lane.handler.expire(lane.now))
    await asyncio.sleep(0.01)
    settling = asyncio.create_task(lane.handler.settle())
    await asyncio.sleep(0.01)
    lane.bucket.open.set()

    await asyncio.wait({expiring, settling})
    assert isinstance(expiring.exception(), StreamFull)
    assert settling.exception() is not None or lane.folded() == 2


async def test_a_deadline_that_passes_while_a_write_fails_is_acted_on_later(lane: Lane) -> None:
    await lane.submit()
    await lane.validate()
    lane.bucket.open.clear()
    lane.bucket.failures.append(StreamFull("full"))
    settling = asyncio.create_task(lane.handler.settle())
    await asyncio.sleep(0.01)
    lane.now += LATER_US
    expiring = asyncio.create_task(lane.handler.expire(lane.now))
    await asyncio.sleep(0.01)
    lane.bucket.open.set()
    await asyncio.wait({expiring, settling})
    assert isinstance(settling.exception(), StreamFull)

    await lane.handler.settle()
    await lane.handler.expire(lane.now + LATER_US)
    ((kept, _),) = lane.life.published
    assert kept is not None


async def test_what_is_told_of_a_job_while_it_is_forgotten_is_not_kept(lane: Lane) -> None:
    """Its time is over and its user deletes it, at the same moment."""
    await lane.submit()
    await lane.end()
    await lane.handler.settle()
    lane.now += LATER_US
    lane.bucket.lets_go.clear()
    forgetting = asyncio.create_task(lane.handler.expire(lane.now))
    await asyncio.sleep(0.01)

    deleting = asyncio.create_task(lane.ask(Command.DELETE))
    lane.bucket.lets_go.set()
    async with asyncio.timeout(10):
        await forgetting
        await deleting
    await lane.handler.settle()
    assert lane.shelf.get("j-1") is None
    assert lane.bucket.kept == {}


async def test_a_record_that_changes_during_its_last_try_is_tried_once_more(lane: Lane) -> None:
    await lane.submit()
    await lane.validate()
    lane.bucket.failures.extend(StreamFull("full") for _ in range(5))
    for _ in range(4):
        with pytest.raises(StreamFull):
            await lane.handler.settle()
    lane.now += LATER_US
    lane.bucket.open.clear()
    expiring = asyncio.create_task(lane.handler.expire(lane.now))
    await asyncio.sleep(0.01)
    ending = asyncio.create_task(lane.end())
    await asyncio.sleep(0.01)
    lane.bucket.open.set()
    await asyncio.wait({expiring, ending})

    await lane.handler.settle()
    assert lane.folded() == 3
