"""DOC."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import NoReturn, TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec

from muster_runtimes.kubernetes.auth import Credentials
from muster_runtimes.kubernetes.http_client import HttpClient, RequestNotSent, ResponseLost
from muster_runtimes.kubernetes.objects import MAGIC, ProtobufError, Status, decode_status
from muster_runtimes.kubernetes.websocket import PodWebSocket, open_socket


class KubernetesApiError(Exception):
    """The API server did not do it. ``status`` is the HTTP status (0: none came), ``reason`` Kubernetes' own word for it."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class ObjectNotFound(KubernetesApiError):
    """There is no such object, or no such namespace."""


class AlreadyExists(KubernetesApiError):
    """The name is taken."""


class Conflict(KubernetesApiError):
    """A precondition does not hold: the object is another one, or has changed."""


class ResourceVersionExpired(KubernetesApiError):
    """What was asked for is too old for the API server to know: list again."""


class RequestRejected(KubernetesApiError):
    """The request itself is not accepted, now or later: invalid, forbidden, too large."""


class Throttled(KubernetesApiError):
    """Not now; ``retry_after_s`` says from when on."""

    def __init__(self, message: str, *, status: int, reason: str, retry_after_s: float) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after_s = retry_after_s


class ApiUnavailable(KubernetesApiError):
    """The API server did not answer, and what was asked for has not happened."""


class OutcomeUnknown(KubernetesApiError):
    """The API server did not answer in time or broke off: look before it is tried again."""


class RateLimiter:
    """``in_flight`` requests at once; ``per_second`` on average, as many at once as fall into a second (0: no bound).

    ``async with`` it to wait for one's turn, and to have it.
    """

    def __init__(self, *, in_flight: int, per_second: float) -> None:
        self._room = asyncio.Semaphore(in_flight)
        self._gap = 1.0 / per_second if per_second else 0.0
        self._burst = 1.0
        self._next = 0.0

    async def __aenter__(self) -> None:
        await self._room.acquire()
        if not self._gap:
            return
        try:
            await self._pace()
        except BaseException:
            self._room.release()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._room.release()

    async def _pace(self) -> None:
        now = asyncio.get_running_loop().time()
        # Time that nobody used is saved up to the burst.
        self._next = max(self._next, now - self._burst) + self._gap
        if self._next > now:
            await asyncio.sleep(self._next - now)


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
_STATUSES: dict[int, type[KubernetesApiError]] = {
    404: ObjectNotFound,
    409: Conflict,
    410: ResourceVersionExpired,
    412: Conflict,
}


class ResponseStream(msgspec.Struct, frozen=True):
    """An answer that goes on: its media type, without parameters, and its bytes as they come."""

    content_type: str
    chunks: AsyncIterator[bytes]


class ApiClient:
    """Raises the errors of ``errors`` and nothing else; close it with ``aclose``. ``timeout_s`` bounds each request."""

    def __init__(self, *, credentials: Credentials, limits: RateLimiter, timeout_s: float = 30.0) -> None:
        self._credentials = credentials
        self._limits = limits
        self._server = credentials.server
        self._timeout_s = timeout_s
        tls = credentials.tls()
        self._wire = HttpClient(url=self._server, tls=tls, connect_s=min(timeout_s, _CONNECT_S))
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
        before_send: Callable[[], None] | None = None,
    ) -> T:
        """Create an object in the collection ``path``, which may have a query.

        Args:
            path: The collection.
            content: The object.
            kind: The type to decode the answer as.
            accept: The media type of the answer.
            before_send: Called when the request's turn comes; may raise to cancel it.
        """
        data = await self._ask("POST", path, content=content, accept=accept, before_send=before_send)
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
        self, path: str, *, query: Query, idle_timeout_s: float | None, accept: str = JSON
    ) -> AsyncGenerator[ResponseStream]:
        """An answer that goes on; ``idle_timeout_s`` without any bytes ends it with ``ApiUnavailable``."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=idle_timeout_s)
        headers = {"Accept": accept, **await self._identity()}
        try:
            async with self._session.get(
                self._server + path, params=query, headers=headers, timeout=timeout
            ) as response:
                if response.status >= _FIRST_ERROR:
                    _fail("GET", response.status, response.headers, await response.read())
                yield ResponseStream(response.content_type, response.content.iter_any())
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise ApiUnavailable(_words(error)) from error

    @asynccontextmanager
    async def socket(
        self, path: str, *, query: Sequence[tuple[str, str]], protocols: Sequence[str]
    ) -> AsyncGenerator[PodWebSocket]:
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
        before_send: Callable[[], None] | None = None,
    ) -> bytes:
        if query:
            path = f"{path}?{urlencode(query)}"
        # A server may compress whatever does not say that it must not.
        stop_requested = f"Accept: {accept}\r\nAccept-Encoding: identity\r\n"
        body = None
        if content is not None:
            stop_requested += f"Content-Type: {content_type}\r\n"
            body = msgspec.json.encode(content)
        for attempt in range(1, _MOST_TRIES + 1):
            try:
                async with self._limits:
                    if before_send is not None:
                        before_send()
                    return await self._send(method, path, body, stop_requested)
            except Throttled as busy:
                if attempt == _MOST_TRIES:
                    raise
                wait_s = min(busy.retry_after_s, _LONGEST_WAIT_S)
                log.info("the API server asks for %.1f s of patience: %s", wait_s, busy)
            # Its turn is over: others may go on meanwhile.
            await asyncio.sleep(wait_s)
        raise AssertionError("unreachable")

    async def _send(self, method: str, path: str, body: bytes | None, stop_requested: str) -> bytes:
        identity = "".join(f"{name}: {value}\r\n" for name, value in (await self._identity()).items())
        try:
            answer = await self._wire.ask(
                method, path, headers=stop_requested + identity, body=body, timeout_s=self._timeout_s
            )
        except RequestNotSent as error:
            raise ApiUnavailable(_words(error)) from error
        except ResponseLost as error:
            lost = ApiUnavailable if method == "GET" else OutcomeUnknown
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
        raise KubernetesApiError(f"the API server answered what cannot be read: {error}") from error


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
        raise ResourceVersionExpired(message, status=status, reason=said.reason)
    if status >= 500:
        lost = ApiUnavailable if method == "GET" else OutcomeUnknown
        raise lost(message, status=status, reason=said.reason)
    raise _STATUSES.get(status, ApiUnavailable if status == _UNAUTHORIZED else RequestRejected)(
        message, status=status, reason=said.reason
    )


def _status(data: bytes) -> Status:
    try:
        # Whoever asks for protobuf is refused in it, too.
        return decode_status(data) if data.startswith(MAGIC) else msgspec.json.decode(data, type=Status)
    except (msgspec.DecodeError, ProtobufError):
        return Status(message=data[:200].decode(errors="replace").strip())


def _words(error: BaseException) -> str:
    return f"the API server is not reached: {error}" if str(error) else "the API server does not answer"
