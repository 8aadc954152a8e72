"""WebSockets of the API server with Kubernetes' channel subprotocols: the first byte of a frame is its channel.

A server answers pings in the order in which it reads frames, so a pong shows that everything sent before its ping is read. A server
does not read while a command does not read its input; therefore silence means a lost connection only if all sent frames have been read.
"""

from __future__ import annotations

import asyncio
import select
import socket
from asyncio.trsock import TransportSocket
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import aiohttp

from muster_runtimes.kubernetes.errors import FIRST_ERROR, ApiUnavailable, raise_for_response

_OPEN_S = 30.0
_SILENT_S = 30.0
_PONG_S = 15.0
_NUMBER_BYTES = 8
_TIMEOUT = aiohttp.ClientWSTimeout(
    ws_close=2.0  # pyright: ignore[reportCallIssue] (made by attrs, without types)
)
_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
# Only Linux has it; elsewhere poll reports errors and the end of both directions.
_PEER_CLOSED = getattr(select, "POLLRDHUP", 0)


class PodWebSocket:
    """An open WebSocket. One task must always be in ``receive``, because pongs arrive there."""

    def __init__(
        self,
        websocket: aiohttp.ClientWebSocketResponse,
        *,
        silent_s: float = _SILENT_S,
        pong_s: float = _PONG_S,
    ) -> None:
        """Send a ping after ``silent_s`` without a frame; without a pong after another ``pong_s`` the connection is lost."""
        self._websocket = websocket
        self._silent_s = silent_s
        self._pong_s = pong_s
        self._pinged = 0
        self._ponged = 0
        # A ping with a higher number follows everything that was sent.
        self._last_sent_after = -1
        self._counted: deque[tuple[int, int]] = deque()
        self._unread_bytes = 0
        self._is_over = False
        self._progress = asyncio.Event()

    @property
    def protocol(self) -> str:
        """The subprotocol that the server chose."""
        return self._websocket.protocol or ""

    async def send(self, channel: int, data: bytes, *, is_counted: bool = False) -> None:
        """Send data on a channel. Raises ``ConnectionError`` if the connection is closed.

        Counted data is followed by a ping, so that ``wait_until_read`` knows when the server has read it.
        """
        self._last_sent_after = self._pinged
        await self._send(self._websocket.send_bytes, bytes((channel,)) + data)
        if is_counted:
            self._counted.append((self._pinged + 1, len(data)))
            self._unread_bytes += len(data)
            await self._ping()

    async def wait_until_read(self, *, except_bytes: int) -> None:
        """Wait until the server has read all but ``except_bytes`` of the counted bytes, or the connection is over."""
        while not self._is_over and self._unread_bytes > except_bytes:
            self._progress.clear()
            await self._progress.wait()

    async def receive(self) -> tuple[int, bytes] | None:
        """Return channel and data of the next frame that is not empty; None when the connection is closed or lost."""
        pong_due = False
        while True:
            try:
                message = await self._websocket.receive(self._pong_s if pong_due else self._silent_s)
                if message.type is aiohttp.WSMsgType.PING:
                    await self._send(self._websocket.pong, message.data)
            except TimeoutError:
                if pong_due:
                    break
                pong_due = await self._ping_after_silence()
                continue
            except ConnectionError:
                # Frames received before are still to be read.
                continue
            pong_due = False
            if message.type is aiohttp.WSMsgType.BINARY:
                data: bytes = message.data
                if len(data) > 1:
                    return data[0], data[1:]
            elif message.type is aiohttp.WSMsgType.PONG:
                self._record_pong(int.from_bytes(message.data))
            elif message.type not in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.PING}:
                break
        self._is_over = True
        self._progress.set()
        return None

    def _record_pong(self, number: int) -> None:
        # A server may send unsolicited pongs.
        if self._ponged < number <= self._pinged:
            self._ponged = number
            while self._counted and self._counted[0][0] <= number:
                self._unread_bytes -= self._counted.popleft()[1]
            self._progress.set()

    async def _ping_after_silence(self) -> bool:
        """Send a ping unless one is outstanding; return whether a pong is due, because the server has read everything."""
        all_read = self._ponged > self._last_sent_after
        if all_read or self._pinged == self._last_sent_after:
            with suppress(ConnectionError):
                await self._ping()
        return all_read

    async def _ping(self) -> None:
        self._pinged += 1
        await self._send(self._websocket.ping, self._pinged.to_bytes(_NUMBER_BYTES))

    async def _send(self, send: Callable[[bytes], Awaitable[None]], data: bytes) -> None:
        # A failed write makes the event loop close the connection, and the server's last frames are lost.
        if self._is_closed_by_peer():
            raise ConnectionResetError("the server has closed the connection")
        try:
            await send(data)
        except aiohttp.ClientError as error:
            raise ConnectionResetError(str(error)) from error

    def _is_closed_by_peer(self) -> bool:
        connection = self._websocket.get_extra_info("socket")
        if connection is None:
            return True
        poll = select.poll()
        poll.register(connection.fileno(), _PEER_CLOSED)
        return bool(poll.poll(0))


@asynccontextmanager
async def open_websocket(
    *,
    connector: aiohttp.BaseConnector,
    url: str,
    query: Sequence[tuple[str, str]],
    headers: Mapping[str, str],
    protocols: Sequence[str],
) -> AsyncGenerator[PodWebSocket]:
    """Open a WebSocket over the connections of ``connector``.

    Raises:
        ApiUnavailable: The connection failed.
        KubernetesApiError: The API server refused the upgrade.
    """

    async def check(response: aiohttp.ClientResponse) -> None:
        if response.status >= FIRST_ERROR:
            raise_for_response("GET", response.status, response.headers, await response.read())

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
            raise ApiUnavailable(f"the API server cannot connect to the pod: {error}") from error
        async with websocket:
            _keep_alive(websocket.get_extra_info("socket"))
            yield PodWebSocket(websocket)


def _keep_alive(connection: TransportSocket | None) -> None:
    """Let TCP detect a lost server, also while no pong is due."""
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
