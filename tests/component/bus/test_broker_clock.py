"""The clock that is measured with the answers of a broker."""

import asyncio
import time

import pytest

from muster_bus import BrokerClock, Bus, _api
from muster_testing.conditions import Background
from muster_testing.temporary_stream import TemporaryStream

US = 1_000_000


async def test_a_wrong_local_clock_does_not_change_the_time(
    partition: TemporaryStream, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right() + 600 * US * 1000)
    clock = BrokerClock(partition.bus, partition.name)
    background.start(clock.run())
    await clock.synchronised.wait()
    stored = await partition.publish("now")
    [message] = [await partition.bus.last(partition.name, f"{partition.name}.a")]
    assert message is not None
    assert message.stream_sequence == stored.sequence
    assert abs(clock.now() - message.timestamp_ns // 1000) < US


async def test_the_time_is_not_ahead_of_the_broker_though_the_question_took_long(
    partition: TemporaryStream, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = _api.broker_time

    async def ask_late(bus: Bus, stream: str) -> int:
        await asyncio.sleep(0.2)
        return await ask(bus, stream)

    monkeypatch.setattr(_api, "broker_time", ask_late)
    clock = BrokerClock(partition.bus, partition.name)
    background.start(clock.run())
    await clock.synchronised.wait()
    before = clock.now()
    await partition.publish("now")
    message = await partition.bus.last(partition.name, f"{partition.name}.a")
    assert message is not None
    assert before <= message.timestamp_ns // 1000
