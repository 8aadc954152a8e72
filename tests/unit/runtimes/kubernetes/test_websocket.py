"""WebSockets to pods with a late, slow or closed side, against small real servers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager

import aiohttp
from aiohttp import WSMsgType, web

from muster_runtimes import ExecResult
from muster_runtimes.kubernetes.access import EXEC_PROTOCOLS, EXEC_V5, PodExecSession
from muster_runtimes.kubernetes.websocket import PodWebSocket, open_websocket

TIMEOUT_S = 10
MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
STATUS = b"\x03" + json.dumps({"status": "Failure", "message": "no such file or directory"}).encode()
SOON_S = 0.05

Script = Callable[[web.WebSocketResponse], Awaitable[None]]


@asynccontextmanager
async def websocket_to(script: Script, *, silent_s: float = TIMEOUT_S) -> AsyncGenerator[PodWebSocket]:
    """A WebSocket to a server that runs a script, and sends pongs only if the script does."""

    async def serve(request: web.Request) -> web.WebSocketResponse:
        response = web.WebSocketResponse(autoping=False, protocols=(EXEC_V5,))
        await response.prepare(request)
        await script(response)
        return response

    app = web.Application()
    app.router.add_get("/", serve)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        (_, port), *_ = runner.addresses
        async with (
            asyncio.timeout(TIMEOUT_S),
            aiohttp.ClientSession() as session,
            session.ws_connect(
                f"http://127.0.0.1:{port}/", protocols=(EXEC_V5,), autoping=False
            ) as websocket,
        ):
            yield PodWebSocket(websocket, silent_s=silent_s, pong_s=SOON_S)
    finally:
        await runner.cleanup()


@contextmanager
def early_closing_server() -> Generator[int]:
    """The port of a server that sends the status of a command at once, and closes the connection."""

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(4096)
            (key,) = re.findall(rb"(?i)^Sec-WebSocket-Key: (\S+)", head, re.MULTILINE)
            accept = base64.b64encode(hashlib.sha1(key + MAGIC, usedforsecurity=False).digest())
            connection.sendall(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Protocol: %b\r\nSec-WebSocket-Accept: %b\r\n\r\n" % (EXEC_V5.encode(), accept)
            )
            time.sleep(SOON_S)
            connection.sendall(b"\x82" + bytes((len(STATUS),)) + STATUS + b"\x88\x02\x03\xe8")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def block_event_loop(seconds: float) -> None:
    """Block the event loop, so that nothing is read before the next write."""
    time.sleep(seconds)


async def test_the_result_is_read_although_input_is_written_after_the_server_closed():
    with early_closing_server() as port:
        async with (
            asyncio.timeout(TIMEOUT_S),
            aiohttp.TCPConnector() as connector,
            open_websocket(
                connector=connector,
                url=f"http://127.0.0.1:{port}/",
                query=[],
                headers={},
                protocols=EXEC_PROTOCOLS,
            ) as opened,
        ):
            execution = PodExecSession(opened, has_input=True, in_terminal=False)
            block_event_loop(4 * SOON_S)
            await execution.write(b"some")
            block_event_loop(SOON_S)
            await execution.write(b"more")
            await execution.end_input()
            assert [written async for written in execution.output()] == []
            assert await execution.ended() == ExecResult(127, "no such file or directory")


async def test_at_most_two_frames_of_input_are_unread():
    received: list[bytes] = []
    pings: asyncio.Queue[bytes] = asyncio.Queue()
    takes = asyncio.Event()

    async def script(server: web.WebSocketResponse) -> None:
        async def answer() -> None:
            await takes.wait()
            while True:
                await server.pong(await pings.get())

        answering = asyncio.create_task(answer())
        async for message in server:
            if message.type is WSMsgType.PING:
                pings.put_nowait(message.data)
            else:
                received.append(message.data)
        answering.cancel()

    much = b"0123456789abcdef" * 2**14
    async with websocket_to(script) as opened:
        execution = PodExecSession(opened, has_input=True, in_terminal=False)
        receiving = asyncio.create_task(anext(execution.output(), None))
        writing = asyncio.create_task(execution.write(much))
        await asyncio.sleep(4 * SOON_S)
        assert len(received) == 2
        takes.set()
        await writing
        await execution.end_input()
        while received[-1] != b"\xff\x00":
            await asyncio.sleep(0.01)
        assert b"".join(frame[1:] for frame in received[:-1]) == much
        receiving.cancel()


async def test_waiting_input_is_dropped_when_the_connection_closes():
    async def script(server: web.WebSocketResponse) -> None:
        await server.receive()
        await server.close()

    async with websocket_to(script) as opened:
        execution = PodExecSession(opened, has_input=True, in_terminal=False)
        writing = asyncio.create_task(execution.write(b"x" * 2**20))
        assert [written async for written in execution.output()] == []
        await writing


async def test_a_command_that_does_not_read_its_input_keeps_its_connection():
    async def script(server: web.WebSocketResponse) -> None:
        await asyncio.sleep(10 * SOON_S)
        await server.send_bytes(b"\x01at last")
        await server.receive()

    async with websocket_to(script, silent_s=SOON_S) as opened:
        await opened.send(0, b"input")
        assert await opened.receive() == (1, b"at last")


async def test_silence_counts_only_after_all_sent_data_is_read():
    async def script(server: web.WebSocketResponse) -> None:
        await server.receive()
        await asyncio.sleep(4 * SOON_S)
        # An unsolicited pong, and the pong of the ping after the frame; the next ping has none.
        await server.pong(b"\xff" * 16)
        await server.pong((await server.receive()).data)
        async for _ in server:
            pass

    async with websocket_to(script, silent_s=SOON_S) as opened:
        began = asyncio.get_running_loop().time()
        await opened.send(0, b"input")
        assert await opened.receive() is None
        assert asyncio.get_running_loop().time() - began > 4 * SOON_S


async def test_the_limit_of_unread_input_counts_bytes():
    received: list[bytes] = []

    async def script(server: web.WebSocketResponse) -> None:
        async for message in server:
            if message.type is WSMsgType.BINARY:
                received.append(message.data)

    async with websocket_to(script) as opened:
        execution = PodExecSession(opened, has_input=True, in_terminal=False)
        for _ in range(100):
            await execution.write(b"x" * 100)
        while len(received) < 100:
            await asyncio.sleep(0.01)


async def test_port_connections_send_no_pings_after_data():
    received: list[WSMsgType] = []

    async def script(server: web.WebSocketResponse) -> None:
        async for message in server:
            received.append(message.type)

    async with websocket_to(script) as opened:
        for _ in range(3):
            await opened.send(0, b"data")
        while len(received) < 3:
            await asyncio.sleep(0.01)
    assert received == [WSMsgType.BINARY] * 3


async def test_a_missing_pong_is_a_lost_connection():
    async def script(server: web.WebSocketResponse) -> None:
        async for _ in server:
            pass

    async with websocket_to(script, silent_s=SOON_S) as opened:
        assert await opened.receive() is None
        await opened.wait_until_read(except_bytes=0)


async def test_a_silent_server_that_sends_pongs_keeps_its_connection():
    async def script(server: web.WebSocketResponse) -> None:
        for _ in range(5):
            await server.pong((await server.receive()).data)
        await server.send_bytes(b"\x01at last")
        await server.receive()

    async with websocket_to(script, silent_s=SOON_S) as opened:
        assert await opened.receive() == (1, b"at last")


async def test_pings_of_the_server_are_answered():
    async def script(server: web.WebSocketResponse) -> None:
        await server.ping(b"are you there?")
        message = await server.receive()
        assert message.type is WSMsgType.PONG
        await server.send_bytes(b"\x01" + message.data)
        await server.receive()

    async with websocket_to(script) as opened:
        assert await opened.receive() == (1, b"are you there?")


async def test_no_input_is_sent_to_a_command_without_input():
    received: list[object] = []

    async def script(server: web.WebSocketResponse) -> None:
        await asyncio.sleep(SOON_S)
        await server.send_bytes(STATUS)
        await server.close()

    async with websocket_to(script) as opened:
        opened.send = lambda *sent: received.append(sent)  # type: ignore[method-assign, assignment, return-value]
        execution = PodExecSession(opened, has_input=False, in_terminal=False)
        await execution.write(b"")
        await execution.end_input()
        assert [written async for written in execution.output()] == []
        assert (await execution.ended(), received) == (ExecResult(127, "no such file or directory"), [])
