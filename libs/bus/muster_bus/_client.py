"""The adapter of the NATS client library: a typed interface of what the bus uses.

The library imports an HTTP client, if installed, for WebSocket connections, which the bus does not use. That is more than
half of its import time at every service start, so it is hidden during the import.
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

__all__ = ["NatsClient", "NatsError", "NatsSubscription", "cancellable", "new_client"]

T = TypeVar("T")
Receive = Callable[[WireMessage], None]

_FIRST_LINE = "NATS/1.0"


class NatsSubscription(Protocol):
    """A subscription of the client library."""

    async def unsubscribe(self) -> None:
        """Unsubscribe; messages in flight are dropped."""
        ...

    async def drain(self) -> None:
        """Unsubscribe after delivering messages in flight."""
        ...


class NatsClient(Protocol):
    """A connection of the client library."""

    @property
    def is_connected(self) -> bool:
        """Whether the connection is up."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether the connection was closed for good."""
        ...

    @property
    def max_payload(self) -> int:
        """The broker's largest payload in bytes."""
        ...

    @property
    def server_version(self) -> str:
        """The broker's version; empty before the first connection."""
        ...

    @property
    def has_jetstream(self) -> bool:
        """Whether the broker has JetStream."""
        ...

    @property
    def is_clustered(self) -> bool:
        """Whether the broker is one of several servers."""
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
        """Connect, waiting for a broker as long as necessary."""
        ...

    async def publish(
        self, subject: str, payload: bytes, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Publish without waiting."""
        ...

    async def subscribe_direct(self, subject: str, queue: str, receive: Receive) -> NatsSubscription:
        """Deliver messages on ``subject`` to ``receive``, one at a time."""
        ...

    async def flush(self, timeout: float) -> None:
        """Wait until the broker has read everything that was sent."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


async def cancellable(call: Awaitable[T]) -> T:
    """Await a call of the client library, and make cancellation effective.

    The library swallows a cancellation that arrives during a write; the cancelled task would then run on for ever.
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
    """The library's transport, with asyncio's behaviour on a lost connection: writes are dropped, and draining raises.

    The library relies on that. Other loops raise ``RuntimeError`` at the write, which would end the reconnecting task.
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
    """The library's client with four changes.

    It tolerates a cancelled ping. The library passes a pong to the oldest caller; if that one has given up, it fails and
    stops reading, and the connection appears idle until it is found dead many seconds later. Flushing or draining on a
    busy machine may time out like this.

    It also delivers messages as they are read. The library queues each message for a task, which costs about as much as
    the rest of receiving it.

    It closes a connection on which a broker does not answer, for example a stopped one, before it makes another.

    And it makes another connection after bytes that are not the protocol, whichever error they lead to. The library stops
    reading or reconnecting at errors that it does not expect, with a line in the log.
    """

    @property
    def server_version(self) -> str:
        """See ``NatsClient``."""
        return str(self._server_info.get("version", ""))

    @property
    def has_jetstream(self) -> bool:
        """See ``NatsClient``."""
        return bool(self._server_info.get("jetstream"))

    @property
    def is_clustered(self) -> bool:
        """See ``NatsClient``."""
        return bool(self._server_info.get("cluster"))

    async def subscribe_direct(self, subject: str, queue: str, receive: Receive) -> NatsSubscription:
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
            # A message that is left out for its subject would be a gap, for which its readers wait for ever.
            name = subject.decode(errors="replace")
            callback.args[0](_Message(name, reply.decode(errors="replace"), data, read_headers(headers)))
        except Exception as error:
            await self._error_cb(error)

    async def _process_connect_init(self) -> None:
        try:
            await super()._process_connect_init()
        except BaseException as error:
            if self._transport is not None:
                self._transport.close()
            if not isinstance(error, Exception) or isinstance(error, OSError | TimeoutError | NatsError):
                raise
            raise NatsError(f"the greeting of the broker cannot be read: {error}") from error

    async def _read_loop(self) -> None:
        await super()._read_loop()
        task = asyncio.current_task()
        if self.is_connected and not (task is not None and task.cancelling()):
            await self._process_op_err(NatsError("what the broker sent cannot be read"))

    async def _process_pong(self) -> None:
        waiting = cast("list[asyncio.Future[bool]]", self._pongs)  # pyright: ignore[reportUnknownMemberType]
        if waiting and waiting[0].done():
            # Pings are answered in order: this pong still belongs to that ping.
            waiting[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()


def read_headers(block: bytes | None) -> dict[str, str] | None:
    """Return the headers of a message, including the status of a broker's message; None if there are none."""
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
    """Return a client that is not connected yet."""
    return cast("NatsClient", cast("object", _Client()))
