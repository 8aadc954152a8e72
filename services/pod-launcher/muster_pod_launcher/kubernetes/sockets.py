"""WebSockets of the API server: how a client gets into a pod.

A frame's first byte says of which channel it is. What the server says where it does not open one is kept: it is the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NoReturn

import aiohttp

from muster_pod_launcher.kubernetes.errors import Unavailable

Refuse = Callable[[str, int, Mapping[str, str], bytes], NoReturn]
"""Raises what an answer means: method, status, headers, body."""

_FIRST_ERROR = 400
_OPEN_S = 30.0
_HEARTBEAT_S = 30.0
_TIMEOUT = aiohttp.ClientWSTimeout(
    ws_close=2.0  # pyright: ignore[reportCallIssue] (made by attrs, without types)
)


class Socket:
    """An open one."""

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        self._websocket = websocket

    @property
    def protocol(self) -> str:
        """Which of the protocols that were offered the server took."""
        return self._websocket.protocol or ""

    async def send(self, channel: int, data: bytes) -> None:
        """Send on a channel; returns when it is on its way. Raises ``ConnectionError`` where it is closed."""
        try:
            await self._websocket.send_bytes(bytes((channel,)) + data)
        except aiohttp.ClientError as error:
            raise ConnectionResetError(str(error)) from error

    async def receive(self) -> tuple[int, bytes] | None:
        """The next frame that is not empty: its channel, and what it carries; None when the socket is closed."""
        while True:
            message = await self._websocket.receive()
            if message.type is aiohttp.WSMsgType.BINARY:
                data: bytes = message.data
                if len(data) > 1:
                    return data[0], data[1:]
            elif message.type is not aiohttp.WSMsgType.TEXT:
                return None


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
                    heartbeat=_HEARTBEAT_S,
                    timeout=_TIMEOUT,
                )
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise Unavailable(f"the API server opens no connection to the pod: {error}") from error
        async with websocket:
            yield Socket(websocket)
