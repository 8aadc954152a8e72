"""After a pause nothing counts as current until it was read again, right from the first instruction."""

from __future__ import annotations

import asyncio

import pytest

from muster_bus import pause_detector
from muster_bus.pause_detector import PauseDetector


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def elapsed_s(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pause_detector, "elapsed_s", clock.elapsed_s)
    monkeypatch.setattr(pause_detector, "_TICK_S", 0.0)
    return clock


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_pause_counts_from_its_first_instruction_on_until_everything_is_read(clock: Clock) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def catch_up() -> None:
        asked.set()
        await answered.wait()

    detector = PauseDetector(catch_up)
    running = asyncio.create_task(detector.run())
    await settle()
    assert detector.has_caught_up
    assert not asked.is_set()

    clock.now += 5.0
    assert not detector.has_caught_up
    await settle()
    assert asked.is_set()
    assert not detector.has_caught_up
    answered.set()
    await settle()
    assert detector.has_caught_up
    running.cancel()


async def test_a_pause_while_it_catches_up_is_not_missed(clock: Clock) -> None:
    calls = 0

    async def catch_up() -> None:
        nonlocal calls
        calls += 1
        clock.now += 2.0 if calls == 1 else 0.0

    detector = PauseDetector(catch_up)
    running = asyncio.create_task(detector.run())
    await settle()
    clock.now += 5.0
    await settle()
    assert calls == 2
    assert detector.has_caught_up
    running.cancel()


async def test_short_delays_are_no_pause(clock: Clock) -> None:
    async def catch_up() -> None:
        raise AssertionError

    detector = PauseDetector(catch_up)
    running = asyncio.create_task(detector.run())
    for _ in range(5):
        await settle()
        clock.now += 0.5
        assert detector.has_caught_up
    running.cancel()
