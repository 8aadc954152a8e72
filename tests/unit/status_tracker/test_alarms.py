"""The deadlines of jobs: each fires once, the earliest first, and a waiting reader wakes when an earlier one is set."""

from __future__ import annotations

import asyncio

import pytest

from muster_status_tracker.alarms import Alarms

SECOND = 1_000_000


@pytest.fixture
def alarms() -> Alarms:
    return Alarms()


def test_each_job_rings_once_when_its_instant_has_come(alarms: Alarms) -> None:
    alarms.set("a", 10)
    alarms.set("b", 20)

    assert alarms.ring(9) == set()
    assert alarms.ring(10) == {"a"}
    assert alarms.ring(30) == {"b"}
    assert alarms.ring(30) == set()


def test_the_last_instant_that_was_set_counts(alarms: Alarms) -> None:
    alarms.set("a", 10)
    alarms.set("a", 30)
    alarms.set("b", 20)
    alarms.set("b", None)

    assert alarms.next() == 30
    assert alarms.ring(29) == set()
    assert alarms.ring(30) == {"a"}
    assert alarms.next() is None


def test_a_job_that_goes_back_to_an_earlier_instant_rings_once(alarms: Alarms) -> None:
    alarms.set("a", 10)
    alarms.set("a", 30)
    alarms.set("a", 10)

    assert alarms.ring(50) == {"a"}
    assert alarms.ring(50) == set()


async def test_who_waits_is_woken_when_a_nearer_instant_is_set(alarms: Alarms) -> None:
    alarms.set("a", 3600 * SECOND)
    waiting = asyncio.create_task(alarms.wait(0, at_most_s=600))
    await asyncio.sleep(0)

    alarms.set("b", 7200 * SECOND)
    await asyncio.sleep(0)
    assert not waiting.done()
    alarms.set("c", 60 * SECOND)

    async with asyncio.timeout(10):
        await waiting


async def test_who_waits_looks_again_after_a_while_whatever_was_set(alarms: Alarms) -> None:
    async with asyncio.timeout(10):
        await alarms.wait(0, at_most_s=0.01)
