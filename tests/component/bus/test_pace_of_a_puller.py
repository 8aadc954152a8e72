"""A puller that reads together, on a machine that takes its CPU away at the worst moment."""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import cast

import pytest

from muster_bus import Bus, puller
from muster_bus._pace import Pace
from muster_bus.messages import Incoming
from muster_testing.conditions import eventually


class SilentBus:
    """A bus of a broker that has nothing to say."""

    inbox_prefix = "_INBOX"
    generation = 1
    connected = True

    def __init__(self) -> None:
        self.asked: list[dict[str, int]] = []

    def on_reconnect(self, callback: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    async def subscribe(
        self, subject: str, callback: Callable[[Incoming], None], *, flush: bool
    ) -> "SilentBus":
        return self

    async def drain(self) -> None:
        return

    async def send(self, subject: str, data: bytes, *, reply: str) -> None:
        self.asked.append(json.loads(data))


async def test_a_puller_that_is_interrupted_just_before_its_turn_asks_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(puller, "_SILENCE_S", 3600.0)
    bus = SilentBus()
    loop = asyncio.get_running_loop()
    reading = puller.Puller(cast("Bus", bus), stream="s", consumer="c", depth=8, pace=Pace())
    turn = loop.time() + 0.05
    reading._not_before = turn  # pyright: ignore[reportPrivateUsage]
    clock = loop.time

    def interrupted() -> float:
        now = clock()
        if now < turn and sys._getframe(1).f_code.co_filename == puller.__file__:  # pyright: ignore[reportPrivateUsage]
            time.sleep(turn - now + 0.001)
        return now

    async with reading:
        monkeypatch.setattr(loop, "time", interrupted)
        taking = asyncio.create_task(reading.take(1))
        await eventually(lambda: bool(bus.asked))
        reading.interrupt()
        assert await taking == []
