"""A partition reader that rebuilds from the records of another writer has no durable consumer: it follows the end of the stream."""

import asyncio

import pytest_asyncio

from muster_bus import Bus, DeadLetters, Incoming, PartitionReader, Poison
from muster_testing.broker import Broker
from muster_testing.conditions import Background, answered, eventually
from muster_testing.temporary_stream import TemporaryStream


class Reader:
    """Collects what a reader handled, and in how many batches."""

    def __init__(self) -> None:
        self.payloads: list[str] = []
        self.batches = 0
        self.poisonous: set[str] = set()

    async def handle(self, batch: list[Incoming], *, live: bool) -> None:
        assert all(incoming.stream_sequence for incoming in batch)
        poisonous = self.poisonous & {incoming.data.decode() for incoming in batch}
        if poisonous:
            raise Poison(f"{len(poisonous)} of {len(batch)}, live: {live}")
        self.batches += 1
        self.payloads += [incoming.data.decode() for incoming in batch]


def numbers(first: int, last: int) -> list[str]:
    return [str(n) for n in range(first, last + 1)]


def tail(bus: Bus, partition: TemporaryStream, writer: str, reader: Reader) -> PartitionReader:
    return PartitionReader(
        bus,
        stream=partition.name,
        consumer=f"{partition.name}-reader",
        filters=[f"{partition.name}.a", f"{partition.name}.b"],
        record_writers=[writer],
        handle=reader.handle,
    )


@pytest_asyncio.fixture
async def writer(partition: TemporaryStream) -> str:
    """The durable whose owner writes the records, which has settled nothing."""
    return await partition.consumer(
        "writer", ack="all", filters=[f"{partition.name}.a", f"{partition.name}.b"]
    )


async def consumers(partition: TemporaryStream) -> set[str]:
    answer = await partition.bus.request(f"$JS.API.CONSUMER.NAMES.{partition.name}", b"")
    names = answer.data.decode().partition('"consumers":[')[2].partition("]")[0]
    return {name.strip('"') for name in names.split(",") if name}


async def test_the_past_is_read_first_and_then_what_comes_in_order_of_all_filters(
    partition: TemporaryStream, writer: str, background: Background
) -> None:
    await partition.publish("1", "2")
    reader = Reader()
    reading = tail(partition.bus, partition, writer, reader)
    background.start(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)
    assert reader.payloads == ["1", "2"]

    await partition.publish("3", topic="b")
    await partition.publish("not mine", topic="c")
    last = await partition.publish("4", "5")

    assert await reading.reaches(last.sequence, 10)
    assert reader.payloads == numbers(1, 5)


async def test_it_leaves_nothing_behind_in_the_broker(partition: TemporaryStream, writer: str) -> None:
    reader = Reader()
    reading = tail(partition.bus, partition, writer, reader)
    running = asyncio.create_task(reading.run())
    assert await reading.reaches((await partition.publish("1")).sequence, 10)

    reading.stop()
    await asyncio.wait_for(running, 10)

    async def only_the_writer() -> bool:
        return await consumers(partition) == {writer}

    await answered(only_the_writer)


async def test_a_reader_whose_consumer_is_lost_goes_on_where_it_was(
    partition: TemporaryStream, writer: str, background: Background
) -> None:
    reader = Reader()
    reading = tail(partition.bus, partition, writer, reader)
    background.start(reading.run())
    assert await reading.reaches((await partition.publish("1")).sequence, 10)
    for name in await consumers(partition) - {writer}:
        await partition.bus.request(f"$JS.API.CONSUMER.DELETE.{partition.name}.{name}", b"")

    last = await partition.publish(*numbers(2, 4))

    assert await reading.reaches(last.sequence, 10)
    assert reader.payloads == numbers(1, 4)


async def test_a_flood_is_read_in_order_and_together(
    partition: TemporaryStream, writer: str, background: Background
) -> None:
    reader = Reader()
    reading = tail(partition.bus, partition, writer, reader)
    background.start(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)

    last = await partition.publish(*numbers(1, 400))

    assert await reading.reaches(last.sequence, 20)
    assert reader.payloads == numbers(1, 400)
    assert reader.batches < 200


async def test_order_holds_when_the_broker_is_killed_in_the_middle(
    own_partition: TemporaryStream, broker: Broker, background: Background
) -> None:
    writer = await own_partition.consumer("writer", ack="all", filters=[f"{own_partition.name}.a"])
    reader = Reader()
    reading = tail(own_partition.bus, own_partition, writer, reader)
    background.start(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)

    publishing = asyncio.create_task(own_partition.publish(*numbers(1, 600)))
    for handled in (100, 300):
        await eventually(lambda handled=handled: len(reader.payloads) >= handled)
        await broker.restart()
    last = await publishing

    assert await reading.reaches(last.sequence, 15)
    assert reader.payloads == numbers(1, 600)


async def test_what_cannot_be_read_is_set_aside_and_does_not_block(
    partition: TemporaryStream, writer: str, background: Background
) -> None:
    reader = Reader()
    reader.poisonous = {"2"}
    reading = tail(partition.bus, partition, writer, reader)
    background.start(reading.run())

    last = await partition.publish("1", "2", "3")

    assert await reading.reaches(last.sequence, 20)
    assert reader.payloads == ["1", "3"]
    dead_letters = [
        one for one in await DeadLetters(partition.bus).list() if one.consumer == f"{partition.name}-reader"
    ]
    assert [one.data for one in dead_letters] == [b"2"]
