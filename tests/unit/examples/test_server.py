"""The parameter server on a real socket: what counts, who counts, and when it ends."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator

import numpy as np
import pytest

from examples.digits.trainer.model import SIZE, Vector
from examples.digits.trainer.server import AddressUnavailableError, ParameterServer
from examples.digits.trainer.wire import (
    MAX_BODY,
    Connection,
    Kind,
    ProtocolError,
    Reply,
    Request,
    decode_vector,
    encode_vector,
)

WAIT_S = 10.0
GRADIENT = np.ones(SIZE, dtype=np.float32)


class Running:
    """A server under test and the workers that talk to it."""

    def __init__(self, server: ParameterServer, port: int, ended: asyncio.Task[None]) -> None:
        self.server = server
        self.ended = ended
        self.port = port

    async def join(self, name: str) -> tuple[Connection, Reply]:
        connection = Connection(
            await asyncio.to_thread(socket.create_connection, ("127.0.0.1", self.port), WAIT_S)
        )
        return connection, await ask(connection, Request(Kind.HELLO, name.encode()))

    async def send_raw(self, data: bytes) -> bytes:
        """Send bytes and return everything until the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        async with asyncio.timeout(WAIT_S):
            answer = await reader.read()
        writer.close()
        return answer

    async def until_workers_are(self, count: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while self.server.workers != count:
                await asyncio.sleep(0.005)


async def ask(connection: Connection, request: Request) -> Reply:
    return await asyncio.to_thread(connection.ask, request)


async def push(connection: Connection, gradient: Vector = GRADIENT) -> Reply:
    return await ask(connection, Request(Kind.PUSH, encode_vector(gradient)))


@contextlib.asynccontextmanager
async def running(*, global_steps: int = 3, linger_s: float = 0.0) -> AsyncGenerator[Running]:
    server = ParameterServer(
        chief="worker-0", global_steps=global_steps, learning_rate=0.5, linger_s=linger_s
    )
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    ended = asyncio.create_task(server.run(host="127.0.0.1", port=0, listening=listening))
    async with asyncio.timeout(WAIT_S):
        port = await listening
    try:
        yield Running(server, port, ended)
    finally:
        server.stop(15)
        async with asyncio.timeout(WAIT_S):
            await ended


async def test_a_gradient_moves_the_parameters_and_the_step() -> None:
    async with running() as run:
        worker, before = await run.join("worker-1")
        after = await push(worker)
        worker.close()
    assert (before.step, after.step) == (0, 1)
    assert np.allclose(before.parameters - after.parameters, 0.5)


async def test_no_gradient_counts_after_the_last_step() -> None:
    async with running(global_steps=2) as run:
        worker, _ = await run.join("worker-1")
        replies = [await push(worker) for _ in range(3)]
        worker.close()
    assert [reply.step for reply in replies] == [1, 2, 2]
    assert [reply.done for reply in replies] == [False, True, True]
    assert np.array_equal(replies[1].parameters, replies[2].parameters)


async def test_a_gradient_that_arrives_in_part_does_not_count() -> None:
    async with running() as run:
        half = Request(Kind.PUSH, encode_vector(GRADIENT)).encode()[: MAX_BODY // 2]
        reader, writer = await asyncio.open_connection("127.0.0.1", run.port)
        writer.write(Request(Kind.HELLO, b"worker-1").encode() + half)
        async with asyncio.timeout(WAIT_S):
            await reader.readexactly(MAX_BODY)
        assert run.server.workers == 1
        writer.close()
        await run.until_workers_are(0)
        assert run.server.step == 0


async def test_a_worker_that_comes_back_takes_its_own_place() -> None:
    async with running() as run:
        old, _ = await run.join("worker-1")
        new, reply = await run.join("worker-1")
        assert reply.workers == 1
        with pytest.raises(OSError):
            await push(old)
        assert (await push(new)).step == 1
        old.close()
        new.close()


async def test_a_killed_worker_is_no_longer_counted() -> None:
    async with running() as run:
        dying, _ = await run.join("worker-1")
        staying, reply = await run.join("worker-2")
        assert reply.workers == 2
        dying.close()
        await run.until_workers_are(1)
        assert (await push(staying)).workers == 1
        staying.close()


async def test_it_ends_when_the_chief_has_seen_the_end_and_everyone_has_gone() -> None:
    async with running(global_steps=1) as run:
        chief, _ = await run.join("worker-0")
        other, _ = await run.join("worker-1")
        assert (await push(other)).done
        chief.tell(Request(Kind.FINISH))
        await run.until_workers_are(1)
        assert not run.ended.done()
        other.tell(Request(Kind.FINISH))
        async with asyncio.timeout(WAIT_S):
            await run.ended
        assert run.server.exit_code == 0
        chief.close()
        other.close()


async def test_it_waits_for_a_chief_that_has_not_seen_the_end() -> None:
    async with running(global_steps=1) as run:
        worker, _ = await run.join("worker-1")
        await push(worker)
        worker.tell(Request(Kind.FINISH))
        await run.until_workers_are(0)
        chief, reply = await run.join("worker-0")
        assert reply.done
        chief.tell(Request(Kind.FINISH))
        async with asyncio.timeout(WAIT_S):
            await run.ended
        worker.close()
        chief.close()


async def test_a_late_worker_is_informed_of_the_end() -> None:
    async with running(global_steps=1, linger_s=60.0) as run:
        chief, _ = await run.join("worker-0")
        await push(chief)
        chief.tell(Request(Kind.FINISH))
        await run.until_workers_are(0)
        late, reply = await run.join("worker-3")
        assert reply.done
        chief.close()
        late.close()


async def test_being_stopped_before_the_end_is_not_a_success() -> None:
    async with running() as run:
        run.server.stop(15)
        async with asyncio.timeout(WAIT_S):
            await run.ended
        assert run.server.exit_code == 143


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        Request(Kind.PUSH, encode_vector(GRADIENT)).encode(),
        Request(Kind.HELLO).encode(),
        b"\x01\xff\xff\xff\xff",
    ],
    ids=["another protocol", "a push without a hello", "a hello without a name", "four gigabytes"],
)
async def test_a_stranger_is_turned_away(data: bytes) -> None:
    async with running() as run:
        assert await run.send_raw(data) == b""
        assert (run.server.step, run.server.workers) == (0, 0)


@pytest.mark.parametrize(
    "body", [b"", encode_vector(GRADIENT)[4:], encode_vector(GRADIENT * np.float32("nan"))]
)
async def test_a_broken_gradient_costs_its_sender_the_connection(body: bytes) -> None:
    async with running() as run:
        worker, _ = await run.join("worker-1")
        with pytest.raises(OSError):
            await ask(worker, Request(Kind.PUSH, body))
        await run.until_workers_are(0)
        worker.close()
        assert run.server.step == 0


async def test_an_address_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = ParameterServer(chief="worker-0", global_steps=1, learning_rate=1.0, linger_s=0.0)
        with pytest.raises(AddressUnavailableError, match="cannot listen on port"):
            await server.run(host="127.0.0.1", port=taken.getsockname()[1])


def test_a_vector_survives_the_wire() -> None:
    assert np.array_equal(decode_vector(encode_vector(GRADIENT)), GRADIENT)
    with pytest.raises(ProtocolError, match="bytes instead of"):
        decode_vector(b"\0" * 8)
