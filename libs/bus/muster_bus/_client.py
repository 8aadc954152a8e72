"""The one place that knows the client library: a typed face of what the bus uses of it.

The library imports an HTTP client where one is installed, for WebSocket connections, which the bus does not offer. That
is more than half of its import time, and every service pays it at start; so it is hidden during the import.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Protocol, TypeVar, cast

import msgspec

from muster_bus.messages import DESCRIPTION, STATUS, WireMessage


@contextmanager
def _hidden(module: str) -> Generator[None]:
    known = module in sys.modules
    if not known:
        sys.modules[module] = None  # pyright: ignore[reportArgumentType] - this is how an import is made to fail
    try:
        yield
    finally:
        if not known:
            del sys.modules[module]


with _hidden("aiohttp"):
    from nats.aio import client as _library
    from nats.aio.client import Client
    from nats.aio.transport import TcpTransport
    from nats.errors import Error as NatsError

__all__ = ["NatsClient", "NatsError", "NatsSubscription", "heeding", "new_client"]

T = TypeVar("T")
Receive = Callable[[WireMessage], None]

_FIRST_LINE = "NATS/1.0"


class NatsSubscription(Protocol):
    """A subscription of the client library."""

    async def unsubscribe(self) -> None:
        """Take the interest back; messages still in flight are dropped."""
        ...

    async def drain(self) -> None:
        """Take the interest back, then deliver what was in flight."""
        ...


class NatsClient(Protocol):
    """A connection of the client library."""

    @property
    def is_connected(self) -> bool:
        """Whether the connection stands at this moment."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether the connection was given up for good."""
        ...

    @property
    def max_payload(self) -> int:
        """The largest payload that the broker takes, in bytes."""
        ...

    async def connect(
        self,
        servers: list[str],
        *,
        name: str,
        user: str | None,
        password: str | None,
        inbox_prefix: str,
        error_cb: Callable[[Exception], Awaitable[None]],
        disconnected_cb: Callable[[], Awaitable[None]],
        reconnected_cb: Callable[[], Awaitable[None]],
        closed_cb: Callable[[], Awaitable[None]],
        max_reconnect_attempts: int,
        reconnect_time_wait: float,
        connect_timeout: float,
        ping_interval: float,
        max_outstanding_pings: int,
        pending_size: int,
    ) -> None:
        """Connect, waiting for a broker for as long as it takes."""
        ...

    async def publish(
        self, subject: str, payload: bytes, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Send without waiting for anything."""
        ...

    async def hear(self, subject: str, queue: str, receive: Receive) -> NatsSubscription:
        """Deliver what comes on ``subject`` to ``receive``, one at a time."""
        ...

    async def flush(self, timeout: float) -> None:
        """Wait until the broker has read all that was sent."""
        ...

    async def close(self) -> None:
        """Give the connection up."""
        ...


async def heeding(call: Awaitable[T]) -> T:
    """Await a call of the client library and let a cancellation take effect.

    The library swallows a cancellation that comes while it writes; the task that was cancelled would then go on for ever.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    answer = await call
    if task and task.cancelling() > before:
        raise asyncio.CancelledError
    return answer


class _Subscribe(Protocol):
    async def __call__(
        self, subject: str, queue: str, *, cb: Callable[[WireMessage], Awaitable[None]]
    ) -> NatsSubscription: ...


class _Message(msgspec.Struct, frozen=True):
    """A ``WireMessage``."""

    subject: str
    reply: str
    data: bytes
    headers: dict[str, str] | None


class _Transport(TcpTransport):
    """The library's transport, where what is written to a connection that is lost goes nowhere, and draining it says so.

    That is asyncio's way, which the library relies on. Other loops raise ``RuntimeError`` at the write, and the task that makes the
    connection anew would end of it.
    """

    def write(self, payload: bytes) -> None:
        """Write, unless the connection is lost."""
        if not self._is_lost():
            super().write(payload)  # pyright: ignore[reportUnknownMemberType]

    def writelines(self, payload: list[bytes]) -> None:
        """Write all of it, unless the connection is lost."""
        if not self._is_lost():
            super().writelines(payload)  # pyright: ignore[reportUnknownMemberType]

    def _is_lost(self) -> bool:
        writer = self._io_writer
        return writer is not None and writer.is_closing()


_library.TcpTransport = _Transport  # pyright: ignore[reportPrivateImportUsage]


async def _deliver(receive: Receive, message: WireMessage) -> None:
    receive(message)


class _Client(Client):
    """The library's client, with two of its ways changed.

    It bears that somebody has stopped waiting for the answer to a ping. The library hands the answer to whoever asked first; where that one
    has given up it fails, and reads no more. The connection then seems to stand and nothing comes, until it is found dead many seconds
    later. Whoever flushes or drains on a busy machine gives up.

    And what is heard is handed over as it is read. The library puts each message into a queue, for a task to take out and call back, which
    is about as much work as all the rest of receiving it.
    """

    async def hear(self, subject: str, queue: str, receive: Receive) -> NatsSubscription:
        """See ``NatsClient``."""
        subscribe = cast("_Subscribe", self.subscribe)  # pyright: ignore[reportUnknownMemberType]
        return await subscribe(subject, queue, cb=partial(_deliver, receive))

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        subscription = self._subs.get(sid)
        callback = subscription._cb if subscription is not None else None  # pyright: ignore[reportPrivateUsage]
        if not isinstance(callback, partial) or callback.func is not _deliver:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        try:
            callback.args[0](_Message(subject.decode(), reply.decode(), data, read_headers(headers)))
        except Exception as error:
            await self._error_cb(error)

    async def _process_pong(self) -> None:
        waiting = cast("list[asyncio.Future[bool]]", self._pongs)  # pyright: ignore[reportUnknownMemberType]
        if waiting and waiting[0].done():
            # Pings are answered in their order: this answer is that one's all the same.
            waiting[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()


def read_headers(block: bytes | None) -> dict[str, str] | None:
    """The headers in front of a message, its status among them where the broker itself says something; None where there are none."""
    if not block:
        return None
    first, *lines = block.decode(errors="replace").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip(): value.strip() for name, colon, value in pairs if colon}
    status, _, description = first.removeprefix(_FIRST_LINE).strip().partition(" ")
    if status.isdecimal():
        headers[STATUS] = status
        if description:
            headers[DESCRIPTION] = description
    return headers


def new_client() -> NatsClient:
    """A client that is not connected yet."""
    return cast("NatsClient", cast("object", _Client()))
