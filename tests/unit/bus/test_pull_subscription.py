"""A paced pull subscription on a machine that pauses the process at the worst moment."""

import asyncio
import json
from collections.abc import Callable
from typing import cast

import pytest

from muster_bus import Bus, Incoming, pull_subscription
from muster_bus.pull_subscription import PullPacer, PullSubscription
from muster_testing.conditions import eventually

TICK_S = 0.2


class SilentBus:
    """A bus whose broker sends nothing by itself; ``requests`` are the pull requests."""

    inbox_prefix = "_INBOX"
    generation = 1
    connected = True

    def __init__(self) -> None:
        self.requests: list[dict[str, int]] = []
        self.deliver: Callable[[Incoming], None]

    def on_reconnect(self, callback: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    async def subscribe(
        self, subject: str, callback: Callable[[Incoming], None], *, flush: bool
    ) -> "SilentBus":
        self.deliver = callback
        return self

    async def drain(self) -> None:
        return

    async def send(self, subject: str, data: bytes, *, reply: str) -> None:
        self.requests.append(json.loads(data))


class PausedClock:
    """The clock of the loop; from its second reading on after ``pause`` it is a second ahead."""

    def __init__(self) -> None:
        self._time = asyncio.get_running_loop().time
        self._readings_before_pause: int | None = None

    def pause(self) -> None:
        self._readings_before_pause = 1

    def __call__(self) -> float:
        if self._readings_before_pause is None:
            return self._time()
        ahead_s = 0.0 if self._readings_before_pause > 0 else 1.0
        self._readings_before_pause -= 1
        return self._time() + ahead_s


async def test_a_process_paused_just_before_its_tick_still_requests_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pull_subscription, "_SILENCE_S", 3600.0)
    bus, clock = SilentBus(), PausedClock()
    pace = PullPacer(burst=1, tick_s=TICK_S)
    async with PullSubscription(
        cast("Bus", bus), stream="s", consumer="c", depth=8, pace=pace, clock=clock
    ) as subscription:
        bus.deliver(Incoming(subject="x", data=b"1", stream="s", stream_sequence=1, pending=0))
        assert len(await subscription.take(1)) == 1
        assert await subscription.take(1, wait_s=0.001) == []
        # The next request waits for the tick; the process is paused between two readings of the clock.
        clock.pause()
        taking = asyncio.create_task(subscription.take(1))
        await eventually(lambda: bool(bus.requests))
        subscription.interrupt()
        assert await taking == []
