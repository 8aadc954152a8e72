"""The deadlines of jobs: each fires once, the earliest first, and a waiting reader wakes when an earlier one is set."""

from __future__ import annotations

import asyncio

import pytest

from muster_status_tracker.deadlines import DeadlineQueue

SECOND = 1_000_000


@pytest.fixture
def deadlines() -> DeadlineQueue:
    return DeadlineQueue()


def test_each_deadline_is_taken_once(deadlines: DeadlineQueue) -> None:
    deadlines.set("a", 10)
    deadlines.set("b", 20)

    assert deadlines.take_due(9) == set()
    assert deadlines.take_due(10) == {"a"}
    assert deadlines.take_due(30) == {"b"}
    assert deadlines.take_due(30) == set()


def test_the_last_deadline_of_a_job_counts(deadlines: DeadlineQueue) -> None:
    deadlines.set("a", 10)
    deadlines.set("a", 30)
    deadlines.set("b", 20)
    deadlines.set("b", None)

    assert deadlines.next() == 30
    assert deadlines.take_due(29) == set()
    assert deadlines.take_due(30) == {"a"}
    assert deadlines.next() is None


def test_a_deadline_that_is_moved_back_is_taken_once(deadlines: DeadlineQueue) -> None:
    deadlines.set("a", 10)
    deadlines.set("a", 30)
    deadlines.set("a", 10)

    assert deadlines.take_due(50) == {"a"}
    assert deadlines.take_due(50) == set()


async def test_wait_returns_when_an_earlier_deadline_is_set(deadlines: DeadlineQueue) -> None:
    deadlines.set("a", 3600 * SECOND)
    waiting = asyncio.create_task(deadlines.wait(0, at_most_s=600))
    await asyncio.sleep(0)

    deadlines.set("b", 7200 * SECOND)
    await asyncio.sleep(0)
    assert not waiting.done()
    deadlines.set("c", 60 * SECOND)

    async with asyncio.timeout(10):
        await waiting


async def test_wait_returns_after_its_limit(deadlines: DeadlineQueue) -> None:
    async with asyncio.timeout(10):
        await deadlines.wait(0, at_most_s=0.01)
