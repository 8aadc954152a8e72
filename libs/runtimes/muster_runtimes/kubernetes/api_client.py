"""Requests to the API server: raw JSON in and out, and one exception type per kind of failure.

An unanswered write may have happened, so only a throttled request is retried here; the callers read the object before they write again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from muster_runtimes.kubernetes.auth import Credentials
from muster_runtimes.kubernetes.errors import (
    FIRST_ERROR,
    UNAUTHORIZED,
    ApiUnavailable,
    KubernetesApiError,
    Throttled,
    no_response,
    raise_for_response,
)
from muster_runtimes.kubernetes.websocket import PodWebSocket, open_websocket

log = logging.getLogger(__name__)

T = TypeVar("T")
Query = Mapping[str, str]

JSON = "application/json"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"

_CONNECT_S = 5.0
_KEEP_ALIVE_S = 45.0
"""API servers keep idle connections longer, so that they do not close one that is about to be used."""
_MAX_ATTEMPTS = 8
_MAX_RETRY_AFTER_S = 30.0


class RateLimiter:
    """Bounds the requests of one client; ``async with`` it around a request.

    Args:
        in_flight: The largest number of concurrent requests.
        per_second: The average rate, with a burst of one second's requests; 0 for no limit.
    """

    def __init__(self, *, in_flight: int, per_second: float) -> None:
        self._slots = asyncio.Semaphore(in_flight)
        self._interval_s = 1.0 / per_second if per_second else 0.0
        self._burst_s = 1.0
        self._next_at = 0.0

    async def __aenter__(self) -> None:
        await self._slots.acquire()
        if not self._interval_s:
            return
        try:
            await self._pace()
        except BaseException:
            self._slots.release()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._slots.release()

    async def _pace(self) -> None:
        now = asyncio.get_running_loop().time()
        # Unused time is saved up to the burst.
        self._next_at = max(self._next_at, now - self._burst_s) + self._interval_s
        if self._next_at > now:
            await asyncio.sleep(self._next_at - now)


class RequestMetrics:
    """Metrics of requests by verb: ``get`` (also of lists), ``create``, ``patch``, ``delete``, and ``stream`` (watches and logs).

    This class counts nothing; a subclass does.
    """

    def started(self, verb: str, /) -> None:
        """A request was sent."""

    def responded(self, verb: str, code: str, duration_s: float, /) -> None:
        """A request got a response with this HTTP status, after so many seconds; ``code`` is ``error`` without a response."""

    def ended(self, verb: str, /) -> None:
        """A request is over; a stream has ended."""


_NO_METRICS = RequestMetrics()
_UNSENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)
NO_RESPONSE = "error"
"""The code of a request without a response."""
_VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}
_STREAM = "stream"

VERBS = (*_VERBS.values(), _STREAM)
"""The verbs of ``RequestMetrics``."""


class ResponseStream(msgspec.Struct, frozen=True):
    """A streaming response: its media type, without parameters, and its bytes as they come."""

    content_type: str
    chunks: AsyncIterator[bytes]


class ApiClient:
    """Raises ``KubernetesApiError`` and its subclasses only; close it with ``aclose``. ``timeout_s`` bounds each request."""

    def __init__(
        self,
        *,
        credentials: Credentials,
        limits: RateLimiter,
        timeout_s: float = 30.0,
        metrics: RequestMetrics = _NO_METRICS,
    ) -> None:
        self._credentials = credentials
        self._limits = limits
        self._metrics = metrics
        self._server = credentials.server
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, ssl=credentials.ssl_context(), ttl_dns_cache=30, keepalive_timeout=_KEEP_ALIVE_S
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(timeout_s, _CONNECT_S)),
            # A watch event is one line, and a pod's may be long.
            read_bufsize=2**21,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def get(self, path: str, kind: type[T], *, query: Query | None = None, accept: str = JSON) -> T:
        """Read an object or a list, decoded as ``kind``."""
        return _decode(await self._request("GET", path, query=query, accept=accept), kind)

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

        ``before_send`` is called when the rate limiter admits the request, and may raise to cancel it.
        """
        data = await self._request("POST", path, content=content, accept=accept, before_send=before_send)
        return _decode(data, kind)

    async def patch(
        self, path: str, content: object, kind: type[T], *, patch: str = MERGE, accept: str = JSON
    ) -> T:
        """Patch an object; ``patch`` is the media type of the patch."""
        data = await self._request("PATCH", path, content=content, content_type=patch, accept=accept)
        return _decode(data, kind)

    async def delete(self, path: str, *, options: object = None, query: Query | None = None) -> None:
        """Delete an object, or with a query the matching objects of a collection."""
        await self._request("DELETE", path, content=options, query=query)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Query, idle_timeout_s: float | None, accept: str = JSON
    ) -> AsyncGenerator[ResponseStream]:
        """Open a streaming response; ``idle_timeout_s`` without any bytes raises ``ApiUnavailable``."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=idle_timeout_s)
        headers = {"Accept": accept, **await self._identity()}
        started, code = time.perf_counter(), NO_RESPONSE
        self._metrics.started(_STREAM)
        try:
            async with self._session.get(
                self._server + path, params=query, headers=headers, timeout=timeout
            ) as response:
                code = str(response.status)
                self._metrics.responded(_STREAM, code, time.perf_counter() - started)
                if response.status >= FIRST_ERROR:
                    raise_for_response("GET", response.status, response.headers, await response.read())
                yield ResponseStream(response.content_type, response.content.iter_any())
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            if code is NO_RESPONSE:
                self._metrics.responded(_STREAM, code, time.perf_counter() - started)
            raise ApiUnavailable(_message(error)) from error
        finally:
            self._metrics.ended(_STREAM)

    @asynccontextmanager
    async def websocket(
        self, path: str, *, query: Sequence[tuple[str, str]], protocols: Sequence[str]
    ) -> AsyncGenerator[PodWebSocket]:
        """Open a WebSocket with one of ``protocols``. The rate limiter does not count it, as it may be open for hours."""
        connector = self._session.connector
        assert connector is not None
        async with open_websocket(
            connector=connector,
            url=self._server + path,
            query=query,
            headers=await self._identity(),
            protocols=protocols,
        ) as websocket:
            yield websocket

    async def _request(
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
        # Without this header a server may compress the response.
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        body = None
        if content is not None:
            headers["Content-Type"] = content_type
            body = msgspec.json.encode(content)
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                async with self._limits:
                    if before_send is not None:
                        before_send()
                    return await self._send(method, path, query, body, headers)
            except Throttled as busy:
                if attempt == _MAX_ATTEMPTS:
                    raise
                wait_s = min(busy.retry_after_s, _MAX_RETRY_AFTER_S)
                log.info("throttled by the API server, retrying in %.1f s: %s", wait_s, busy)
            # Outside the rate limiter, so that other requests proceed.
            await asyncio.sleep(wait_s)
        raise AssertionError("unreachable")

    async def _send(
        self, method: str, path: str, query: Query | None, body: bytes | None, headers: dict[str, str]
    ) -> bytes:
        headers |= await self._identity()
        verb, started = _VERBS[method], time.perf_counter()
        self._metrics.started(verb)
        try:
            async with self._session.request(
                method, self._server + path, params=query, data=body, headers=headers, allow_redirects=False
            ) as response:
                data = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._metrics.responded(verb, NO_RESPONSE, time.perf_counter() - started)
            raised = ApiUnavailable if isinstance(error, _UNSENT) else no_response(method)
            raise raised(_message(error)) from error
        finally:
            self._metrics.ended(verb)
        self._metrics.responded(verb, str(response.status), time.perf_counter() - started)
        if response.status == UNAUTHORIZED:
            await self._credentials.load()
        if response.status >= FIRST_ERROR:
            raise_for_response(method, response.status, response.headers, data)
        return data

    async def _identity(self) -> dict[str, str]:
        headers = {"User-Agent": "muster-pod-launcher"}
        if authorization := await self._credentials.authorization():
            headers["Authorization"] = authorization
        return headers


def collection_path(namespace: str, kind: str) -> str:
    """Return the path of a core collection, such as ``pods``; of all namespaces if ``namespace`` is empty."""
    return f"/api/v1/namespaces/{quote(namespace)}/{kind}" if namespace else f"/api/v1/{kind}"


def _decode(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise KubernetesApiError(f"the response of the API server cannot be decoded: {error}") from error


def _message(error: BaseException) -> str:
    return f"the API server cannot be reached: {error}" if str(error) else "the API server does not respond"
