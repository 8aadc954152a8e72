"""A stream that is left while its next message is read keeps no memory, neither in the client nor in the server."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress

import grpc
import pytest
from grpc import aio

from muster_service.grpc_client import Messages, channel, until_left
from muster_testing.echo import Context, Echo, EchoClient, add_echo

LEFT = 200
ROUNDS = 3
OPERATION_BYTES = 96
"""What gRPC allocates for a read, and does not free if the task that reads is cancelled."""
MESSAGE_BYTES = 60_000
"""Fits into the flow-control window: the message arrives although no task reads it."""


class Allocations(ctypes.Structure):
    """``struct mallinfo2`` of the GNU C library, where gRPC allocates; Python keeps small objects elsewhere."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]
    hblkhd: int
    uordblks: int


class Leaver:
    """Waits for a request, is cancelled before it arrives, and ends the call when ``release`` is set."""

    def __init__(self) -> None:
        self.release = asyncio.Event()

    async def leave(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Write `reads` when a read is under way, and `left` when its task is cancelled."""
        waiting = asyncio.create_task(next_of(Messages(requests)))
        await context.write(b"reads")
        waiting.cancel()
        await asyncio.wait([waiting])
        await context.write(b"left")
        await self.release.wait()


async def next_of(messages: Messages[bytes]) -> bytes:
    return await anext(messages)


class Server:
    """`Echo` and ``Leaver`` without telemetry, which would allocate as well."""

    def __init__(self, leaver: Leaver, caller: EchoClient, plain: EchoClient) -> None:
        self.leaver = leaver
        self.caller = caller
        self.plain = plain
        """Without interceptors, which write after `write` has returned."""


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    leaver = Leaver()
    host = aio.server()
    add_echo(Echo(), host)
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Leave": grpc.stream_stream_rpc_method_handler(leaver.leave)
    }
    host.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Leaver", handlers),))
    port = host.add_insecure_port("127.0.0.1:0")
    await host.start()
    async with channel(f"127.0.0.1:{port}") as target, aio.insecure_channel(f"127.0.0.1:{port}") as plain:
        yield Server(leaver, EchoClient(target), EchoClient(plain))
    await host.stop(0)


async def leave_answers(server: Server) -> None:
    """Wait for the second answer of a call, which is never sent, and be cancelled."""
    reads = asyncio.Event()

    async def read() -> None:
        async with until_left(server.caller.listen("Forever")) as answers:
            async for _ in answers:
                reads.set()

    reading = asyncio.create_task(read())
    await reads.wait()
    reading.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled()


async def leave_requests(server: Server) -> None:
    """Send a request when the server no longer waits for it."""
    leave: aio.StreamStreamMultiCallable[bytes, bytes] = server.plain.channel.stream_stream(
        "/test.Leaver/Leave"
    )
    call = leave()
    assert [await call.read(), await call.read()] == [b"reads", b"left"]
    await call.write(bytes(MESSAGE_BYTES))
    # This one arrives after it, on the same connection.
    await server.plain.ask("Say")
    server.leaver.release.set()
    assert await call.code() is grpc.StatusCode.OK
    server.leaver.release.clear()


def allocated() -> int:
    """Return how many bytes are allocated."""
    gc.collect()
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Allocations
    now: Allocations = mallinfo2()
    return now.uordblks + now.hblkhd


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs the GNU C library 2.33")
@pytest.mark.parametrize(
    ("leave", "leaked"),
    [(leave_answers, OPERATION_BYTES), (leave_requests, MESSAGE_BYTES)],
    ids=["client", "server"],
)
async def test_a_read_that_is_left_keeps_no_memory(
    server: Server, leave: Callable[[Server], Awaitable[None]], leaked: int
) -> None:
    async def growth() -> int:
        before = allocated()
        for _ in range(LEFT):
            await leave(server)
        return allocated() - before

    await growth()
    # A leak grows in every round; what fills a cache, or another thread allocates, does not.
    grown = [await growth() for _ in range(ROUNDS)]

    assert min(grown) < LEFT * leaked / 2


@pytest.mark.parametrize("method", ["Forever", "CrashMidway", "Count"], ids=["left", "failed", "ended"])
async def test_a_stream_is_freed_without_the_garbage_collector(server: Server, method: str) -> None:
    reads = asyncio.Event()
    streams: list[weakref.ref[Messages[bytes]]] = []

    async def read() -> None:
        with suppress(aio.AioRpcError):
            async with until_left(server.caller.listen(method, b"1")) as answers:
                streams.append(weakref.ref(answers))
                async for _ in answers:
                    reads.set()

    gc.disable()
    try:
        reading = asyncio.create_task(read())
        await reads.wait()
        if method == "Forever":
            reading.cancel()
        await asyncio.wait([reading])
        # A cancelled task refers to the frames that its exception has passed.
        del reading

        assert [stream() for stream in streams] == [None]
    finally:
        gc.enable()
