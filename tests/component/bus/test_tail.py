"""A feed that rebuilds from somebody else's records has no durable: it reads the tail of the stream."""

import asyncio

import pytest_asyncio

from muster_bus import Bus, DeadLetters, Incoming, PartitionReader, Poison
from muster_testing.broker import Broker
from muster_testing.conditions import Background, answered, eventually
from muster_testing.temporary_stream import TemporaryStream


class Reader:
    """Remembers what a feed handled, and in how many batches it came."""

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


<<<<<<< HEAD
def tail(bus: Bus, partition: Partition, writer: str, reader: Reader) -> PartitionReader:
    return PartitionReader(
        bus,
        stream=partition.name,
        consumer=f"{partition.name}-reader",
        filters=[f"{partition.name}.a", f"{partition.name}.b"],
        record_writers=[writer],
=======
def tail(bus: Bus, stream: TemporaryStream, writer: str, reader: Reader) -> Feed:
    return Feed(
        bus,
        stream=stream.name,
        durable=f"{stream.name}-reader",
        filters=[f"{stream.name}.a", f"{stream.name}.b"],
        floors=[writer],
>>>>>>> d80cc2c (testing: name helpers for what they are, plain words)
        handle=reader.handle,
    )


@pytest_asyncio.fixture
async def writer(stream: TemporaryStream) -> str:
    """The durable whose owner writes the records, which has settled nothing."""
<<<<<<< HEAD
    return await partition.consumer(
        "writer", ack="all", filters=[f"{partition.name}.a", f"{partition.name}.b"]
    )
=======
    return await stream.add_consumer("writer", ack="all", filters=[f"{stream.name}.a", f"{stream.name}.b"])
>>>>>>> d80cc2c (testing: name helpers for what they are, plain words)


async def consumers(stream: TemporaryStream) -> set[str]:
    answer = await stream.bus.request(f"$JS.API.CONSUMER.NAMES.{stream.name}", b"")
    names = answer.data.decode().partition('"consumers":[')[2].partition("]")[0]
    return {name.strip('"') for name in names.split(",") if name}


async def test_the_past_is_read_first_and_then_what_comes_in_order_of_all_filters(
    stream: TemporaryStream, writer: str, background: Background
) -> None:
    await stream.publish("1", "2")
    reader = Reader()
    reading = tail(stream.bus, stream, writer, reader)
    background.start(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)
    assert reader.payloads == ["1", "2"]

    await stream.publish("3", topic="b")
    await stream.publish("not mine", topic="c")
    last = await stream.publish("4", "5")

    assert await reading.reaches(last.sequence, 10)
    assert reader.payloads == numbers(1, 5)


async def test_it_leaves_nothing_behind_in_the_broker(stream: TemporaryStream, writer: str) -> None:
    reader = Reader()
    reading = tail(stream.bus, stream, writer, reader)
    running = asyncio.create_task(reading.run())
    assert await reading.reaches((await stream.publish("1")).sequence, 10)

    reading.stop()
    await asyncio.wait_for(running, 10)

    async def only_the_writer() -> bool:
        return await consumers(stream) == {writer}

    await answered(only_the_writer)


async def test_a_reader_whose_consumer_is_lost_goes_on_where_it_was(
    stream: TemporaryStream, writer: str, background: Background
) -> None:
    reader = Reader()
    reading = tail(stream.bus, stream, writer, reader)
    background.start(reading.run())
    assert await reading.reaches((await stream.publish("1")).sequence, 10)
    for name in await consumers(stream) - {writer}:
        await stream.bus.request(f"$JS.API.CONSUMER.DELETE.{stream.name}.{name}", b"")

    last = await stream.publish(*numbers(2, 4))

    assert await reading.reaches(last.sequence, 10)
    assert reader.payloads == numbers(1, 4)


async def test_a_flood_is_read_in_order_and_together(
    stream: TemporaryStream, writer: str, background: Background
) -> None:
    reader = Reader()
    reading = tail(stream.bus, stream, writer, reader)
    background.start(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)

    last = await stream.publish(*numbers(1, 400))

    assert await reading.reaches(last.sequence, 20)
    assert reader.payloads == numbers(1, 400)
    assert reader.batches < 200


async def test_order_holds_when_the_broker_is_killed_in_the_middle(
    own_stream: TemporaryStream, broker: Broker, background: Background
) -> None:
<<<<<<< HEAD
    writer = await own_partition.consumer("writer", ack="all", filters=[f"{own_partition.name}.a"])
=======
    writer = await own_stream.add_consumer("writer", ack="all", filters=[f"{own_stream.name}.a"])
>>>>>>> d80cc2c (testing: name helpers for what they are, plain words)
    reader = Reader()
    reading = tail(own_stream.bus, own_stream, writer, reader)
    background.start(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)

    publishing = asyncio.create_task(own_stream.publish(*numbers(1, 600)))
    for handled in (100, 300):
        await eventually(lambda handled=handled: len(reader.payloads) >= handled)
        await broker.restart()
    last = await publishing

    assert await reading.reaches(last.sequence, 15)
    assert reader.payloads == numbers(1, 600)


async def test_what_cannot_be_read_is_set_aside_and_does_not_block(
    stream: TemporaryStream, writer: str, background: Background
) -> None:
    reader = Reader()
    reader.poisonous = {"2"}
    reading = tail(stream.bus, stream, writer, reader)
    background.start(reading.run())

    last = await stream.publish("1", "2", "3")

    assert await reading.reaches(last.sequence, 20)
    assert reader.payloads == ["1", "3"]
<<<<<<< HEAD
    dead_letters = [
        one for one in await DeadLetters(partition.bus).list() if one.consumer == f"{partition.name}-reader"
    ]
    assert [one.data for one in dead_letters] == [b"2"]
=======
    letters = [one for one in await DeadLetters(stream.bus).list() if one.durable == f"{stream.name}-reader"]
    assert [one.data for one in letters] == [b"2"]
>>>>>>> d80cc2c (testing: name helpers for what they are, plain words)
