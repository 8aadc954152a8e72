"""A minimal HTTP/1.1 client with a connection pool, for requests that end with one response.

Creating pods is most of pod-launcher's CPU time, and a general client costs 0.43 ms of CPU per request, this one 0.16 ms. Streams and
WebSockets use aiohttp.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import cast
from urllib.parse import urlsplit

import msgspec

_HEAD_END = b"\r\n\r\n"
_MAX_HEAD_BYTES = 64 * 1024
_MAX_CHUNK_LINE_BYTES = 4 * 1024
_STATUS_WITHOUT_BODY = frozenset({204, 304})
_FIRST_FINAL_STATUS = 200

_MAX_IDLE_S = 45.0
"""How long an unused connection is kept; API servers keep them longer."""

_WAIT_S = 0.005
"""How long a request waits for a connection in use before another is opened. Opening one costs both sides as much as several requests,
and a burst of fast requests would otherwise open one for each."""

_TIMER_PRECISION_S = 0.0005
"""How much too early a timer of the event loop may fire."""

_MAX_OPENING = 8
"""How many connections are being opened at most. They start ``_WAIT_S`` apart, so only a distant server reaches the limit."""


class BadResponse(Exception):
    """The received bytes are not an HTTP response."""


class HttpResponse(msgspec.Struct, frozen=True):
    """A response. Header names are lower case; ``is_last`` means that the server closes the connection."""

    status: int
    headers: dict[str, str]
    data: bytes
    is_last: bool


class ResponseParser:
    """Parses one response incrementally; ``has_body`` is False for the response to HEAD."""

    def __init__(self, *, has_body: bool) -> None:
        self._has_body = has_body
        self._received = bytearray()
        self._status = 0
        self._headers: dict[str, str] = {}
        self._is_last = False
        self._body: list[bytes] = []
        self._position = 0
        self._length: int | None = None
        self._chunked = False

    def feed(self, data: bytes) -> HttpResponse | None:
        """Add received bytes, and return the response if it is complete. Raises ``BadResponse``."""
        self._received += data
        while not self._status:
            end = self._received.find(_HEAD_END)
            if end < 0:
                if len(self._received) > _MAX_HEAD_BYTES:
                    raise BadResponse("the head is too long")
                return None
            self._parse_head(bytes(self._received[:end]))
            del self._received[: end + len(_HEAD_END)]
        if self._chunked:
            return self._parse_chunks()
        if self._length is None or len(self._received) < self._length:
            return None
        if len(self._received) > self._length:
            raise BadResponse("the body is longer than content-length")
        return self._response(bytes(self._received))

    def end(self) -> HttpResponse | None:
        """Return the response if the end of the connection completes it."""
        if not self._status or self._chunked or self._length is not None:
            return None
        return self._response(bytes(self._received))

    def _parse_head(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
            raise BadResponse(f"the response begins with {first[:80]!r}")
        status = int(rest[:3])
        if status < _FIRST_FINAL_STATUS:
            # An informational response precedes the final one.
            return
        pairs = (line.partition(":") for line in lines)
        self._headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self._status = status
        self._is_last = version == "HTTP/1.0" or self._headers.get("connection", "").lower() == "close"
        length = self._headers.get("content-length", "")
        if not self._has_body or self._status in _STATUS_WITHOUT_BODY:
            self._length = 0
        elif "chunked" in self._headers.get("transfer-encoding", "").lower():
            self._chunked = True
        elif length.isdecimal():
            self._length = int(length)
        else:
            self._is_last = True

    def _parse_chunks(self) -> HttpResponse | None:
        received = self._received
        while True:
            end = received.find(b"\r\n", self._position)
            if end < 0:
                if len(received) - self._position > _MAX_CHUNK_LINE_BYTES:
                    raise BadResponse("the length of a chunk is too long")
                break
            size = _chunk_size(bytes(received[self._position : end]))
            if not size:
                return self._parse_trailers(end)
            begin = end + 2
            if len(received) < begin + size + 2:
                break
            self._body.append(bytes(received[begin : begin + size]))
            self._position = begin + size + 2
        # Parsed bytes are dropped in large steps, because each step copies the rest.
        if self._position > _MAX_HEAD_BYTES:
            del received[: self._position]
            self._position = 0
        return None

    def _parse_trailers(self, end: int) -> HttpResponse | None:
        """Skip the trailers after the last chunk, which an empty line ends."""
        rest = bytes(self._received[end:])
        if rest.endswith(_HEAD_END):
            return self._response(b"".join(self._body))
        if len(rest) > _MAX_HEAD_BYTES:
            raise BadResponse("the trailers are too long")
        return None

    def _response(self, data: bytes) -> HttpResponse:
        return HttpResponse(self._status, self._headers, data, self._is_last)


def _chunk_size(line: bytes) -> int:
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        raise BadResponse("the length of a chunk is not a number") from None


class RequestNotSent(Exception):
    """No connection could be made, so the server has not received the request."""


class ResponseLost(Exception):
    """The request was sent, and no complete response came."""


class HttpClient:
    """A pool of connections to the server at ``url``, each with one request at a time. Close it with ``close``.

    Args:
        url: The base URL.
        tls: The TLS context; None for plain HTTP.
        connect_s: The timeout for opening a connection, in seconds.
    """

    def __init__(self, *, url: str, tls: ssl.SSLContext | None, connect_s: float) -> None:
        parts = urlsplit(url)
        self._tls = tls if parts.scheme == "https" else None
        self._host = parts.hostname or "localhost"
        self.port = parts.port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._host_header = parts.netloc.rpartition("@")[2]
        self._connect_s = connect_s
        self._idle: deque[tuple[float, _Connection]] = deque()
        self._waiting: deque[tuple[float, asyncio.Future[_Connection]]] = deque()
        self._in_use = 0
        self._opening: set[asyncio.Task[_Connection]] = set()
        self._opened_at = 0.0
        self._open_timer: asyncio.TimerHandle | None = None
        self._closed = False

    def close(self) -> None:
        """Close unused connections, and the others after their responses. Waiting requests raise ``RequestNotSent``."""
        self._closed = True
        if self._open_timer is not None:
            self._open_timer.cancel()
        for opening in self._opening:
            opening.cancel()
        while self._has_waiting():
            self._waiting.popleft()[1].set_exception(RequestNotSent("the client is closed"))
        while self._idle:
            self._idle.pop()[1].close()

    async def request(
        self, method: str, path: str, *, headers: str, body: bytes | None, timeout_s: float
    ) -> HttpResponse:
        """Send a request and return the response.

        Args:
            method: The HTTP method.
            path: The path below the base URL, with its query.
            headers: Header lines, each ending with CR LF.
            body: The body, if any.
            timeout_s: The limit for waiting, sending and receiving together, in seconds.

        Raises:
            RequestNotSent: The server has certainly not received the request.
            ResponseLost: The server may have received the request.
        """
        length = f"Content-Length: {len(body)}\r\n" if body is not None else ""
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\nHost: {self._host_header}\r\n{headers}{length}\r\n"
        message = head.encode("latin-1") + (body or b"")
        deadline = asyncio.get_running_loop().time() + timeout_s
        connection = await self._acquire(deadline)
        self._in_use += 1
        try:
            return await connection.request(message, has_body=method != "HEAD", deadline=deadline)
        except (OSError, BadResponse) as error:
            raise ResponseLost(str(error)) from error
        finally:
            self._in_use -= 1
            self._release(connection)

    async def _acquire(self, deadline: float) -> _Connection:
        """Return a free connection. Raises ``RequestNotSent``."""
        while not self._closed:
            now = asyncio.get_running_loop().time()
            connection = self._pop_idle(now) or await self._wait(now, deadline)
            # It may have been closed after it was handed over.
            if connection.is_free:
                return connection
            self._release(connection)
        raise RequestNotSent("the client is closed")

    async def _wait(self, now: float, deadline: float) -> _Connection:
        loop = asyncio.get_running_loop()
        handed: asyncio.Future[_Connection] = loop.create_future()
        self._waiting.append((now, handed))
        self._schedule_open()
        # ``call_at`` here and below: ``asyncio.timeout`` costs several times as much.
        timer = loop.call_at(deadline, _time_out, handed)
        try:
            return await handed
        except asyncio.CancelledError:
            if handed.done() and not handed.cancelled() and handed.exception() is None:
                self._release(handed.result())
            raise
        finally:
            timer.cancel()

    def _pop_idle(self, now: float) -> _Connection | None:
        # The most recently used one, so that surplus connections become idle long enough to be closed.
        while self._idle:
            since, connection = self._idle.pop()
            if connection.is_free and now - since < _MAX_IDLE_S:
                return connection
            connection.close()
        return None

    def _release(self, connection: _Connection) -> None:
        now = asyncio.get_running_loop().time()
        if not connection.is_free or self._closed:
            connection.close()
            self._schedule_open()
        elif self._has_waiting():
            self._waiting.popleft()[1].set_result(connection)
        else:
            self._idle.append((now, connection))
        while self._idle and now - self._idle[0][0] >= _MAX_IDLE_S:
            self._idle.popleft()[1].close()

    def _has_waiting(self) -> bool:
        while self._waiting and self._waiting[0][1].done():
            self._waiting.popleft()
        return bool(self._waiting)

    def _schedule_open(self) -> None:
        """Open another connection when the first request has waited for ``_WAIT_S``, or now if no connection is in use."""
        if self._open_timer is not None or not self._has_waiting():
            return
        if len(self._opening) >= min(_MAX_OPENING, len(self._waiting)):
            return
        if self._in_use or self._opening:
            loop = asyncio.get_running_loop()
            self._open_timer = loop.call_at(max(self._open_due(), loop.time()), self._on_open_timer)
        else:
            self._open_another()

    def _open_due(self) -> float:
        return max(self._waiting[0][0], self._opened_at) + _WAIT_S

    def _on_open_timer(self) -> None:
        self._open_timer = None
        if self._has_waiting() and asyncio.get_running_loop().time() + _TIMER_PRECISION_S >= self._open_due():
            self._open_another()
        self._schedule_open()

    def _open_another(self) -> None:
        self._opened_at = asyncio.get_running_loop().time()
        opening = asyncio.create_task(self._open())
        self._opening.add(opening)
        opening.add_done_callback(self._on_opened)

    def _on_opened(self, opening: asyncio.Task[_Connection]) -> None:
        self._opening.discard(opening)
        if not opening.cancelled():
            error = opening.exception()
            if error is not None:
                self._fail_waiting(str(error))
            elif opening.result().is_free:
                self._release(opening.result())
            else:
                self._fail_waiting("the server closed the connection at once")
        self._schedule_open()

    def _fail_waiting(self, why: str) -> None:
        """Fail one waiting request, or all if no other connection can serve them."""
        fail_all = not self._in_use and not self._opening
        while self._has_waiting():
            self._waiting.popleft()[1].set_exception(RequestNotSent(why))
            if not fail_all:
                return

    async def _open(self) -> _Connection:
        try:
            async with asyncio.timeout(self._connect_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    _Connection, self._host, self.port, ssl=self._tls
                )
        except TimeoutError as error:
            raise RequestNotSent(f"no connection within {self._connect_s:g} s") from error
        except (OSError, ValueError) as error:
            # An invalid host name is a ValueError.
            raise RequestNotSent(str(error)) from error
        return connection


def _time_out(handed: asyncio.Future[_Connection]) -> None:
    if not handed.done():
        handed.set_exception(RequestNotSent("no connection became free in time"))


class _Connection(asyncio.Protocol):
    """One connection; it is free while it is open and no request is under way."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._response: asyncio.Future[HttpResponse] | None = None
        self._parser: ResponseParser | None = None

    @property
    def is_free(self) -> bool:
        transport = self._transport
        return transport is not None and self._response is None and not transport.is_closing()

    def close(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    async def request(self, message: bytes, *, has_body: bool, deadline: float) -> HttpResponse:
        """Send a request and wait for the response until ``deadline`` (loop time). Raises ``OSError`` and ``BadResponse``."""
        if self._transport is None:
            raise ConnectionResetError("the connection was closed")
        self._parser = ResponseParser(has_body=has_body)
        loop = asyncio.get_running_loop()
        self._response = loop.create_future()
        self._transport.write(message)
        timer = loop.call_at(deadline, self._fail, TimeoutError())
        try:
            response = await self._response
        finally:
            timer.cancel()
        # Only now, so that the connection of a cancelled request is never free again.
        self._response = self._parser = None
        if response.is_last:
            self.close()
        return response

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is not a subclass.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._response is None or self._response.done():
            # Unsolicited data.
            self.close()
            return
        try:
            response = self._parser.feed(data)
        except BadResponse as error:
            self._fail(error)
            return
        if response is not None:
            self._response.set_result(response)

    def eof_received(self) -> None:
        if self._parser is not None and self._response is not None and not self._response.done():
            response = self._parser.end()
            if response is not None:
                self._response.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(
            ConnectionResetError(
                f"the connection was lost: {exc}" if exc else "the server closed the connection"
            )
        )

    def _fail(self, error: Exception) -> None:
        self.close()
        if self._response is not None and not self._response.done():
            self._response.set_exception(error)
