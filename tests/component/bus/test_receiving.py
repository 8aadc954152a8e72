"""Messages are handed over as they are read: with the headers that the client library would find, and whatever a callback does."""

import pytest
from nats.aio.client import Client

from muster_bus import Bus, Incoming
from muster_bus._client import read_headers
from muster_testing.conditions import eventually

BLOCKS = {
    "one": b"NATS/1.0\r\nTraceparent: 00-ab-cd-01\r\n\r\n",
    "several": b"NATS/1.0\r\nNats-Msg-Id: j-1/1/placed\r\nNats-TTL: 5s\r\n\r\n",
    "no blank": b"NATS/1.0\r\na:1\r\nb:\t2\r\n\r\n",
    "colons": b"NATS/1.0\r\nurl: nats://localhost:4222/a:b\r\n\r\n",
    "blanks around": b"NATS/1.0\r\nk:   v w  \r\n\r\n",
    "nothing in it": b"NATS/1.0\r\nk: \r\n\r\n",
    "twice": b"NATS/1.0\r\nk: 1\r\nk: 2\r\n\r\n",
    "not ASCII": "NATS/1.0\r\nname: Jürgen 東京 🙂\r\n\r\n".encode(),
    "not UTF-8": b"NATS/1.0\r\nk: \xff\xfe\r\nl: 1\r\n\r\n",
    "no-responders": b"NATS/1.0 503\r\n\r\n",
    "no messages": b"NATS/1.0 404 No Messages\r\n\r\n",
    "time-out": b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 1\r\nNats-Pending-Bytes: 0\r\n\r\n",
    "conflict": b"NATS/1.0 409 Consumer Deleted\r\n\r\n",
    "heartbeat": b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 7\r\nNats-Last-Stream: 9\r\n\r\n",
}


async def library_headers(block: bytes | None) -> dict[str, str] | None:
    return await Client()._process_headers(block)  # pyright: ignore[reportUnknownMemberType, reportPrivateUsage]


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
async def test_headers_are_those_that_the_client_library_finds(block: bytes) -> None:
    theirs = await library_headers(block)
    assert read_headers(block) == theirs
    assert theirs


@pytest.mark.parametrize("block", [None, b"", b"NATS/1.0\r\n\r\n"])
async def test_where_the_client_library_finds_no_header_there_is_none(block: bytes | None) -> None:
    assert not await library_headers(block)
    assert not read_headers(block)


async def test_headers_cross_the_broker(shared_bus: Bus, fresh: str) -> None:
    received: list[Incoming] = []
    await shared_bus.subscribe(fresh, received.append)
    headers = {"plain": "1", "colons": "a:b: c", "name": "Jürgen 東京"}
    await shared_bus.send(fresh, b"payload", headers=headers)
    await eventually(lambda: bool(received))
    assert (received[0].data, received[0].headers) == (b"payload", headers)


async def test_a_callback_that_raises_does_not_end_the_connection(shared_bus: Bus, fresh: str) -> None:
    received: list[bytes] = []
    generation = shared_bus.generation

    def receive(incoming: Incoming) -> None:
        received.append(incoming.data)
        if incoming.data == b"bad":
            raise ZeroDivisionError("by zero")

    await shared_bus.subscribe(fresh, receive)
    for payload in (b"bad", b"good", b"bad", b"better"):
        await shared_bus.send(fresh, payload)

    await eventually(lambda: len(received) == 4)
    assert received == [b"bad", b"good", b"bad", b"better"]
    assert shared_bus.connected
    assert shared_bus.generation == generation


async def test_nothing_is_delivered_after_a_subscription_was_closed(shared_bus: Bus, fresh: str) -> None:
    received: list[bytes] = []
    subscription = await shared_bus.subscribe(f"{fresh}.a", lambda incoming: received.append(incoming.data))
    await shared_bus.send(f"{fresh}.a", b"1")
    await eventually(lambda: received == [b"1"])
    await subscription.close()

    ends: list[Incoming] = []
    await shared_bus.subscribe(f"{fresh}.b", ends.append)
    await shared_bus.send(f"{fresh}.a", b"2")
    await shared_bus.send(f"{fresh}.b", b"")
    await eventually(lambda: bool(ends))
    assert received == [b"1"]
