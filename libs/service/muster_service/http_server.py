"""A small HTTP server for metrics, health, and JSON queries.

aiohttp would cost each service 7 MiB of memory and 0.2 s of start, more than a few GET requests a minute justify. One
request per connection, bounded in size, time and number.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

log = logging.getLogger(__name__)

_MAX_HEAD_BYTES = 16_384
_HEAD_TIMEOUT_S = 5.0
_ANSWER_TIMEOUT_S = 30.0
_MOST_CONNECTIONS = 256


class Request(msgspec.Struct, frozen=True):
    """A GET or HEAD request: the decoded path and the last value of each query parameter."""

    path: str
    query: Mapping[str, str]


class Response(msgspec.Struct, frozen=True):
    """An answer: status code, body and content type."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


def json_response(status: int, content: object) -> Response:
    """Return an answer with `content` as JSON."""
    return Response(status, msgspec.json.encode(content), "application/json")


Handler = Callable[[Request], Awaitable[Response]]


class HttpServer:
    """Serves one handler at one address.

    Args:
        host: the address to bind.
        port: 0 for a free one, available as `port` after `start`.
        handler: answers each request; an exception becomes a 500 and a log line.
    """

    def __init__(self, *, host: str, port: int, handler: Handler) -> None:
        self._host = host
        self._requested_port = port
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], None] = {}

    @property
    def port(self) -> int:
        """The bound port; 0 before `start`."""
        return int(self._server.sockets[0].getsockname()[1]) if self._server and self._server.sockets else 0

    async def start(self) -> None:
        """Bind and serve.

        Raises:
            OSError: the address cannot be bound.
        """
        self._server = await asyncio.start_server(
            self._accept, self._host, self._requested_port, limit=_MAX_HEAD_BYTES
        )

    async def stop(self) -> None:
        """Close the port and end open connections."""
        if self._server is None:
            return
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= _MOST_CONNECTIONS:
            # Silent connections must neither take the descriptors of calls nor keep others from the pages.
            next(iter(self._open)).cancel()
        task = asyncio.create_task(self._serve(reader, writer))
        self._open[task] = None
        task.add_done_callback(lambda done: self._open.pop(done, None))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            method, response = await self._answer(reader)
            if writer.is_closing():
                return
            writer.write(_encode(method, response))
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                await writer.drain()
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
            log.debug("an HTTP client disconnected")
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[str, Response]:
        try:
            async with asyncio.timeout(_HEAD_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            method, target, _version = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
            parts = urlsplit(target)
        except (asyncio.LimitOverrunError, ValueError):
            return "GET", Response(HTTPStatus.BAD_REQUEST, b"bad request\n")
        if method not in ("GET", "HEAD"):
            return method, Response(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n")
        request = Request(path=unquote(parts.path), query=dict(parse_qsl(parts.query)))
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                return method, await self._handler(request)
        except Exception:
            log.exception("an HTTP request failed")
            return method, Response(HTTPStatus.INTERNAL_SERVER_ERROR, b"internal error\n")


def _encode(method: str, response: Response) -> bytes:
    head = (
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\n"
        f"Content-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode("ascii")
    return head if method == "HEAD" else head + response.body
