"""WebSockets of the API server: how a client gets into a pod.

A frame's first byte says of which channel it is. What the server says where it does not open one is kept: it is the reason.

A server answers pings in the order of what it takes, so one after each frame tells when that was taken. It takes nothing while a command
does not read its input, so silence means that the connection is lost only where all that was sent has been taken.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import NoReturn

import aiohttp

from muster_pod_launcher.kubernetes.errors import Unavailable

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
# Linux' own; the others tell of an error and of both directions everywhere.
_ENDED = getattr(select, "POLLRDHUP", 0)


class Socket:
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
        self._is_over = False
        self._news = asyncio.Event()

    @property
    def protocol(self) -> str:
        """Which of the protocols that were offered the server took."""
        return self._websocket.protocol or ""

    async def send(self, channel: int, data: bytes) -> None:
        """Send on a channel; returns when it is on its way. Raises ``ConnectionError`` where it is closed."""
        await self._send(self._websocket.send_bytes, bytes((channel,)) + data)
        await self._ask()

    async def taken(self, *, but: int) -> None:
        """Wait until no more than ``but`` of the frames that were sent wait to be taken, or nothing will be any more."""
        while not self._is_over and self._asked - self._answered > but:
            self._news.clear()
            await self._news.wait()

    async def receive(self) -> tuple[int, bytes] | None:
        """The next frame that is not empty: its channel, and what it carries; None when the socket is closed, or the connection lost."""
        is_asked = False
        while True:
            try:
                message = await self._websocket.receive(self._answer_s if is_asked else self._silent_s)
                if message.type is aiohttp.WSMsgType.PING:
                    await self._send(self._websocket.pong, message.data)
            except TimeoutError:
                if is_asked:
                    break
                if self._asked == self._answered:
                    with suppress(ConnectionError):
                        await self._ask()
                    is_asked = True
                continue
            except ConnectionError:
                # What was said before is still to be read.
                continue
            is_asked = False
            if message.type is aiohttp.WSMsgType.BINARY:
                data: bytes = message.data
                if len(data) > 1:
                    return data[0], data[1:]
            elif message.type is aiohttp.WSMsgType.PONG:
                self._answered = max(self._answered, int.from_bytes(message.data))
                self._news.set()
            elif message.type not in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.PING}:
                break
        self._is_over = True
        self._news.set()
        return None

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
) -> AsyncGenerator[Socket]:
    """Open a socket over the connections of ``connector``. Raises what ``refuse`` does, and ``Unavailable``."""

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
            raise Unavailable(f"the API server opens no connection to the pod: {error}") from error
        async with websocket:
            yield Socket(websocket)
