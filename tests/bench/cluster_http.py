"""A minimal HTTP client for the ceiling.

The ceiling is the server's only if the client costs next to nothing: a general client takes three times the CPU of a
request, on the server's cores. Requests wait only for a free connection, and bodies are prepared in advance.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

_TIMEOUT_S = 600.0
_FIRST_ERROR = 300
_ACCEPT = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""Muster's own Accept header: the object is not returned."""
_HEAD_END = b"\r\n\r\n"


class RequestFailed(Exception):
    """The server refused a request, or closed a connection during one."""


class Request(msgspec.Struct, frozen=True):
    """One request; ``kind`` is the media type of its body."""

    path: str
    body: bytes
    method: str = "POST"
    kind: str = "application/json"


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """Address and credentials of an API server."""

    url: str
    ca_file: str
    token: str


Send = Callable[[Iterable[Request]], Awaitable[None]]


@asynccontextmanager
async def connected(server: Server, *, connections: int) -> AsyncGenerator[Send]:
    """Open connections; the yielded function sends requests in order, one at a time on each. It raises ``RequestFailed``."""
    opened = [await _Connection.open(server) for _ in range(connections)]

    async def send(requests: Iterable[Request]) -> None:
        messages = (_message(server, request) for request in requests)
        async with asyncio.timeout(_TIMEOUT_S), asyncio.TaskGroup() as tasks:
            for connection in opened:
                tasks.create_task(_work(connection, messages))

    try:
        yield send
    finally:
        for connection in opened:
            connection.close()


async def send_all(server: Server, requests: Iterable[Request], *, connections: int) -> None:
    """Send all requests in order over new connections; raises ``RequestFailed``."""
    async with connected(server, connections=connections) as send:
        await send(requests)


def context_for(ca_file: Path) -> ssl.SSLContext:
    """Trust this self-signed certificate of the benchmark's server."""
    context = ssl.create_default_context(cafile=str(ca_file))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


async def _work(connection: _Connection, messages: Iterator[bytes]) -> None:
    for message in messages:
        await connection.ask(message)


def _message(server: Server, request: Request) -> bytes:
    head = (
        f"{request.method} {request.path} HTTP/1.1\r\nHost: {urlsplit(server.url).netloc}\r\n"
        f"Authorization: Bearer {server.token}\r\nContent-Type: {request.kind}\r\n"
        f"Accept: {_ACCEPT}\r\nContent-Length: {len(request.body)}\r\n\r\n"
    )
    return head.encode() + request.body


class _Connection(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[None] | None = None
        self._received = bytearray()

    @classmethod
    async def open(cls, server: Server) -> _Connection:
        place = urlsplit(server.url)
        _, connection = await asyncio.get_running_loop().create_connection(
            cls, place.hostname or "127.0.0.1", place.port or 443, ssl=context_for(Path(server.ca_file))
        )
        return connection

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def ask(self, message: bytes) -> None:
        if self._transport is None:
            raise RequestFailed("not connected")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        await self._answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(RequestFailed(f"the connection is lost: {exc}"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        received = self._received
        end = received.find(_HEAD_END)
        if end < 0 or not _is_whole(received, end + len(_HEAD_END)):
            return
        status = int(received[9:12])
        answer, self._answer = self._answer, None
        if answer is not None:
            if status < _FIRST_ERROR:
                answer.set_result(None)
            else:
                answer.set_exception(RequestFailed(received.decode(errors="replace")[:2000]))
        received.clear()


def _is_whole(received: bytearray, begin: int) -> bool:
    head = received[:begin].lower()
    at = head.find(b"content-length:")
    if at < 0:
        # A chunked body.
        return received.endswith(b"0\r\n\r\n")
    length = int(head[at + len(b"content-length:") : head.index(b"\r", at)])
    return len(received) >= begin + length
