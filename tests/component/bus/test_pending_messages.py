"""What is pending of a reader is what the broker says, also when the reader does not progress."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from muster_bus import Bus, BusMetrics, BusSettings, Incoming, PartitionReader, WorkQueue, pending_messages
from muster_bus.pending_messages import report_pending
from muster_testing.broker import Broker
from muster_testing.conditions import Background, eventually
from muster_testing.temporary_stream import TemporaryStream


class Pending(BusMetrics):
    def __init__(self) -> None:
        self.of: dict[str, int] = {}

    def pending(self, consumer: str, messages: int, /) -> None:
        self.of[consumer] = messages

    def stopped_reading(self, consumer: str, /) -> None:
        self.of.pop(consumer, None)


class Gate:
    """A handler that waits at the message ``stuck`` until it is open."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.handled: list[bytes] = []

    async def handle(self, batch: list[Incoming], *, live: bool) -> None:
        for incoming in batch:
            if incoming.data == b"stuck":
                await self.open.wait()
            self.handled.append(incoming.data)

    async def handle_one(self, incoming: Incoming) -> None:
        await self.handle([incoming], live=True)


@pytest.fixture
def pending() -> Pending:
    return Pending()


@pytest.fixture
async def bus(
    shared_broker: Broker, pending: Pending, background: Background, monkeypatch: pytest.MonkeyPatch
) -> Bus:
    monkeypatch.setattr(pending_messages, "_EVERY_S", 0.05)
    bus = await Bus.connect(BusSettings(url=shared_broker.url), name="reader", metrics=pending)
    background.start(report_pending(bus))
    return bus


async def of_consumer(partition: TemporaryStream, bus: Bus, gate: Gate) -> tuple[str, Awaitable[None]]:
    name = await partition.consumer("d", ack="all", filters=[f"{partition.name}.a"])
    reader = PartitionReader(
        bus, stream=partition.name, consumer=name, filters=[f"{partition.name}.a"], handle=gate.handle
    )
    return name, reader.run()


async def of_stream(partition: TemporaryStream, bus: Bus, gate: Gate) -> tuple[str, Awaitable[None]]:
    writer = await partition.consumer("writer", ack="all", filters=[f"{partition.name}.a"])
    reader = PartitionReader(
        bus,
        stream=partition.name,
        consumer="of-stream",
        filters=[f"{partition.name}.a"],
        record_writers=[writer],
        handle=gate.handle,
    )
    return "of-stream", reader.run()


async def of_queue(partition: TemporaryStream, bus: Bus, gate: Gate) -> tuple[str, Awaitable[None]]:
    name = await partition.consumer("d", ack="explicit", filters=[f"{partition.name}.a"])
    queue = WorkQueue(bus, stream=partition.name, consumer=name, handler=gate.handle_one, concurrency=1)
    return name, queue.run()


Start = Callable[[TemporaryStream, Bus, Gate], Awaitable[tuple[str, Awaitable[None]]]]


@pytest.mark.parametrize("start", [of_consumer, of_stream, of_queue])
async def test_a_reader_that_does_not_progress_falls_behind(
    start: Start, partition: TemporaryStream, bus: Bus, pending: Pending, background: Background
) -> None:
    gate = Gate()
    name, reading = await start(partition, bus, gate)

    async def read() -> None:
        await reading

    background.start(read())
    await partition.publish("first")
    await eventually(lambda: gate.handled == [b"first"] and pending.of.get(name) == 0)

    await partition.publish("stuck", *map(str, range(9)))
    await partition.publish("not mine", topic="b")
    await eventually(lambda: pending.of.get(name) == 10)

    gate.open.set()
    await eventually(lambda: pending.of.get(name) == 0)


async def test_a_reader_whose_consumer_was_deleted_is_counted_from_its_position(
    partition: TemporaryStream, bus: Bus, pending: Pending, background: Background
) -> None:
    gate = Gate()
    name, reading = await of_stream(partition, bus, gate)

    async def read() -> None:
        await reading

    background.start(read())
    await partition.publish("first")
    await eventually(lambda: pending.of.get(name) == 0 and bool(gate.handled))
    await partition.publish("stuck", "2", "3")
    await eventually(lambda: pending.of.get(name) == 3)
    names = await bus.request(f"$JS.API.CONSUMER.NAMES.{partition.name}", b"")
    for one in names.data.decode().partition('"consumers":[')[2].partition("]")[0].split(","):
        if (ephemeral := one.strip('"')) != f"{partition.name}-writer" and ephemeral != "writer":
            await bus.request(f"$JS.API.CONSUMER.DELETE.{partition.name}.{ephemeral}", b"")

    pending.of.clear()
    await partition.publish("4")
    await eventually(lambda: pending.of.get(name) == 4)


async def test_nothing_is_said_about_a_consumer_that_another_instance_reads_now(
    partition: TemporaryStream, bus: Bus, pending: Pending, background: Background
) -> None:
    name, reading = await of_consumer(partition, bus, Gate())

    async def read() -> None:
        await reading

    task = background.start(read())
    await eventually(lambda: name in pending.of)

    task.cancel()
    await asyncio.wait({task})
    await asyncio.sleep(0.2)

    assert name not in pending.of
