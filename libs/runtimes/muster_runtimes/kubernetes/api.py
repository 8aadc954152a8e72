"""Requests to the API server: raw JSON in and out, every way to fail a type of its own.

A write that was not answered may have happened. Whoever asked for it looks before it asks again; nothing here repeats a write
but the one that the server refused for being too busy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NoReturn, TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec

from muster_runtimes.kubernetes.auth import Credentials
from muster_runtimes.kubernetes.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Gone,
    MayHaveHappened,
    NotFound,
    Refused,
    Throttled,
    Unavailable,
)
from muster_runtimes.kubernetes.limits import Limits
from muster_runtimes.kubernetes.objects import Status
from muster_runtimes.kubernetes.protobuf import MAGIC, Unreadable, status_of
from muster_runtimes.kubernetes.sockets import Socket, open_socket
from muster_runtimes.kubernetes.wire import NotAnswered, NotSent, Wire

log = logging.getLogger(__name__)

T = TypeVar("T")
Query = Mapping[str, str]

JSON = "application/json"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"

_CONNECT_S = 5.0
_MOST_TRIES = 8
_LONGEST_WAIT_S = 30.0
_FIRST_ERROR = 400
_UNAUTHORIZED = 401
_STATUSES: dict[int, type[ApiError]] = {404: NotFound, 409: Conflict, 410: Gone, 412: Conflict}


class Stream(msgspec.Struct, frozen=True):
    """An answer that goes on: its media type, without parameters, and its bytes as they come."""

    content_type: str
    chunks: AsyncIterator[bytes]


class Api:
    """Raises the errors of ``errors`` and nothing else; close it with ``aclose``. ``timeout_s`` bounds each request."""

    def __init__(self, *, credentials: Credentials, limits: Limits, timeout_s: float = 30.0) -> None:
        self._credentials = credentials
        self._limits = limits
        self._server = credentials.server
        self._timeout_s = timeout_s
        tls = credentials.tls()
        self._wire = Wire(url=self._server, tls=tls, connect_s=min(timeout_s, _CONNECT_S))
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls, ttl_dns_cache=30),
            timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(timeout_s, _CONNECT_S)),
            # An event of a watch is a line, and a pod's may be long.
            read_bufsize=2**21,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        self._wire.close()
        await self._session.close()

    async def get(self, path: str, kind: type[T], *, query: Query | None = None, accept: str = JSON) -> T:
        """Read an object or a list."""
        return _decode(await self._ask("GET", path, query=query, accept=accept), kind)

    async def create(
        self,
        path: str,
        content: object,
        kind: type[T],
        *,
        accept: str = JSON,
        unless: Callable[[], None] | None = None,
    ) -> T:
        """Create an object in the collection ``path`` (a query may follow); ``unless`` is called when its turn comes, and may raise."""
        data = await self._ask("POST", path, content=content, accept=accept, unless=unless)
        return _decode(data, kind)

    async def patch(
        self, path: str, content: object, kind: type[T], *, patch: str = MERGE, accept: str = JSON
    ) -> T:
        """Change an object."""
        data = await self._ask("PATCH", path, content=content, content_type=patch, accept=accept)
        return _decode(data, kind)

    async def delete(self, path: str, *, options: object = None, query: Query | None = None) -> None:
        """Delete an object, or with a query those of a collection."""
        await self._ask("DELETE", path, content=options, query=query)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Query, quiet_s: float | None, accept: str = JSON
    ) -> AsyncGenerator[Stream]:
        """An answer that goes on; ``quiet_s`` without any bytes ends it with ``Unavailable``."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=quiet_s)
        headers = {"Accept": accept, **await self._identity()}
        try:
            async with self._session.get(
                self._server + path, params=query, headers=headers, timeout=timeout
            ) as response:
                if response.status >= _FIRST_ERROR:
                    _fail("GET", response.status, response.headers, await response.read())
                yield Stream(response.content_type, response.content.iter_any())
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise Unavailable(_words(error)) from error

    @asynccontextmanager
    async def socket(
        self, path: str, *, query: Sequence[tuple[str, str]], protocols: Sequence[str]
    ) -> AsyncGenerator[Socket]:
        """A WebSocket, which speaks one of ``protocols``. It takes no turn: it may be open for hours."""
        connector = self._session.connector
        assert connector is not None
        async with open_socket(
            connector=connector,
            url=self._server + path,
            query=query,
            headers=await self._identity(),
            protocols=protocols,
            refuse=_fail,
        ) as socket:
            yield socket

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        content: object = None,
        query: Query | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        unless: Callable[[], None] | None = None,
    ) -> bytes:
        if query:
            path = f"{path}?{urlencode(query)}"
        # A server may compress whatever does not say that it must not.
        asked = f"Accept: {accept}\r\nAccept-Encoding: identity\r\n"
        body = None
        if content is not None:
            asked += f"Content-Type: {content_type}\r\n"
            body = msgspec.json.encode(content)
        for attempt in range(1, _MOST_TRIES + 1):
            try:
                async with self._limits:
                    if unless is not None:
                        unless()
                    return await self._send(method, path, body, asked)
            except Throttled as busy:
                if attempt == _MOST_TRIES:
                    raise
                wait_s = min(busy.retry_after_s, _LONGEST_WAIT_S)
                log.info("the API server asks for %.1f s of patience: %s", wait_s, busy)
            # Its turn is over: others may go on meanwhile.
            await asyncio.sleep(wait_s)
        raise AssertionError("unreachable")

    async def _send(self, method: str, path: str, body: bytes | None, asked: str) -> bytes:
        identity = "".join(f"{name}: {value}\r\n" for name, value in (await self._identity()).items())
        try:
            answer = await self._wire.ask(
                method, path, headers=asked + identity, body=body, timeout_s=self._timeout_s
            )
        except NotSent as error:
            raise Unavailable(_words(error)) from error
        except NotAnswered as error:
            lost = Unavailable if method == "GET" else MayHaveHappened
            raise lost(_words(error)) from error
        if answer.status == _UNAUTHORIZED:
            await self._credentials.read()
        if answer.status >= _FIRST_ERROR:
            _fail(method, answer.status, answer.headers, answer.data)
        return answer.data

    async def _identity(self) -> dict[str, str]:
        headers = {"User-Agent": "muster-pod-launcher"}
        if authorization := await self._credentials.header():
            headers["Authorization"] = authorization
        return headers


def _decode(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise ApiError(f"the API server answered what cannot be read: {error}") from error


def _fail(method: str, status: int, headers: Mapping[str, str], data: bytes) -> NoReturn:
    said = _status(data)
    message = said.message or f"the API server answered {status}"
    retry_after = headers.get("retry-after", "")
    if status == 429 or (status == 503 and retry_after):
        wait_s = float(retry_after) if retry_after.isdecimal() else 1.0
        raise Throttled(message, status=status, reason=said.reason, retry_after_s=wait_s)
    if said.reason == "AlreadyExists":
        raise AlreadyExists(message, status=status, reason=said.reason)
    if said.reason == "Expired":
        raise Gone(message, status=status, reason=said.reason)
    if status >= 500:
        lost = Unavailable if method == "GET" else MayHaveHappened
        raise lost(message, status=status, reason=said.reason)
    raise _STATUSES.get(status, Unavailable if status == _UNAUTHORIZED else Refused)(
        message, status=status, reason=said.reason
    )


def _status(data: bytes) -> Status:
    try:
        # Whoever asks for protobuf is refused in it, too.
        return status_of(data) if data.startswith(MAGIC) else msgspec.json.decode(data, type=Status)
    except (msgspec.DecodeError, Unreadable):
        return Status(message=data[:200].decode(errors="replace").strip())


def _words(error: BaseException) -> str:
    return f"the API server is not reached: {error}" if str(error) else "the API server does not answer"
