import asyncio
from collections.abc import Awaitable, Callable

import pytest

from muster_bus import (
    BucketSpec,
    Bus,
    BusSettings,
    BusUnavailable,
    DeadLetter,
    DeadLetters,
    Entry,
    Incoming,
    KeyValueStore,
    PartitionReader,
    Poison,
    ReplayFailed,
    StreamFull,
    partition_reader,
    provision,
)
from muster_testing.broker import Broker
from muster_testing.broker_proxy import BrokerProxy
from muster_testing.conditions import Background, answered, eventually
from muster_testing.temporary_stream import TemporaryStream

Connect = Callable[[], Awaitable[Bus]]


class Reader:
    """Remembers what a reader handled, and fails where requested."""

    def __init__(self) -> None:
        self.payloads: list[str] = []
        self.live: list[str] = []
        self.replayed: list[str] = []
        self.failures: dict[str, Exception] = {}

    async def handle(self, batch: list[Incoming], *, live: bool) -> None:
        for incoming in batch:
            payload = incoming.data.decode()
            if payload in self.failures:
                raise self.failures[payload]
            (self.replayed if incoming.replayed else self.payloads).append(payload)
            if live:
                self.live.append(payload)

    def once(self) -> list[str]:
        """The payloads without the repetitions that a failed batch brings."""
        return list(dict.fromkeys(self.payloads))


class Ledger:
    """Makes durable what a reader handled, unless it is ``shut``."""

    def __init__(self) -> None:
        self.shut = False
        self.asked = 0

    async def flush(self) -> None:
        self.asked += 1
        if self.shut:
            raise StreamFull("full")


def reader_(bus: Bus, partition: TemporaryStream, consumer: str, reader: Reader) -> PartitionReader:
    return PartitionReader(
        bus, stream=partition.name, consumer=consumer, filters=[f"{partition.name}.a"], handle=reader.handle
    )


async def pull_and_vanish(bus: Bus, partition: TemporaryStream, consumer: str, count: int) -> list[Incoming]:
    """What an owner does that is killed between pulling and acknowledging."""
    pulled: asyncio.Queue[Incoming] = asyncio.Queue()
    inbox = f"_INBOX.vanish-{consumer}"
    await bus.subscribe(inbox, pulled.put_nowait)
    await bus.send(f"$JS.API.CONSUMER.MSG.NEXT.{partition.name}.{consumer}", str(count).encode(), reply=inbox)
    async with asyncio.timeout(10):
        return [await pulled.get() for _ in range(count)]


def numbers(first: int, last: int) -> list[str]:
    return [str(n) for n in range(first, last + 1)]


async def test_a_reader_catches_up_and_then_follows(
    partition: TemporaryStream, background: Background
) -> None:
    consumer = await partition.consumer("d", ack="all", filters=[f"{partition.name}.a"])
    await partition.publish(*numbers(1, 5))
    await partition.publish("not mine", topic="b")
    reader = Reader()
    reading = reader_(partition.bus, partition, consumer, reader)
    background.start(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)
    assert reader.payloads == numbers(1, 5)
    assert reader.live == []

    last = await partition.publish(*numbers(6, 8))
    await reading.wait_for(last.sequence, 10)

    assert reader.payloads == numbers(1, 8)
    assert reader.live == numbers(6, 8)
    assert reading.position == last.sequence


async def test_waiting_on_an_idle_filter_returns_and_on_the_future_does_not(
    partition: TemporaryStream, background: Background
) -> None:
    consumer = await partition.consumer("d", ack="all", filters=[f"{partition.name}.a"])
    reading = reader_(partition.bus, partition, consumer, Reader())
    background.start(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)
    foreign = await partition.publish("not mine", topic="b")

    await reading.wait_for(foreign.sequence, 10)
    with pytest.raises(TimeoutError):
        await reading.wait_for(foreign.sequence + 1, 0.3)


async def test_a_reader_can_wait_until_it_has_handled_what_is_stored(
    partition: TemporaryStream, background: Background
) -> None:
    consumer = await partition.consumer("d", ack="all", filters=[f"{partition.name}.a"])
    reader = Reader()
    reading = reader_(partition.bus, partition, consumer, reader)
    assert not await reading.wait_current(0.2)
    background.start(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)

    for count in range(1, 21):
        await partition.publish(str(count))
        await partition.publish("not mine", topic="b")
        assert await reading.wait_current(10)
        assert reader.payloads == numbers(1, count)


async def test_a_restarted_reader_continues_at_its_position(partition: TemporaryStream) -> None:
    consumer = await partition.consumer("d", ack="all", filters=[f"{partition.name}.a"])
    for first in (1, 11):
        last = await partition.publish(*numbers(first, first + 9))
        reader = Reader()
        reading = reader_(partition.bus, partition, consumer, reader)
        running = asyncio.create_task(reading.run())
        await reading.wait_for(last.sequence, 10)
        last = await partition.publish(f"live {first}")
        await reading.wait_for(last.sequence, 10)
        reading.stop()
        await asyncio.wait_for(running, 10)

        assert reader.payloads == [*numbers(first, first + 9), f"live {first}"]


async def test_a_successor_waits_for_nothing_that_a_dead_owner_had_pulled(
    partition: TemporaryStream, connect: Connect, background: Background
) -> None:
    consumer = await partition.consumer("d", ack="all", filters=[f"{partition.name}.a"], ack_wait_s=30)
    await partition.publish(*numbers(1, 10))
    await pull_and_vanish(await connect(), partition, consumer, 6)
    reader = Reader()
    reading = reader_(await connect(), partition, consumer, reader)
    background.start(reading.run())

    last = await partition.publish("11")
    await reading.wait_for(last.sequence, 5)

    assert reader.payloads == numbers(1, 11)


async def test_what_a_zombie_pulls_in_between_is_not_missed(
    partition: TemporaryStream, connect: Connect, background: Background
) -> None:
    consumer = await partition.consumer("d", ack="all", filters=[f"{partition.name}.a"], ack_wait_s=30)
    reader = Reader()
    reading = reader_(await connect(), partition, consumer, reader)
    background.start(reading.run())
    await reading.wait_for((await partition.publish("1")).sequence, 10)

    stolen: list[Incoming] = []
    zombie = asyncio.create_task(pull_and_vanish(await connect(), partition, consumer, 5))
    sent = 1
    while not zombie.done():
        sent += 1
        await partition.publish(str(sent))
    stolen = await zombie
    last = await partition.publish(*numbers(sent + 1, sent + 3))

    async with asyncio.timeout(10):
        while reading.position < last.sequence:
            sent_more = await partition.publish("nudge")
            await asyncio.sleep(0.05)
            last = last if reading.position < last.sequence else sent_more
    assert len(stolen) == 5
    assert reader.payloads[: sent + 3] == numbers(1, sent + 3)


async def test_what_an_earlier_owner_has_taken_is_read_although_nothing_comes_after_it(
    partition: TemporaryStream, connect: Connect, background: Background
) -> None:
    consumer = await partition.consumer("d", ack="all", filters=[f"{partition.name}.a"], ack_wait_s=300)
    reader = Reader()
    reading = reader_(await connect(), partition, consumer, reader)
    background.start(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)

    taking = asyncio.create_task(pull_and_vanish(await connect(), partition, consumer, 1))
    sent = 0
    while not taking.done():
        sent += 1
        last = await partition.publish(str(sent))
        await eventually(lambda last=last: taking.done() or reading.position >= last.sequence)

    await eventually(lambda: reader.payloads == numbers(1, sent))


async def test_what_was_in_flight_on_a_lost_connection_is_read_after_the_reconnect(
    partition: TemporaryStream,
    connect: Connect,
    shared_broker: Broker,
    background: Background,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition_reader, "_CHECK_EVERY_S", 600.0)
    consumer = await partition.consumer("d", ack="all", filters=[f"{partition.name}.a"], ack_wait_s=300)
    proxy, reader = BrokerProxy(shared_broker), Reader()
    async with proxy.serving() as url:
        bus = await Bus.connect(BusSettings(url=url), name="reader")
        reading = reader_(bus, partition, consumer, reader)
        task = background.start(reading.run())
        await asyncio.wait_for(reading.caught_up.wait(), 10)

        taking = asyncio.create_task(pull_and_vanish(await connect(), partition, consumer, 1))
        sent = 0
        while not taking.done():
            sent += 1
            last = await partition.publish(str(sent))
            await eventually(lambda last=last: taking.done() or reading.position >= last.sequence)
        assert reader.payloads != numbers(1, sent)

        proxy.reset()

        await eventually(lambda: reader.payloads == numbers(1, sent))
        reading.stop()
        await task
        await bus.close()


async def test_reading_goes_on_while_an_acknowledgement_is_not_answered(
    partition: TemporaryStream, connect: Connect, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    unanswered = asyncio.Event()

    async def acknowledge(bus: Bus, incoming: Incoming) -> None:
        unanswered.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(partition_reader, "acknowledge", acknowledge)
    consumer = await partition.consumer("d", ack="all", filters=[f"{partition.name}.a"])
    reader = Reader()
    reading = reader_(await connect(), partition, consumer, reader)
    background.start(reading.run())
    await partition.publish("1")
    await asyncio.wait_for(unanswered.wait(), 10)

    await partition.publish("2", "3")

    await eventually(lambda: reader.payloads == numbers(1, 3))


async def test_reading_goes_on_while_the_consumer_is_deleted(
    partition: TemporaryStream, connect: Connect, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_reader, "_CHECK_EVERY_S", 600.0)
    filters = [f"{partition.name}.a"]
    consumer = await partition.consumer("d", ack="all", filters=filters)
    reader = Reader()
    reading = reader_(await connect(), partition, consumer, reader)
    background.start(reading.run())
    await partition.publish("1")
    await eventually(lambda: reader.payloads == numbers(1, 1))

    await partition.bus.request(f"$JS.API.CONSUMER.DELETE.{partition.name}.{consumer}", b"")
    await partition.publish("2", "3")
    await eventually(lambda: reader.payloads == numbers(1, 3))

    await partition.consumer("d", ack="all", filters=filters)
    await partition.publish("4")
    await eventually(lambda: reader.payloads == numbers(1, 4))


async def test_a_gap_is_noticed_although_a_redelivery_came_first(
    partition: TemporaryStream, connect: Connect, background: Background
) -> None:
    consumer = await partition.consumer("d", ack="all", filters=[f"{partition.name}.a"], ack_wait_s=1)
    thief = await connect()
    await partition.publish("1", "2")
    await pull_and_vanish(thief, partition, consumer, 2)
    reader = Reader()
    reading = reader_(await connect(), partition, consumer, reader)
    background.start(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)

    thieving = asyncio.create_task(pull_and_vanish(thief, partition, consumer, 1))
    last = await partition.publish("3", "4", "5", "6")
    await thieving
    await reading.wait_for(last.sequence, 10)

    assert reader.payloads == numbers(1, 6)


async def test_order_holds_when_the_broker_is_killed_in_the_middle(
    own_partition: TemporaryStream, broker: Broker, background: Background
) -> None:
    consumer = await own_partition.consumer("d", ack="all", filters=[f"{own_partition.name}.a"])
    reader = Reader()
    reading = reader_(own_partition.bus, own_partition, consumer, reader)
    background.start(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)

    publishing = asyncio.create_task(own_partition.publish(*numbers(1, 600)))
    for handled in (100, 300):
        await eventually(lambda handled=handled: len(reader.payloads) >= handled)
        await broker.restart()
    last = await publishing
    await reading.wait_for(last.sequence, 15)

    assert reader.payloads == numbers(1, 600)


async def test_a_reader_recovers_soon_after_the_broker(
    own_partition: TemporaryStream, broker: Broker, background: Background
) -> None:
    consumer = await own_partition.consumer("d", ack="all", filters=[f"{own_partition.name}.a"])
    reader = Reader()
    reading = reader_(own_partition.bus, own_partition, consumer, reader)
    background.start(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)

    await broker.restart()
    last = await own_partition.publish("1")

    await reading.wait_for(last.sequence, 3)


async def test_memory_is_rebuilt_from_records_and_the_events_behind_them(
    partition: TemporaryStream, background: Background
) -> None:
    """The writer of the records has settled 3 of 6; the reader gets its records and the other 3."""
    writer = await partition.consumer("writer", ack="all", filters=[f"{partition.name}.a"])
    own = await partition.consumer("own", ack="all", filters=[f"{partition.name}.a"])
    await provision(partition.bus, buckets=[BucketSpec(name=partition.name)])
    records = KeyValueStore(partition.bus, partition.name)
    await partition.publish(*numbers(1, 3))
    applied_sequence = Reader()
    writing = reader_(partition.bus, partition, writer, applied_sequence)
    running = asyncio.create_task(writing.run())
    await writing.wait_for((await partition.publish("live")).sequence, 10)
    await answered(lambda: partition.settled(writer))
    writing.stop()
    await asyncio.wait_for(running, 10)
    await records.put("fold", b"1,2,3,live")
    await partition.publish(*numbers(4, 6))

    loaded: list[Entry] = []

    async def load(entries: list[Entry]) -> None:
        loaded.extend(entries)

    reader = Reader()
    reading = PartitionReader(
        partition.bus,
        stream=partition.name,
        consumer=own,
        filters=[f"{partition.name}.a"],
        records=records,
        record_writers=[writer],
        load=load,
        handle=reader.handle,
    )
    background.start(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)

    assert [entry.value for entry in loaded] == [b"1,2,3,live"]
    assert reader.payloads == numbers(4, 6)


async def test_an_idle_writer_is_a_floor_at_the_end_of_the_stream(
    partition: TemporaryStream, background: Background
) -> None:
    writer = await partition.consumer("writer", ack="all", filters=[f"{partition.name}.other"])
    own = await partition.consumer("own", ack="all", filters=[f"{partition.name}.a"])
    await partition.publish(*numbers(1, 3))
    reader = Reader()
    reading = PartitionReader(
        partition.bus,
        stream=partition.name,
        consumer=own,
        filters=[f"{partition.name}.a"],
        record_writers=[writer],
        handle=reader.handle,
    )
    background.start(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)

    assert reader.payloads == []
    assert reading.position == 3


async def test_a_poisonous_message_is_set_aside_and_does_not_block(
    partition: TemporaryStream, background: Background
) -> None:
    consumer = await partition.consumer(f"{partition.name}-d", ack="all", filters=[f"{partition.name}.a"])
    reader = Reader()
    reader.failures = {"2": Poison("unreadable"), "4": ZeroDivisionError("by zero")}
    reading = reader_(partition.bus, partition, consumer, reader)
    background.start(reading.run())

    last = await partition.publish(*numbers(1, 5))
    await reading.wait_for(last.sequence, 20)

    dead_letters = [
        dead_letter
        for dead_letter in await DeadLetters(partition.bus).list()
        if dead_letter.consumer == consumer
    ]
    assert reader.once() == ["1", "3", "5"]
    assert [(dead_letter.data, dead_letter.reason) for dead_letter in dead_letters] == [
        (b"2", "unreadable"),
        (b"4", "ZeroDivisionError: by zero"),
    ]
    assert dead_letters[0].subject == f"{partition.name}.a"
    assert (dead_letters[0].stream, dead_letters[0].stream_sequence) == (partition.name, 2)


async def test_a_dead_letter_is_replayed_only_to_the_reader_that_failed(
    partition: TemporaryStream, connect: Connect, background: Background
) -> None:
    readers = {name: Reader() for name in ("one", "two")}
    for name, reader in readers.items():
        consumer = await partition.consumer(
            f"{partition.name}-{name}", ack="all", filters=[f"{partition.name}.a"]
        )
        reading = reader_(await connect(), partition, consumer, reader)
        background.start(reading.run())
        await asyncio.wait_for(reading.caught_up.wait(), 10)
    readers["one"].failures = {"2": Poison("unreadable")}
    await partition.publish("1", "2", "3")
    operator = DeadLetters(partition.bus)

    async def own_letters() -> list[DeadLetter]:
        return [
            dead_letter
            for dead_letter in await operator.list()
            if dead_letter.consumer.startswith(partition.name)
        ]

    (dead_letter,) = await answered(own_letters)

    readers["one"].failures = {}
    await operator.replay(dead_letter.sequence)

    assert readers["one"].replayed == ["2"]
    assert readers["two"].replayed == []
    assert await operator.get(dead_letter.sequence) is None
    await eventually(lambda: readers["one"].once() == ["1", "3"])


async def test_an_unavailable_bus_is_no_ones_poison(
    partition: TemporaryStream, background: Background
) -> None:
    consumer = await partition.consumer(f"{partition.name}-d", ack="all", filters=[f"{partition.name}.a"])
    attempts = 0
    handled: list[bytes] = []

    async def handle(batch: list[Incoming], *, live: bool) -> None:
        nonlocal attempts
        attempts += 1
        if attempts <= 6:
            raise BusUnavailable("for a while")
        handled.extend(incoming.data for incoming in batch)

    reading = PartitionReader(
        partition.bus,
        stream=partition.name,
        consumer=consumer,
        filters=[f"{partition.name}.a"],
        handle=handle,
    )
    background.start(reading.run())
    last = await partition.publish("1")

    await reading.wait_for(last.sequence, 30)
    assert handled == [b"1"]


async def test_a_reader_waits_for_a_missing_durable_consumer(
    partition: TemporaryStream, background: Background
) -> None:
    reader = Reader()
    reading = reader_(partition.bus, partition, "late", reader)
    background.start(reading.run())
    last = await partition.publish("1")
    await asyncio.sleep(0.2)
    await partition.consumer("late", ack="all", filters=[f"{partition.name}.a"])

    await reading.wait_for(last.sequence, 10)
    assert reader.payloads == ["1"]


def flushed_reader(
    partition: TemporaryStream,
    consumer: str,
    reader: Reader,
    ledger: Ledger,
    *,
    flush_interval_s: float = 0.1,
) -> PartitionReader:
    return PartitionReader(
        partition.bus,
        stream=partition.name,
        consumer=consumer,
        filters=[f"{partition.name}.a"],
        handle=reader.handle,
        flush=ledger.flush,
        flush_interval_s=flush_interval_s,
    )


async def test_what_cannot_be_settled_is_not_acknowledged_and_comes_again(
    partition: TemporaryStream, background: Background
) -> None:
    consumer = await partition.consumer("d", ack="all", filters=[f"{partition.name}.a"])
    reader, ledger = Reader(), Ledger()
    ledger.shut = True
    reading = flushed_reader(partition, consumer, reader, ledger)
    running = asyncio.create_task(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)
    last = await partition.publish(*numbers(1, 3))
    await reading.wait_for(last.sequence, 10)
    await eventually(lambda: ledger.asked >= 3)
    reading.stop()
    await asyncio.wait_for(running, 10)
    assert not await partition.settled(consumer)

    to_incoming = Reader()
    reading = flushed_reader(partition, consumer, to_incoming, ledger)
    background.start(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)
    assert to_incoming.payloads == numbers(1, 3)
    ledger.shut = False
    await answered(lambda: partition.settled(consumer))


async def test_what_could_not_be_settled_is_acknowledged_once_it_can_be(
    partition: TemporaryStream, background: Background
) -> None:
    consumer = await partition.consumer("d", ack="all", filters=[f"{partition.name}.a"], ack_wait_s=30)
    reader, ledger = Reader(), Ledger()
    ledger.shut = True
    reading = flushed_reader(partition, consumer, reader, ledger)
    background.start(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)
    await reading.wait_for((await partition.publish("1")).sequence, 10)
    await eventually(lambda: ledger.asked >= 2)
    assert not await partition.settled(consumer)

    ledger.shut = False
    await answered(lambda: partition.settled(consumer), timeout_s=5)
    assert reader.payloads == ["1"]


async def test_what_cannot_be_settled_is_not_asked_for_without_a_pause(
    partition: TemporaryStream, background: Background
) -> None:
    consumer = await partition.consumer("d", ack="all", filters=[f"{partition.name}.a"], ack_wait_s=30)
    reader, ledger = Reader(), Ledger()
    ledger.shut = True
    clock = asyncio.get_running_loop().time
    reading = flushed_reader(partition, consumer, reader, ledger, flush_interval_s=0.5)
    background.start(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)
    began, asked = clock(), ledger.asked
    await partition.publish("1")
    await eventually(lambda: ledger.asked >= asked + 3)
    assert ledger.asked - asked <= 1 + (clock() - began) / 0.5


async def test_while_messages_are_many_it_is_settled_now_and_then(
    partition: TemporaryStream, background: Background
) -> None:
    consumer = await partition.consumer("d", ack="all", filters=[f"{partition.name}.a"])
    reader, ledger = Reader(), Ledger()
    reading = flushed_reader(partition, consumer, reader, ledger, flush_interval_s=1)
    background.start(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)
    clock = asyncio.get_running_loop().time
    began = clock()
    last = await partition.publish(*numbers(1, 500))
    await reading.wait_for(last.sequence, 20)

    await answered(lambda: partition.settled(consumer))
    assert ledger.asked <= 10 + (clock() - began)
    assert reader.payloads == numbers(1, 500)


async def test_a_replayed_dead_letter_is_deleted_after_the_flush(
    partition: TemporaryStream, background: Background
) -> None:
    consumer = await partition.consumer(f"{partition.name}-d", ack="all", filters=[f"{partition.name}.a"])
    reader, ledger = Reader(), Ledger()
    reader.failures = {"1": Poison("unreadable")}
    reading = flushed_reader(partition, consumer, reader, ledger)
    background.start(reading.run())
    await reading.wait_for((await partition.publish("1")).sequence, 10)
    operator = DeadLetters(partition.bus)
    (dead_letter,) = [
        dead_letter for dead_letter in await operator.list() if dead_letter.consumer == consumer
    ]
    reader.failures = {}
    await answered(lambda: partition.settled(consumer))
    ledger.shut = True

    with pytest.raises(ReplayFailed):
        await operator.replay(dead_letter.sequence)
    assert await operator.get(dead_letter.sequence) is not None


async def test_what_was_caught_up_on_is_settled_although_nothing_new_comes(
    partition: TemporaryStream, connect: Connect, background: Background
) -> None:
    consumer = await partition.consumer("d", ack="all", filters=[f"{partition.name}.a"], ack_wait_s=30)
    await partition.publish("1", "2")
    await pull_and_vanish(await connect(), partition, consumer, 2)
    reader, ledger = Reader(), Ledger()
    reading = flushed_reader(partition, consumer, reader, ledger)
    background.start(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 10)

    await eventually(lambda: ledger.asked > 0, timeout_s=5)
    assert reader.payloads == ["1", "2"]
