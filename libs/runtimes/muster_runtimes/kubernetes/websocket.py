"""WebSockets of the API server: how a client gets into a pod.

A frame's first byte says of which channel it is. What the server says where it does not open one is kept: it is the reason.

A server answers pings in the order of what it takes, so the answer to one says that what was sent before is taken. It takes nothing while a
command does not read its input, so silence means that the connection is lost only where all that was sent has been taken.
"""

from __future__ import annotations

import asyncio
import select
import socket
from asyncio.trsock import TransportSocket
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import NoReturn

import aiohttp

from muster_runtimes.kubernetes.api_client import ApiUnavailable

Refuse = Callable[[str, int, Mapping[str, str], bytes], NoReturn]
"""Raises what an answer means: method, status, headers, body."""

_FIRST_ERROR = 400
_OPEN_S = 30.0
_SILENT_S = 30.0
_ANSWER_S = 15.0
_NUMBER_BYTES = 8
_TIMEOUT = aiohttp.ClientWSTimeout(
    ws_close=2.0  # pyright: ignore[reportCallIssue] (made by attrs, without types)
)
_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
# Linux' own; the others tell of an error and of both directions everywhere.
_ENDED = getattr(select, "POLLRDHUP", 0)


class PodWebSocket:
    """An open one. Whoever sends leaves it to another to receive all the while: answers to pings come that way."""

    def __init__(
        self,
        websocket: aiohttp.ClientWebSocketResponse,
        *,
        silent_s: float = _SILENT_S,
        answer_s: float = _ANSWER_S,
    ) -> None:
        """``silent_s`` without a word, and the server is asked for one; ``answer_s`` later the connection is lost."""
        self._websocket = websocket
        self._silent_s = silent_s
        self._answer_s = answer_s
        self._asked = 0
        self._answered = 0
        # A ping with a higher number was sent after all that was sent.
        self._last_sent_after = -1
        self._counted: deque[tuple[int, int]] = deque()
        self._ahead = 0
        self._is_over = False
        self._news = asyncio.Event()

    @property
    def protocol(self) -> str:
        """Which of the protocols that were offered the server took."""
        return self._websocket.protocol or ""

    async def send(self, channel: int, data: bytes, *, is_counted: bool = False) -> None:
        """Send on a channel; returns when it is on its way. Raises ``ConnectionError`` where it is closed.

        What ``is_counted`` has a ping behind it, and a server whose output nobody reads takes nothing while it cannot answer.
        """
        self._last_sent_after = self._asked
        await self._send(self._websocket.send_bytes, bytes((channel,)) + data)
        if is_counted:
            self._counted.append((self._asked + 1, len(data)))
            self._ahead += len(data)
            await self._ask()

    async def taken(self, *, but: int) -> None:
        """Wait until no more than ``but`` counted bytes wait to be taken, or nothing will be any more."""
        while not self._is_over and self._ahead > but:
            self._news.clear()
            await self._news.wait()

    async def receive(self) -> tuple[int, bytes] | None:
        """The next frame that is not empty: its channel, and what it carries; None when the socket is closed, or the connection lost."""
        must_answer = False
        while True:
            try:
                message = await self._websocket.receive(self._answer_s if must_answer else self._silent_s)
                if message.type is aiohttp.WSMsgType.PING:
                    await self._send(self._websocket.pong, message.data)
            except TimeoutError:
                if must_answer:
                    break
                must_answer = await self._ask_after_silence()
                continue
            except ConnectionError:
                # What was said before is still to be read.
                continue
            must_answer = False
            if message.type is aiohttp.WSMsgType.BINARY:
                data: bytes = message.data
                if len(data) > 1:
                    return data[0], data[1:]
            elif message.type is aiohttp.WSMsgType.PONG:
                self._note(int.from_bytes(message.data))
            elif message.type not in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.PING}:
                break
        self._is_over = True
        self._news.set()
        return None

    def _note(self, number: int) -> None:
        # A server may send answers to what nobody asked.
        if self._answered < number <= self._asked:
            self._answered = number
            while self._counted and self._counted[0][0] <= number:
                self._ahead -= self._counted.popleft()[1]
            self._news.set()

    async def _ask_after_silence(self) -> bool:
        """Ask for a word, unless one is awaited already; whether the server has to give it, since it has taken everything."""
        is_all_taken = self._answered > self._last_sent_after
        if is_all_taken or self._asked == self._last_sent_after:
            with suppress(ConnectionError):
                await self._ask()
        return is_all_taken

    async def _ask(self) -> None:
        self._asked += 1
        await self._send(self._websocket.ping, self._asked.to_bytes(_NUMBER_BYTES))

    async def _send(self, how: Callable[[bytes], Awaitable[None]], data: bytes) -> None:
        # An event loop that cannot write closes the connection at once, and what the server said last is never read.
        if self._is_closed_there():
            raise ConnectionResetError("the server has closed the connection")
        try:
            await how(data)
        except aiohttp.ClientError as error:
            raise ConnectionResetError(str(error)) from error

    def _is_closed_there(self) -> bool:
        connection = self._websocket.get_extra_info("socket")
        if connection is None:
            return True
        poll = select.poll()
        poll.register(connection.fileno(), _ENDED)
        return bool(poll.poll(0))


@asynccontextmanager
async def open_socket(
    *,
    connector: aiohttp.BaseConnector,
    url: str,
    query: Sequence[tuple[str, str]],
    headers: Mapping[str, str],
    protocols: Sequence[str],
    refuse: Refuse,
) -> AsyncGenerator[PodWebSocket]:
    """Open a socket over the connections of ``connector``. Raises what ``refuse`` does, and ``ApiUnavailable``."""

    async def check(response: aiohttp.ClientResponse) -> None:
        if response.status >= _FIRST_ERROR:
            refuse("GET", response.status, response.headers, await response.read())

    async with aiohttp.ClientSession(
        connector=connector,
        connector_owner=False,
        raise_for_status=check,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
    ) as session:
        try:
            async with asyncio.timeout(_OPEN_S):
                websocket = await session.ws_connect(
                    url,
                    params=list(query),
                    headers=headers,
                    protocols=protocols,
                    autoping=False,
                    timeout=_TIMEOUT,
                )
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise ApiUnavailable(f"the API server opens no connection to the pod: {error}") from error
        async with websocket:
            _keep_alive(websocket.get_extra_info("socket"))
            yield PodWebSocket(websocket)


def _keep_alive(connection: TransportSocket | None) -> None:
    """Have the system notice a server that is gone, also where it owes no word."""
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
