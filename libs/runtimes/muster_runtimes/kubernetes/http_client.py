"""DOC."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import cast
from urllib.parse import urlsplit

import msgspec

_END_OF_HEAD = b"\r\n\r\n"
_LONGEST_HEAD = 64 * 1024
_LONGEST_LINE = 4 * 1024
_WITHOUT_BODY = frozenset({204, 304})
_FIRST_FINAL = 200


class BadResponse(Exception):
    """What came is no HTTP."""


class HttpResponse(msgspec.Struct, frozen=True):
    """``headers`` by their names in small letters. ``is_last``: the connection ends with it."""

    status: int
    headers: dict[str, str]
    data: bytes
    is_last: bool


class ResponseParser:
    """Reads one answer; ``has_body`` is False for what answers HEAD."""

    def __init__(self, *, has_body: bool) -> None:
        self._has_body = has_body
        self._received = bytearray()
        self._status = 0
        self._headers: dict[str, str] = {}
        self._is_last = False
        self._body: list[bytes] = []
        self._at = 0
        self._length: int | None = None
        self._chunked = False

    def feed(self, data: bytes) -> HttpResponse | None:
        """Take some bytes; the answer once it is whole. Raises ``BadResponse``."""
        self._received += data
        while not self._status:
            end = self._received.find(_END_OF_HEAD)
            if end < 0:
                if len(self._received) > _LONGEST_HEAD:
                    raise BadResponse("its head does not end")
                return None
            self._read_head(bytes(self._received[:end]))
            del self._received[: end + len(_END_OF_HEAD)]
        if self._chunked:
            return self._read_chunks()
        if self._length is None or len(self._received) < self._length:
            return None
        if len(self._received) > self._length:
            raise BadResponse("it is longer than it says")
        return self._whole(bytes(self._received))

    def end(self) -> HttpResponse | None:
        """Nothing more comes: the answer, where that is how it ends."""
        if not self._status or self._chunked or self._length is not None:
            return None
        return self._whole(bytes(self._received))

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
            raise BadResponse(f"it begins with {first[:80]!r}")
        status = int(rest[:3])
        if status < _FIRST_FINAL:
            # The answer itself is still to come.
            return
        pairs = (line.partition(":") for line in lines)
        self._headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self._status = status
        self._is_last = version == "HTTP/1.0" or self._headers.get("connection", "").lower() == "close"
        self._measure()

    def _measure(self) -> None:
        said = self._headers.get("content-length", "")
        if not self._has_body or self._status in _WITHOUT_BODY:
            self._length = 0
        elif "chunked" in self._headers.get("transfer-encoding", "").lower():
            self._chunked = True
        elif said.isdecimal():
            self._length = int(said)
        else:
            self._is_last = True

    def _read_chunks(self) -> HttpResponse | None:
        received = self._received
        while True:
            end = received.find(b"\r\n", self._at)
            if end < 0:
                if len(received) - self._at > _LONGEST_LINE:
                    raise BadResponse("the length of a chunk does not end")
                break
            size = _chunk_size(bytes(received[self._at : end]))
            if not size:
                return self._after_chunks(end)
            begin = end + 2
            if len(received) < begin + size + 2:
                break
            self._body.append(bytes(received[begin : begin + size]))
            self._at = begin + size + 2
        # What has been read is not moved about again with every piece that comes.
        if self._at > _LONGEST_HEAD:
            del received[: self._at]
            self._at = 0
        return None

    def _after_chunks(self, end: int) -> HttpResponse | None:
        """Behind the last chunk there may be more headers; an empty line ends them."""
        rest = bytes(self._received[end:])
        if rest == b"\r\n\r\n" or rest.endswith(_END_OF_HEAD):
            return self._whole(b"".join(self._body))
        if len(rest) > _LONGEST_HEAD:
            raise BadResponse("it does not end")
        return None

    def _whole(self, data: bytes) -> HttpResponse:
        return HttpResponse(self._status, self._headers, data, self._is_last)


def _chunk_size(line: bytes) -> int:
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        raise BadResponse("the length of a chunk is no number") from None


_IDLE_S = 45.0
"""How long a connection is kept that nobody uses; API servers keep them for longer."""

_PATIENCE_S = 0.005
"""How long requests wait for a connection that is in use, before another is opened: what the server answers sooner needs few of them, and
to open one costs both sides as much as several requests. A burst would otherwise open one for each of its requests."""

_MOMENT_S = 0.0005
"""A loop's timers may come that much before their time."""

_OPENING_AT_ONCE = 8
"""Each is begun that long after the one before; a server that is far away takes longer than that."""


class RequestNotSent(Exception):
    """There is no connection, so the server knows nothing of the request."""


class ResponseLost(Exception):
    """The request was sent, and the answer did not come."""


class HttpClient:
    """Connections to the server at ``url``, each with one request at a time, opened as they are needed. Close them with ``close``.

    ``tls`` is None for a server that speaks plain HTTP. ``connect_s`` bounds how long a connection may take to be made.
    """

    def __init__(self, *, url: str, tls: ssl.SSLContext | None, connect_s: float) -> None:
        place = urlsplit(url)
        self._tls = tls if place.scheme == "https" else None
        self._host = place.hostname or "localhost"
        self.port = place.port or (443 if self._tls else 80)
        self._prefix = place.path.rstrip("/")
        self._place = place.netloc.rpartition("@")[2]
        self._connect_s = connect_s
        self._idle: deque[tuple[float, _Connection]] = deque()
        self._waiting: deque[tuple[float, asyncio.Future[_Connection]]] = deque()
        self._in_use = 0
        self._opening: set[asyncio.Task[_Connection]] = set()
        self._opened_at = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self._closed = False

    def close(self) -> None:
        """Close the connections that nobody uses; the others are closed once they are answered. Who waits for one gets none."""
        self._closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        for opening in self._opening:
            opening.cancel()
        while self._someone_waits():
            self._waiting.popleft()[1].set_exception(RequestNotSent("the client is closed"))
        while self._idle:
            self._idle.pop()[1].close()

    async def ask(
        self, method: str, path: str, *, headers: str, body: bytes | None, timeout_s: float
    ) -> HttpResponse:
        """The answer to a request; ``headers`` are lines that end with CR and LF.

        Raises ``RequestNotSent`` where it certainly has not reached the server, and ``ResponseLost`` where it may have.
        """
        length = f"Content-Length: {len(body)}\r\n" if body is not None else ""
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\nHost: {self._place}\r\n{headers}{length}\r\n"
        message = head.encode("latin-1") + (body or b"")
        deadline = asyncio.get_running_loop().time() + timeout_s
        connection = await self._take(deadline)
        self._in_use += 1
        try:
            answer = await connection.ask(message, has_body=method != "HEAD", deadline=deadline)
        except (OSError, BadResponse) as error:
            raise ResponseLost(str(error)) from error
        finally:
            self._in_use -= 1
            self._put_back(connection)
        return answer

    async def _take(self, deadline: float) -> _Connection:
        """A connection that is free now; raises ``RequestNotSent``."""
        while not self._closed:
            now = asyncio.get_running_loop().time()
            connection = self._take_idle(now) or await self._wait_for_one(now, deadline)
            # It may have been lost between its being handed over and now.
            if connection.is_free:
                return connection
            self._put_back(connection)
        raise RequestNotSent("the client is closed")

    async def _wait_for_one(self, now: float, deadline: float) -> _Connection:
        loop = asyncio.get_running_loop()
        handed: asyncio.Future[_Connection] = loop.create_future()
        self._waiting.append((now, handed))
        self._see_to_it()
        # A timer of its own, here and below: a time-out of the library costs several times as much.
        end = loop.call_at(deadline, _give_up, handed)
        try:
            return await handed
        except asyncio.CancelledError:
            if handed.done() and not handed.cancelled() and handed.exception() is None:
                self._put_back(handed.result())
            raise
        finally:
            end.cancel()

    def _take_idle(self, now: float) -> _Connection | None:
        # The one that was used last: those that are too many grow old at the other end.
        while self._idle:
            since, connection = self._idle.pop()
            if connection.is_free and now - since < _IDLE_S:
                return connection
            connection.close()
        return None

    def _put_back(self, connection: _Connection) -> None:
        now = asyncio.get_running_loop().time()
        if not connection.is_free or self._closed:
            connection.close()
            self._see_to_it()
        elif self._someone_waits():
            self._waiting.popleft()[1].set_result(connection)
        else:
            self._idle.append((now, connection))
        while self._idle and now - self._idle[0][0] >= _IDLE_S:
            self._idle.popleft()[1].close()

    def _someone_waits(self) -> bool:
        while self._waiting and self._waiting[0][1].done():
            self._waiting.popleft()
        return bool(self._waiting)

    def _see_to_it(self) -> None:
        """Have another connection opened once the one that waits longest has waited for long enough: at once where none is in use."""
        if self._alarm is not None or not self._someone_waits():
            return
        # No more than there are who wait.
        if len(self._opening) >= min(_OPENING_AT_ONCE, len(self._waiting)):
            return
        if self._in_use or self._opening:
            loop = asyncio.get_running_loop()
            due = max(self._waiting[0][0], self._opened_at) + _PATIENCE_S
            self._alarm = loop.call_at(max(due, loop.time()), self._lose_patience)
        else:
            self._open_another()

    def _lose_patience(self) -> None:
        self._alarm = None
        if self._someone_waits():
            now = asyncio.get_running_loop().time()
            if now + _MOMENT_S >= max(self._waiting[0][0], self._opened_at) + _PATIENCE_S:
                self._open_another()
        self._see_to_it()

    def _open_another(self) -> None:
        self._opened_at = asyncio.get_running_loop().time()
        opening = asyncio.create_task(self._open())
        self._opening.add(opening)
        opening.add_done_callback(self._opened)

    def _opened(self, opening: asyncio.Task[_Connection]) -> None:
        self._opening.discard(opening)
        if not opening.cancelled():
            error = opening.exception()
            if error is not None:
                self._refuse(str(error))
            elif opening.result().is_free:
                self._put_back(opening.result())
            else:
                self._refuse("the connection was lost at once")
        self._see_to_it()

    def _refuse(self, why: str) -> None:
        """One who waits hears of a connection that failed, and all of them where there is no other to hope for: nothing was sent."""
        hopeless = not self._in_use and not self._opening
        while self._someone_waits():
            self._waiting.popleft()[1].set_exception(RequestNotSent(why))
            if not hopeless:
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
            # A name that is none is a ValueError.
            raise RequestNotSent(str(error)) from error
        return connection


def _give_up(handed: asyncio.Future[_Connection]) -> None:
    if not handed.done():
        handed.set_exception(RequestNotSent("there was no connection in time"))


class _Connection(asyncio.Protocol):
    """One connection. It is free while it is open, and owes no answer."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[HttpResponse] | None = None
        self._reader: ResponseParser | None = None

    @property
    def is_free(self) -> bool:
        transport = self._transport
        return transport is not None and self._answer is None and not transport.is_closing()

    def close(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    async def ask(self, message: bytes, *, has_body: bool, deadline: float) -> HttpResponse:
        """Send a request, and wait for its answer until ``deadline`` (of the loop's clock); raises ``OSError`` and ``BadResponse``."""
        if self._transport is None:
            raise ConnectionResetError("the connection was closed")
        self._reader = ResponseParser(has_body=has_body)
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        self._transport.write(message)
        end = loop.call_at(deadline, self._fail, TimeoutError())
        try:
            answer = await self._answer
        finally:
            end.cancel()
        # Not before it has come: whoever is cancelled meanwhile leaves a connection that nobody may use.
        self._answer = self._reader = None
        if answer.is_last:
            self.close()
        return answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # That of another event loop is no subclass.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._reader is None or self._answer is None or self._answer.done():
            # Nobody has asked.
            self.close()
            return
        try:
            answer = self._reader.feed(data)
        except BadResponse as error:
            self._fail(error)
            return
        if answer is not None:
            self._answer.set_result(answer)

    def eof_received(self) -> None:
        if self._reader is not None and self._answer is not None and not self._answer.done():
            answer = self._reader.end()
            if answer is not None:
                self._answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(ConnectionResetError(f"the connection was lost: {exc}" if exc else "it was closed"))

    def _fail(self, error: Exception) -> None:
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
