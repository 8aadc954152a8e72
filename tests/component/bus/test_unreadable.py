"""What cannot be read on the bus stops no reader, and what was damaged on its way is read again."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import msgspec
import pytest

from muster_bus import (
    BucketSpec,
    Bus,
    BusMetrics,
    BusSettings,
    BusUnavailable,
    DeadLetter,
    DeadLetters,
    Incoming,
    KeyValueStore,
    PartitionReader,
    Poison,
    WorkQueue,
    provision,
)
from muster_bus.key_value import HeaderWatch, KeyWatch
from muster_testing.broker import Broker
from muster_testing.conditions import Background, eventually
from muster_testing.poison import RawPublisher
from muster_testing.temporary_stream import TemporaryStream

Connect = Callable[[], Awaitable[Bus]]

ADVISORY = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES"


class Counted(BusMetrics):
    def __init__(self) -> None:
        self.unreadable_in: list[str] = []

    def unreadable(self, stream: str, /) -> None:
        self.unreadable_in.append(stream)


class Reader:
    """Remembers payloads; one that is not ``good`` is poison."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    async def handle(self, batch: list[Incoming], *, live: bool) -> None:
        for incoming in batch:
            await self.handle_one(incoming)

    async def handle_one(self, incoming: Incoming) -> None:
        if not incoming.data.startswith(b"good"):
            raise Poison(f"{incoming.data!r} is not good")
        self.payloads.append(incoming.data)


@asynccontextmanager
async def damaging(broker: Broker, before: bytes, after: bytes) -> AsyncGenerator[Bus]:
    """A connection whose wire turns the first ``before`` into ``after``, which has the same length."""
    address = urlsplit(broker.url)
    pumps: set[asyncio.Task[None]] = set()
    left = [before]

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, damages: bool) -> None:
        while data := await reader.read(65536):
            if damages and left and before in data:
                data = data.replace(left.pop(), after, 1)
            writer.write(data)
            await writer.drain()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await asyncio.open_connection(address.hostname, address.port)
        pumps.add(asyncio.create_task(pump(reader, upstream[1], damages=False)))
        pumps.add(asyncio.create_task(pump(upstream[0], writer, damages=True)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    bus = await Bus.connect(
        BusSettings(url=f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"), name="damaged"
    )
    try:
        yield bus
    finally:
        await bus.close()
        for task in pumps:
            task.cancel()
        server.close()
    assert not left, "nothing was damaged"


async def dead_letters_of(partition: TemporaryStream) -> list[DeadLetter]:
    return [one for one in await DeadLetters(partition.bus).list() if one.stream == partition.name]


def ordered(bus: Bus, stream: TemporaryStream, writer: str, reader: Reader) -> PartitionReader:
    return PartitionReader(
        bus,
        stream=stream.name,
        consumer="reader",
        filters=[f"{stream.name}.>"],
        record_writers=[writer],
        handle=reader.handle,
    )


@pytest.mark.parametrize("has_consumer", [True, False], ids=["durable", "ordered"])
async def test_a_subject_that_is_not_utf_8_does_not_stop_a_reader(
    partition: TemporaryStream, shared_broker: Broker, background: Background, *, has_consumer: bool
) -> None:
    reader = Reader()
    consumer = await partition.consumer("d", ack="all", filters=[f"{partition.name}.>"])
    following = (
        PartitionReader(
            partition.bus,
            stream=partition.name,
            consumer=consumer,
            filters=[f"{partition.name}.>"],
            handle=reader.handle,
        )
        if has_consumer
        else ordered(partition.bus, partition, consumer, reader)
    )
    background.start(following.run())
    await following.caught_up.wait()
    async with RawPublisher.connected(shared_broker.url) as raw:
        await raw.publish(partition.name.encode() + b".\xff\xfe", b"good 1")
        await raw.flush()
    await partition.publish("good 2")

    await eventually(lambda: reader.payloads == [b"good 1", b"good 2"], timeout_s=5)


async def test_an_unreadable_advisory_is_removed_and_the_queue_goes_on(
    partition: TemporaryStream, shared_broker: Broker, background: Background
) -> None:
    consumer = await partition.consumer("d", ack="explicit")
    advisory = f"{ADVISORY}.{partition.name}.{consumer}".encode()
    other = {"stream": "*", "consumer": "x y", "stream_seq": 1}
    async with RawPublisher.connected(shared_broker.url) as raw:
        for payload in (b"", b"\xff", b"[" * 9_999, b'{"stream":1}', msgspec.json.encode(other)):
            await raw.publish(advisory, payload)
        await raw.flush()
    counted, reader = Counted(), Reader()
    bus = await Bus.connect(BusSettings(url=shared_broker.url), name="counted", metrics=counted)
    queue = WorkQueue(bus, stream=partition.name, consumer=consumer, handler=reader.handle_one)
    running = background.start(queue.run())
    await partition.publish("good")

    await eventually(lambda: reader.payloads == [b"good"])
    await eventually(lambda: counted.unreadable_in == ["DEAD"] * 5)
    assert not running.done()
    await bus.close()


@pytest.mark.parametrize("kind", ["work queue", "partition reader"])
async def test_unreadable_replay_requests_do_not_end_a_consumer(
    partition: TemporaryStream, shared_broker: Broker, background: Background, kind: str
) -> None:
    reader, bus = Reader(), partition.bus
    consumer = await partition.consumer("d", ack="explicit" if kind == "work queue" else "all")
    running = background.start(
        WorkQueue(bus, stream=partition.name, consumer=consumer, handler=reader.handle_one).run()
        if kind == "work queue"
        else PartitionReader(
            bus,
            stream=partition.name,
            consumer=consumer,
            filters=[f"{partition.name}.>"],
            handle=reader.handle,
        ).run()
    )
    await partition.publish("good 1")
    await eventually(lambda: len(reader.payloads) == 1)
    async with RawPublisher.connected(shared_broker.url) as raw:
        # A forged dead letter, and requests for it, for what is no dead letter, and for no number.
        await raw.publish(f"dead.{consumer}.x.1".encode(), b'{"subject":')
        await raw.flush()
        last = await bus.last_sequence("DEAD")
        for request in (b"", b"\xff", b"-1", b"0", b"9" * 19, b"9" * 40, b"9" * 5000, str(last).encode()):
            await raw.publish(f"replay.DEAD.{consumer}".encode(), request)
        await raw.flush()
    await partition.publish("good 2")

    await eventually(lambda: reader.payloads[-1] == b"good 2")
    assert not running.done()


async def test_an_unreadable_dead_letter_is_listed_and_can_be_discarded(
    partition: TemporaryStream, shared_broker: Broker
) -> None:
    async with RawPublisher.connected(shared_broker.url) as raw:
        await raw.publish(f"dead.{partition.name}.x.1".encode(), b"\xff{")
        await raw.flush()
    dead = DeadLetters(partition.bus)

    found = [one for one in await dead.list() if one.subject == f"dead.{partition.name}.x.1"]

    assert [(one.data, one.consumer) for one in found] == [(b"\xff{", "")]
    assert "cannot be read" in found[0].reason
    await dead.discard(found[0].sequence)
    assert await dead.get(found[0].sequence) is None


async def test_a_poisonous_message_is_dead_lettered_although_its_reason_is_large(
    partition: TemporaryStream, shared_broker: Broker, background: Background
) -> None:
    consumer = await partition.consumer("d", ack="all", filters=[f"{partition.name}.>"])
    reader = Reader()
    background.start(
        PartitionReader(
            partition.bus,
            stream=partition.name,
            consumer=consumer,
            filters=[f"{partition.name}.>"],
            handle=reader.handle,
        ).run()
    )
    async with RawPublisher.connected(shared_broker.url) as raw:
        await raw.publish(f"{partition.name}.a".encode(), b"\x00" * 4_000_000)
        await raw.flush()
    await partition.publish("good")

    await eventually(lambda: reader.payloads == [b"good"])
    [dead_letter] = await dead_letters_of(partition)
    assert len(dead_letter.reason) < 5000
    assert not dead_letter.whole


async def test_an_event_damaged_on_delivery_is_read_from_its_stream(
    partition: TemporaryStream, shared_broker: Broker, background: Background
) -> None:
    consumer = await partition.consumer("d", ack="all", filters=[f"{partition.name}.>"])
    reader = Reader()
    async with damaging(shared_broker, b"good 2", b"goof 2") as bus:
        following = PartitionReader(
            bus,
            stream=partition.name,
            consumer=consumer,
            filters=[f"{partition.name}.>"],
            handle=reader.handle,
        )
        background.start(following.run())
        await following.caught_up.wait()
        await partition.publish("good 1", "good 2", "good 3")

        await eventually(lambda: len(set(reader.payloads)) == 3)

    assert list(dict.fromkeys(reader.payloads)) == [b"good 1", b"good 2", b"good 3"]
    assert await dead_letters_of(partition) == []


async def test_a_submission_damaged_on_delivery_is_read_from_its_stream(
    partition: TemporaryStream, shared_broker: Broker, background: Background
) -> None:
    consumer = await partition.consumer("d", ack="explicit")
    reader = Reader()
    async with damaging(shared_broker, b"good 1", b"goof 1") as bus:
        background.start(
            WorkQueue(bus, stream=partition.name, consumer=consumer, handler=reader.handle_one).run()
        )
        await partition.publish("good 1")

        await eventually(lambda: reader.payloads == [b"good 1"])

    assert await dead_letters_of(partition) == []


async def test_a_value_damaged_on_delivery_is_read_from_its_bucket(
    shared_bus: Bus, shared_broker: Broker, fresh: str, background: Background
) -> None:
    await provision(shared_bus, buckets=[BucketSpec(name=fresh)])
    store, seen = KeyValueStore(shared_bus, fresh), list[bytes | None]()

    def decode(value: bytes) -> bytes:
        if not value.startswith(b"good"):
            raise ValueError("not good")
        return value

    async with damaging(shared_broker, b"good 2", b"goof 2") as bus:
        damaged = KeyValueStore(bus, fresh)

        async def follow() -> None:
            async for change in damaged.watch():
                seen.append(await damaged.read(change, decode))

        background.start(follow())
        for count, payload in enumerate((b"good 1", b"good 2", b"bad", b"good 3"), start=1):
            await store.put("key", payload)
            await eventually(lambda count=count: len(seen) >= count)

    assert seen == [b"good 1", b"good 2", None, b"good 3"]


@pytest.mark.parametrize(
    ("before", "after"), [(b".good", b".goo\xe4"), (b"Made-By: me", b"Made-By: m\xe5")], ids=["key", "header"]
)
@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("of_headers", [True, False])
async def test_a_key_or_header_damaged_on_delivery_is_read_from_its_bucket(
    before: bytes,
    after: bytes,
    *,
    is_listed: bool,
    of_headers: bool,
    shared_bus: Bus,
    shared_broker: Broker,
    fresh: str,
    background: Background,
) -> None:
    await provision(shared_bus, buckets=[BucketSpec(name=fresh)])
    store, keys = KeyValueStore(shared_bus, fresh), list[str]()

    async def follow(watch: KeyWatch) -> None:
        async for change in watch.changes():
            keys.append(change.key)

    async def follow_headers(watch: HeaderWatch) -> None:
        async for batch in watch.changes():
            keys.extend(f"{change.key} of {change.headers['Made-By']}" for change in batch)

    def is_sound(key: str, headers: Mapping[str, str]) -> bool:
        return key == "good" and headers["Made-By"] == "me"

    async with damaging(shared_broker, before, after) as bus:
        damaged = KeyValueStore(bus, fresh, is_sound=is_sound)
        if is_listed:
            await store.put("good", b"1", headers={"Made-By": "me"})
        watch = damaged.watch_headers(">") if of_headers else damaged.watch_keys()
        background.start(follow_headers(watch) if isinstance(watch, HeaderWatch) else follow(watch))
        await watch.listed.wait()
        if not is_listed:
            await store.put("good", b"1", headers={"Made-By": "me"})
        await eventually(lambda: bool(keys))

    assert set(keys) == {"good of me" if of_headers else "good"}


async def test_a_damaged_key_is_listed_as_it_was_written(
    shared_bus: Bus, shared_broker: Broker, fresh: str
) -> None:
    await provision(shared_bus, buckets=[BucketSpec(name=fresh)])
    await KeyValueStore(shared_bus, fresh).put("good", b"1")
    async with damaging(shared_broker, b".good", b".goo\xe4") as bus:
        damaged = KeyValueStore(bus, fresh, is_sound=lambda key, _: key == "good")
        assert [entry.key for entry in await damaged.entries()] == ["good"]


@pytest.mark.parametrize(
    ("before", "after"), [(b'"err_code"', b'"esr_code"'), (b"10037", b"10036")], ids=["name", "number"]
)
async def test_a_refusal_that_is_damaged_on_its_way_says_nothing(
    partition: TemporaryStream, shared_broker: Broker, before: bytes, after: bytes
) -> None:
    async with damaging(shared_broker, before, after) as bus:
        with pytest.raises(BusUnavailable, match="unreadable"):
            await bus.last(partition.name, f"{partition.name}.none")
        assert await bus.last(partition.name, f"{partition.name}.none") is None
