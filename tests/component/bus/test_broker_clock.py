import time

import pytest

from muster_bus import BrokerClock
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
