"""The probe: whether the broker stores messages, on a disk that is full and freed again."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from muster_bus import Bus, BusSettings, Outgoing, StreamSpec, provision
from muster_bus.disk import shortage
from muster_bus.errors import BusUnavailable, StreamFull
from muster_bus.write_probe import WriteProbe
from muster_testing.broker import Broker
from muster_testing.conditions import Background, eventually
from muster_testing.small_filesystem import SmallFilesystem

STREAM = StreamSpec(name="EVENTS", subjects=("events.>",), allow_msg_ttl=True)
OTHER = StreamSpec(name="OTHER", subjects=("other.>",), allow_msg_ttl=True)
HINT = "unstored"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallFilesystem]:
    with SmallFilesystem(tmp_path / "disk", size_mib=64) as mounted:
        yield mounted


@pytest.fixture
async def broker(disk: SmallFilesystem) -> AsyncIterator[Broker]:
    async with Broker(disk.folder / "broker") as running:
        yield running


@asynccontextmanager
async def probing(
    broker: Broker, *names: str, folder: Path | None = None
) -> AsyncGenerator[list[WriteProbe]]:
    """Run probes, each with a connection of its own."""
    async with AsyncExitStack() as stack:
        probes: list[WriteProbe] = []
        background = Background()
        for name in names:
            bus = await Bus.connect(BusSettings(url=broker.url, request_timeout_s=0.5), name=name)
            stack.push_async_callback(bus.close)
            await provision(bus, [STREAM, OTHER])
            subjects = {"EVENTS": f"events.probe.{name}", "OTHER": f"other.probe.{name}"}
            probe = WriteProbe(
                bus,
                subjects=subjects,
                hint=HINT,
                shortage=lambda: None if folder is None else shortage(folder),
            )
            background.start(probe.run())
            probes.append(probe)
        await stack.enter_async_context(background)
        yield probes


async def fail_a_write(url: str) -> None:
    """Write what does not fit: the broker then acknowledges nothing of this stream until it is restarted."""
    bus = await Bus.connect(BusSettings(url=url, request_timeout_s=0.5), name="writer")
    with pytest.raises(BusUnavailable):
        await bus.publish(Outgoing(subject="events.large", data=bytes(900_000), msg_id=""))
    await bus.close()


async def test_a_stream_that_stores_nothing_after_a_failed_write_is_found_although_the_disk_was_freed(
    broker: Broker, disk: SmallFilesystem
) -> None:
    async with probing(broker, "a") as (probe,):
        await eventually(lambda: probe.problem is None)
        disk.fill()
        await fail_a_write(broker.url)
        disk.free()
        # One message that is not stored makes it look at once.
        with pytest.raises(BusUnavailable):
            await probe.bus.publish(Outgoing(subject="events.one", data=b"", msg_id=""))
        await eventually(lambda: "EVENTS" in probe.unstored)
        assert "stream EVENTS" in str(probe.problem)

        await broker.restart()
        await eventually(lambda: probe.problem is None)


async def test_a_message_of_one_service_that_is_not_stored_makes_all_of_them_probe(
    broker: Broker, disk: SmallFilesystem
) -> None:
    async with probing(broker, "a", "b") as (one, other):
        await eventually(lambda: one.problem is None and other.problem is None)
        disk.fill()
        await fail_a_write(broker.url)
        disk.free()
        with pytest.raises(BusUnavailable):
            await one.bus.publish(Outgoing(subject="events.one", data=b"", msg_id=""))
        # Sooner than it would look by itself.
        await eventually(lambda: "EVENTS" in other.unstored, timeout_s=8)


async def test_a_shortage_is_the_problem_and_nothing_is_written_meanwhile(
    broker: Broker, disk: SmallFilesystem
) -> None:
    async with probing(broker, "a", folder=disk.folder) as (probe,):
        await eventually(lambda: probe.problem is None)
        disk.fill(leave_bytes=1 << 20)
        before = await probe.bus.last_sequence("EVENTS")
        probe.wake()
        await eventually(lambda: "the broker's disk is full" in str(probe.problem))
        await asyncio.sleep(1.5)
        assert await probe.bus.last_sequence("EVENTS") == before

        disk.free()
        await eventually(lambda: probe.problem is None)


async def test_a_folder_that_is_being_mounted_is_no_shortage(broker: Broker, disk: SmallFilesystem) -> None:
    async with probing(broker, "a", folder=disk.folder / "absent") as (probe,):
        assert probe.shortage() is None
        await eventually(lambda: probe.problem is None)


async def test_probes_leave_nothing_in_the_stream(broker: Broker) -> None:
    async with probing(broker, "a") as (probe,):
        await eventually(lambda: probe.problem is None)
        assert await probe.bus.last_sequence("EVENTS") == 1

        async def is_empty() -> bool:
            return await probe.bus.last("EVENTS", "events.>") is None

        async with asyncio.timeout(10):
            while not await is_empty():
                await asyncio.sleep(0.1)


async def test_a_broker_that_does_not_answer_is_a_problem_but_not_one_of_its_disk(broker: Broker) -> None:
    async with probing(broker, "a") as (probe,):
        await eventually(lambda: probe.problem is None)
        await broker.pause()
        probe.wake()
        await eventually(lambda: probe.problem == "the broker does not answer", timeout_s=4)
        assert not probe.unstored
        await broker.resume()
        await eventually(lambda: probe.problem is None)


async def test_a_lost_connection_is_noticed_at_once(broker: Broker) -> None:
    async with probing(broker, "a") as (probe,):
        await eventually(lambda: probe.problem is None)
        await broker.kill()
        await eventually(lambda: probe.problem == "there is no connection to the broker", timeout_s=4)
        await broker.restart()
        await eventually(lambda: probe.problem is None)


async def test_a_stream_at_its_limit_is_reported_as_full_and_not_as_one_that_a_restart_would_mend(
    broker: Broker,
) -> None:
    async with probing(broker, "a") as (probe,):
        await eventually(lambda: probe.problem is None)
        # No message fits, not even after others have expired.
        await provision(probe.bus, [msgspec.structs.replace(STREAM, max_bytes=1)])
        with pytest.raises(StreamFull):
            await probe.bus.publish(Outgoing(subject="events.one", data=b"", msg_id=""))
        await eventually(lambda: "maximum bytes" in str(probe.problem))
        assert "stream EVENTS" in str(probe.problem)
        assert not probe.unstored


async def test_a_full_stream_does_not_hide_another_one_that_a_restart_would_mend(
    broker: Broker, disk: SmallFilesystem
) -> None:
    async with probing(broker, "a") as (probe,):
        await eventually(lambda: probe.problem is None)
        # No message fits, not even after others have expired.
        await provision(probe.bus, [msgspec.structs.replace(OTHER, max_bytes=1)])
        with pytest.raises(StreamFull):
            await probe.bus.publish(Outgoing(subject="other.one", data=b"", msg_id=""))
        disk.fill()
        await fail_a_write(broker.url)
        disk.free()
        await eventually(lambda: list(probe.unstored) == ["EVENTS"])
        assert "stream OTHER" in str(probe.problem)
