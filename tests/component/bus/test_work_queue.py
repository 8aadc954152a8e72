import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from muster_bus import (
    Bus,
    BusMissing,
    BusUnavailable,
    DeadLetter,
    DeadLetters,
    Incoming,
    Poison,
    ReplayFailed,
    WorkQueue,
    dead_letter_stream,
    provision,
)
from muster_testing.broker import Broker
from muster_testing.conditions import Background, answered, eventually
from muster_testing.temporary_stream import TemporaryStream

Connect = Callable[[], Awaitable[Bus]]
Handler = Callable[[Incoming], Awaitable[None]]


def queue(
    bus: Bus, partition: TemporaryStream, consumer: str, handler: Handler, *, concurrency: int = 4
) -> WorkQueue:
    return WorkQueue(bus, stream=partition.name, consumer=consumer, handler=handler, concurrency=concurrency)


async def letters_of(bus: Bus, consumer: str) -> list[DeadLetter]:
    return [dead_letter for dead_letter in await DeadLetters(bus).list() if dead_letter.consumer == consumer]


async def test_copies_share_the_work(
    partition: TemporaryStream, connect: Connect, background: Background
) -> None:
    consumer = await partition.consumer("d", ack="explicit")
    done: dict[str, list[str]] = {"one": [], "two": []}

    def handler(copy: str) -> Handler:
        async def handle(incoming: Incoming) -> None:
            await asyncio.sleep(0.002)
            done[copy].append(incoming.data.decode())

        return handle

    for copy in done:
        background.start(queue(await connect(), partition, consumer, handler(copy)).run())
    payloads = [str(n) for n in range(200)]
    await partition.publish(*payloads)
    await eventually(lambda: sum(map(len, done.values())) == 200)

    assert sorted(done["one"] + done["two"]) == sorted(payloads)
    assert all(done.values())


async def test_a_message_of_a_copy_that_died_goes_to_another(
    partition: TemporaryStream, connect: Connect, background: Background
) -> None:
    consumer = await partition.consumer("d", ack="explicit", ack_wait_s=1)
    victim = await connect()
    stuck = asyncio.Event()
    handled: list[int] = []

    async def hang(_: Incoming) -> None:
        stuck.set()
        await asyncio.Event().wait()

    async def handle(incoming: Incoming) -> None:
        handled.append(incoming.delivered)

    background.start(queue(victim, partition, consumer, hang).run())
    await partition.publish("1")
    await asyncio.wait_for(stuck.wait(), 10)
    await victim.close()
    background.start(queue(await connect(), partition, consumer, handle).run())

    await eventually(lambda: handled == [2])


async def test_a_copy_that_is_stopped_puts_back_what_it_had(
    partition: TemporaryStream, connect: Connect, background: Background
) -> None:
    consumer = await partition.consumer("d", ack="explicit", ack_wait_s=30)
    stuck = asyncio.Event()
    handled: list[str] = []

    async def hang(_: Incoming) -> None:
        stuck.set()
        await asyncio.Event().wait()

    async def handle(incoming: Incoming) -> None:
        handled.append(incoming.data.decode())

    stopping = background.start(queue(await connect(), partition, consumer, hang, concurrency=1).run())
    await partition.publish("1", "2", "3")
    await asyncio.wait_for(stuck.wait(), 10)
    stopping.cancel()
    background.start(queue(await connect(), partition, consumer, handle).run())

    await eventually(lambda: sorted(handled) == ["1", "2", "3"], timeout_s=10)


async def test_a_long_handler_is_not_disturbed(partition: TemporaryStream, background: Background) -> None:
    consumer = await partition.consumer("d", ack="explicit", ack_wait_s=2)
    started: list[int] = []
    finished = asyncio.Event()

    async def handle(incoming: Incoming) -> None:
        started.append(incoming.delivered)
        await asyncio.sleep(4)
        finished.set()

    background.start(queue(partition.bus, partition, consumer, handle).run())
    await partition.publish("1")
    await asyncio.wait_for(finished.wait(), 20)

    assert started == [1]


async def test_a_failing_message_comes_back_and_is_set_aside_at_the_limit(
    partition: TemporaryStream, background: Background
) -> None:
    consumer = await partition.consumer(f"{partition.name}-d", ack="explicit", max_deliver=3)
    deliveries: list[int] = []

    async def handle(incoming: Incoming) -> None:
        if incoming.data == b"bad":
            deliveries.append(incoming.delivered)
            raise ZeroDivisionError("by zero")

    background.start(queue(partition.bus, partition, consumer, handle).run())
    await partition.publish("good", "bad")
    dead_letters = await answered(lambda: letters_of(partition.bus, consumer))
    await answered(lambda: partition.settled(consumer))

    assert deliveries == [1, 2, 3]
    assert [(dead_letter.data, dead_letter.reason) for dead_letter in dead_letters] == [
        (b"bad", "ZeroDivisionError: by zero")
    ]


async def test_poison_is_set_aside_at_once_and_can_be_replayed_when_the_handler_is_mended(
    partition: TemporaryStream, connect: Connect, background: Background
) -> None:
    consumer = await partition.consumer(f"{partition.name}-d", ack="explicit")
    mended = False
    handled: list[tuple[bytes, bool, str]] = []

    async def handle(incoming: Incoming) -> None:
        if not mended:
            raise Poison("cannot be read")
        handled.append((incoming.data, incoming.replayed, incoming.msg_id))

    background.start(queue(await connect(), partition, consumer, handle).run())
    await partition.publish("1")
    dead_letters = await answered(lambda: letters_of(partition.bus, consumer))
    operator = DeadLetters(partition.bus)

    with pytest.raises(ReplayFailed, match="cannot be read"):
        await operator.replay(dead_letters[0].sequence)
    assert len(await letters_of(partition.bus, consumer)) == 1
    mended = True
    await operator.replay(dead_letters[0].sequence)

    assert handled == [(b"1", True, f"{partition.name}/a/1")]
    assert await letters_of(partition.bus, consumer) == []
    assert await partition.bus.last_sequence(partition.name) == 1


async def test_a_replay_without_an_owner_keeps_the_dead_letter(partition: TemporaryStream) -> None:
    operator = DeadLetters(partition.bus)
    consumer = f"{partition.name}-missing"
    await operator.put(
        Incoming(subject="x", data=b"1", stream=partition.name, stream_sequence=1), consumer, "why"
    )
    await operator.put(
        Incoming(subject="x", data=b"1", stream=partition.name, stream_sequence=1), consumer, "again"
    )
    dead_letters = await letters_of(partition.bus, consumer)
    assert [dead_letter.reason for dead_letter in dead_letters] == ["why"]

    with pytest.raises(BusUnavailable):
        await operator.replay(dead_letters[0].sequence)
    assert len(await letters_of(partition.bus, consumer)) == 1
    await operator.discard(dead_letters[0].sequence)
    await operator.discard(dead_letters[0].sequence)

    assert await letters_of(partition.bus, consumer) == []
    assert await operator.get(dead_letters[0].sequence) is None


async def test_dead_letters_use_the_prefix_of_their_stream(bus: Bus) -> None:
    dead_letters = DeadLetters(bus, stream="LETTERS")
    incoming = Incoming(subject="x", data=b"1", stream="X", stream_sequence=1)
    with pytest.raises(BusMissing):
        await dead_letters.put(incoming, "reader", "why")

    await provision(bus, streams=[dead_letter_stream("LETTERS", "a.prefix.of.its.own")])
    await dead_letters.put(incoming, "reader", "why")

    assert [dead_letter.data for dead_letter in await dead_letters.list()] == [b"1"]
    assert await bus.last("LETTERS", "a.prefix.of.its.own.reader.X.1") is not None


async def test_a_large_payload_is_set_aside_too_and_found_again(partition: TemporaryStream) -> None:
    payload = "x" * 900_000
    published = await partition.publish(payload)
    consumer = f"{partition.name}-d"
    last = await partition.bus.last(partition.name, f"{partition.name}.a")
    assert last is not None

    await DeadLetters(partition.bus).put(last, consumer, "too much")
    listed = await letters_of(partition.bus, consumer)
    whole = await DeadLetters(partition.bus).get(listed[0].sequence)

    assert not listed[0].whole
    assert whole is not None
    assert (whole.data, whole.stream_sequence) == (payload.encode(), published.sequence)


async def test_a_message_that_kills_its_process_every_time_becomes_a_dead_letter(
    partition: TemporaryStream, connect: Connect, background: Background
) -> None:
    consumer = await partition.consumer(f"{partition.name}-d", ack="explicit", ack_wait_s=1, max_deliver=1)

    async def hang(_: Incoming) -> None:
        taken.set()
        await asyncio.Event().wait()

    async def handle(_: Incoming) -> None:
        return

    taken = asyncio.Event()
    victim = await connect()
    background.start(queue(victim, partition, consumer, hang).run())
    await partition.publish("deadly")
    await asyncio.wait_for(taken.wait(), 10)
    await victim.close()
    background.start(queue(await connect(), partition, consumer, handle).run())

    dead_letters = await answered(lambda: letters_of(partition.bus, consumer))
    assert dead_letters[0].data == b"deadly"
    assert "abandoned by the broker after 1 deliveries" in dead_letters[0].reason


async def test_an_unavailable_bus_never_counts_as_poison(
    partition: TemporaryStream, background: Background
) -> None:
    consumer = await partition.consumer(f"{partition.name}-d", ack="explicit", max_deliver=2, ack_wait_s=2)
    deliveries: list[int] = []

    async def handle(incoming: Incoming) -> None:
        deliveries.append(incoming.delivered)
        if len(deliveries) < 5:
            raise BusUnavailable("for a while")

    background.start(queue(partition.bus, partition, consumer, handle).run())
    await partition.publish("1")

    await eventually(lambda: deliveries == [1, 1, 1, 1, 1])
    await answered(lambda: partition.settled(consumer))
    assert await letters_of(partition.bus, consumer) == []


async def test_a_queue_survives_a_restart_of_the_broker(
    own_partition: TemporaryStream, broker: Broker, background: Background
) -> None:
    consumer = await own_partition.consumer("d", ack="explicit")
    handled: set[str] = set()

    async def handle(incoming: Incoming) -> None:
        handled.add(incoming.data.decode())

    background.start(queue(own_partition.bus, own_partition, consumer, handle).run())
    await own_partition.publish("1")
    await eventually(lambda: handled == {"1"})
    await broker.restart()
    await own_partition.publish("2")
    began = time.monotonic()

    await eventually(lambda: handled == {"1", "2"})
    assert time.monotonic() - began < 5
