"""One connection to the broker, re-established as soon as the broker returns.

Everything else of the bus builds on this class; only this package uses the client library.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress

import msgspec

from muster_bus import _api, _publishing
from muster_bus._client import NatsClient, NatsError, NatsSubscription, cancellable, new_client
from muster_bus._requests import Requests
from muster_bus.errors import BusMissing, BusRejected, BusUnavailable, StreamFull, WriteInProcess
from muster_bus.messages import Fence, Incoming, Outgoing, Published, WireMessage, incoming_of
from muster_bus.metrics import BusMetrics

log = logging.getLogger(__name__)

_RECONNECT_S = 0.1
_CONNECT_TIMEOUT_S = 2.0
_PING_S = 5.0
_LOG_EVERY_S = 5.0
_HEADER_FRAME = 14
_DRAIN_S = 1.0


CountPending = Callable[[], Awaitable[int | None]]
"""Returns how many stored messages a reader has not handled, ``None`` if that is not known now."""


class BusSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The broker's address and credentials.

    ``url`` may list several servers, separated by commas. ``inbox_prefix`` is where answers arrive: a user who may
    subscribe only to its own prefix cannot read others' answers. ``request_timeout_s`` is how long an answer may take
    before its outcome counts as unknown.
    """

    url: str = "nats://127.0.0.1:4222"
    user: str | None = None
    password: str | None = None
    inbox_prefix: str = "_INBOX"
    request_timeout_s: float = 3.0


class Subscription:
    """A subscription; ``close`` ends it."""

    def __init__(self, *, bus: "Bus", subject: str, group: str, callback: Callable[[Incoming], None]) -> None:
        self._bus = bus
        self._subject = subject
        self._group = group
        self._callback = callback
        self._client: NatsClient | None = None
        self._live: NatsSubscription | None = None

    async def attach(self, client: NatsClient) -> None:
        """Subscribe on ``client``, unless done already."""
        if self._client is client:
            return
        self._client = client

        def receive(message: WireMessage) -> None:
            self._callback(incoming_of(message))

        self._live = await cancellable(client.subscribe_direct(self._subject, self._group, receive))

    async def close(self) -> None:
        """Unsubscribe; nothing is delivered after this."""
        live = self._detach()
        if live is not None:
            with suppress(NatsError):
                await cancellable(live.unsubscribe())

    async def drain(self) -> None:
        """Unsubscribe after delivering what the broker had sent."""
        live = self._detach()
        if live is not None:
            with suppress(NatsError, TimeoutError):
                async with asyncio.timeout(_DRAIN_S):
                    await cancellable(live.drain() if self._bus.connected else live.unsubscribe())

    def _detach(self) -> NatsSubscription | None:
        self._bus.forget(self)
        live, self._live = self._live, None
        return live


class Bus:
    """A connection to the broker."""

    def __init__(self, *, settings: BusSettings, name: str, metrics: BusMetrics) -> None:
        self.metrics = metrics
        self._settings = settings
        self._name = name
        self._client = new_client()
        self._requests = Requests(prefix=settings.inbox_prefix, publish=self._publish)
        self._subscriptions: set[Subscription] = set()
        self._readers: dict[str, CountPending] = {}
        self._on_reconnect: list[Callable[[], None]] = []
        self._on_unstored: list[Callable[[], None]] = []
        self._generation = 0
        self._closing = False
        self._seen: dict[str, int] = {}
        self._compared_streams: tuple[str, ...] = ()
        self._on_older: Callable[[str], None] | None = None
        self._older = ""
        self._is_compared = asyncio.Event()
        self._is_compared.set()
        self._comparing: asyncio.Task[None] | None = None
        self._revival: asyncio.Task[None] | None = None
        self._last_logged = ("", -_LOG_EVERY_S)

    @classmethod
    async def connect(cls, settings: BusSettings, *, name: str, metrics: BusMetrics | None = None) -> "Bus":
        """Return a connected bus; waits for the broker as long as necessary, and logs that."""
        bus = cls(settings=settings, name=name, metrics=metrics or BusMetrics())
        await bus._open()
        return bus

    @property
    def connected(self) -> bool:
        """Whether the connection is up."""
        return self._client.is_connected

    @property
    def inbox_prefix(self) -> str:
        """The prefix of this user's inboxes."""
        return self._settings.inbox_prefix

    @property
    def server_version(self) -> str:
        """The version of the server that the connection is to."""
        return self._client.server_version

    @property
    def has_jetstream(self) -> bool:
        """Whether that server has JetStream."""
        return self._client.has_jetstream

    @property
    def is_clustered(self) -> bool:
        """Whether that server is one of several."""
        return self._client.is_clustered

    @property
    def max_payload(self) -> int:
        """The largest message that that server takes, in bytes."""
        return self._client.max_payload

    @property
    def generation(self) -> int:
        """The number of connections made; what the broker knew of an earlier one may be lost."""
        return self._generation

    def on_reconnect(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` after every reconnect; returns a function that removes it."""
        self._on_reconnect.append(callback)
        return lambda: self._on_reconnect.remove(callback)

    def on_unstored(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` when a message was not stored, or the connection was lost; returns a function that removes it."""
        self._on_unstored.append(callback)
        return lambda: self._on_unstored.remove(callback)

    @contextmanager
    def storing(self) -> Generator[None]:
        """Report a message that is not stored in this block."""
        try:
            yield
        except (BusUnavailable, StreamFull) as error:
            if not isinstance(error, BusMissing | WriteInProcess):
                self._report_unstored()
            raise

    def _report_unstored(self) -> None:
        for callback in list(self._on_unstored):
            callback()

    @property
    def readers(self) -> Mapping[str, CountPending]:
        """The readers that run now, by the name of their consumer."""
        return self._readers

    @contextmanager
    def reading(self, consumer: str, count_pending: CountPending) -> Generator[None]:
        """Read as ``consumer`` in this block: what is pending of it is reported."""
        self._readers[consumer] = count_pending
        self.metrics.reads(consumer)
        try:
            yield
        finally:
            # A successor in this process may have begun.
            if self._readers.get(consumer) is count_pending:
                del self._readers[consumer]
                self.metrics.stopped_reading(consumer)

    def saw(self, stream: str, sequence: int) -> None:
        """Note that a message of a stream was read or stored."""
        if sequence > self._seen.get(stream, 0):
            self._seen[stream] = sequence

    def refuse_older_store(self, streams: Sequence[str], on_older: Callable[[str], None]) -> None:
        """Compare the streams with what was seen of them after every reconnect, before anything else is sent.

        A stream that ends before a message that was seen is that of an older store, which was restored. Then ``on_older`` is called
        with its name, and nothing is sent any more: what this process knows is derived from events that are lost.
        """
        self._compared_streams, self._on_older = tuple(streams), on_older

    async def close(self) -> None:
        """Flush and disconnect."""
        self._closing = True
        for task in (self._revival, self._comparing):
            if task is not None:
                task.cancel()
        self._requests.fail_all("the bus is closed")
        await self._client.close()

    async def publish(self, outgoing: Outgoing) -> Published:
        """Store one message durably.

        Raises ``WrongSequence``, ``StreamFull`` and other refusals if nothing was stored, and ``BusUnavailable`` if the
        outcome is unknown.
        """
        started = time.perf_counter()
        return self._counted(await _publishing.publish(self, outgoing), 1, started)

    async def publish_once(self, outgoing: Outgoing, *, deadline_s: float = 60.0) -> Published:
        """Store one message, retrying for ``deadline_s`` seconds while the outcome is unknown.

        A retry that meets its own earlier success returns that. Without ``expected_last`` this is exact within the
        stream's duplicate window. Raises as ``publish`` does.
        """
        started = time.perf_counter()
        published = await _publishing.publish_once(self, outgoing, deadline_s=deadline_s)
        return self._counted(published, 1, started)

    async def commit(self, outgoings: Sequence[Outgoing], *, fence: Fence | None) -> Published:
        """Store all of ``outgoings`` (one stream, at most 1,000) or none; returns the last one's sequence.

        Raises ``Fenced`` if the epoch moved and ``WrongSequence`` if an ``expected_last`` was not met (nothing was
        stored), ``BatchTooLarge``, and ``BusUnavailable`` if the outcome is unknown. The same batch may be committed
        again: its own success answers as a duplicate.
        """
        started = time.perf_counter()
        published = await _publishing.commit(self, outgoings, fence=fence)
        return self._counted(published, len(outgoings), started)

    async def last(self, stream: str, subject: str) -> Incoming | None:
        """Return the last message on ``subject``, read from the stream's leader."""
        return await _api.last_message(self, stream, subject)

    async def message(self, stream: str, sequence: int) -> Incoming | None:
        """Return the message with this sequence; None if it was deleted."""
        return await _api.message_at(self, stream, sequence)

    async def last_sequence(self, stream: str) -> int:
        """Return the sequence of the newest message of ``stream``, 0 if there was none."""
        return (await _api.stream_state(self, stream)).last_seq

    async def send(
        self, subject: str, data: bytes, *, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Publish without waiting for an answer: the message may be lost."""
        await self._publish(subject, data, reply, headers)

    async def request(
        self,
        subject: str,
        data: bytes,
        *,
        headers: dict[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Incoming:
        """Return the answer of the service on ``subject``; raises ``BusUnavailable`` without one."""
        wait_s = self._settings.request_timeout_s if timeout_s is None else timeout_s
        return incoming_of(await self._requests.ask(subject, data, headers=headers, timeout_s=wait_s))

    async def subscribe(
        self, subject: str, callback: Callable[[Incoming], None], *, group: str = "", flush: bool = True
    ) -> Subscription:
        """Call ``callback`` for every message on ``subject`` while connected; messages may be missed.

        Of the subscribers in one ``group`` only one is called. With ``flush`` the broker knows the subscription on
        return; without, before anything that this connection sends later.
        """
        subscription = Subscription(bus=self, subject=subject, group=group, callback=callback)
        self._subscriptions.add(subscription)
        try:
            await subscription.attach(self._client)
            if flush and self.connected:
                await cancellable(self._client.flush(self._settings.request_timeout_s))
        except NatsError as error:
            # The subscription is registered and takes effect with the next connection.
            log.warning("subscription to %s is delayed: %s", subject, error)
        return subscription

    @asynccontextmanager
    async def listen(self, subject: str) -> AsyncGenerator[AsyncIterator[Incoming], None]:
        """Iterate over messages on ``subject`` from now on; messages may be missed."""
        queue: asyncio.Queue[Incoming] = asyncio.Queue()

        async def messages() -> AsyncIterator[Incoming]:
            while True:
                yield await queue.get()

        subscription = await self.subscribe(subject, queue.put_nowait)
        try:
            yield messages()
        finally:
            await subscription.close()

    def forget(self, subscription: Subscription) -> None:
        """Do not renew ``subscription`` on the next connection."""
        self._subscriptions.discard(subscription)

    async def _open(self) -> None:
        settings = self._settings
        client = new_client()
        try:
            connecting = client.connect(
                settings.url.split(","),
                name=self._name,
                user=settings.user,
                password=settings.password,
                inbox_prefix=settings.inbox_prefix,
                error_cb=self._on_error,
                disconnected_cb=self._on_disconnected,
                reconnected_cb=self._on_reconnected,
                closed_cb=self._on_closed,
                max_reconnect_attempts=-1,
                reconnect_time_wait=_RECONNECT_S,
                connect_timeout=_CONNECT_TIMEOUT_S,
                ping_interval=_PING_S,
                max_outstanding_pings=2,
                # Nothing is buffered while disconnected: an outdated request that arrives after its caller gave up does
                # harm, an error does not.
                pending_size=0,
            )
            await cancellable(connecting)
            await cancellable(client.subscribe_direct(self._requests.inbox, "", self._requests.receive))
            self._client = client
            for subscription in list(self._subscriptions):
                await subscription.attach(client)
        except BaseException:
            await client.close()
            raise
        self._generation += 1

    async def _publish(self, subject: str, data: bytes, reply: str, headers: dict[str, str] | None) -> None:
        if not self._is_compared.is_set():
            await self._until_compared()
        size = len(data) + sum(len(name) + len(value.encode()) + 4 for name, value in (headers or {}).items())
        if size + _HEADER_FRAME > self._client.max_payload:
            # Checked here because the broker would answer by closing the connection.
            raise BusRejected(f"{size} bytes exceed the broker's limit ({self._client.max_payload})")
        try:
            await cancellable(self._client.publish(subject, data, reply, headers))
        except NatsError as error:
            # Without a connection the library reports a full buffer, although there is none.
            why = str(error) if self.connected else "there is no connection"
            raise BusUnavailable(why or "not connected") from error

    async def _until_compared(self) -> None:
        """Wait until the store is compared after a reconnect; the comparison itself does not wait."""
        if self._comparing is not None and asyncio.current_task() is self._comparing:
            return
        try:
            async with asyncio.timeout(0 if self._older else self._settings.request_timeout_s):
                await self._is_compared.wait()
        except TimeoutError:
            restored = f"an older store was restored: stream {self._older} ends before what was read of it"
            why = restored if self._older else "there is no connection"
            raise BusUnavailable(why) from None

    async def _compare(self) -> None:
        while True:
            try:
                older = [name for name in self._compared_streams if await self._is_older(name)]
                break
            except BusUnavailable as error:
                log.info("the streams are not compared yet: %s", error)
                await asyncio.sleep(_RECONNECT_S)
        if older and self._on_older is not None:
            self._older = older[0]
            self._on_older(older[0])
            return
        self._is_compared.set()

    async def _is_older(self, stream: str) -> bool:
        seen = self._seen.get(stream, 0)
        try:
            return seen > 0 and await self.last_sequence(stream) < seen
        except BusMissing:
            # A deleted stream is created again, see ``CatalogueReconciler``.
            return False

    def _counted(self, published: Published, messages: int, started: float) -> Published:
        self.saw(published.stream, published.sequence)
        if not published.duplicate:
            self.metrics.published(published.stream, messages, time.perf_counter() - started)
        return published

    async def _on_error(self, error: Exception) -> None:
        text = str(error) or repr(error)
        if "permissions violation" in text.lower():
            self.metrics.refused()
            log.error("the broker refused this user: %s", text)
            return
        now = asyncio.get_running_loop().time()
        logged, at = self._last_logged
        if text != logged or now - at >= _LOG_EVERY_S:
            self._last_logged = (text, now)
            log.warning("broker %s: %s", self._settings.url, text)

    async def _on_disconnected(self) -> None:
        if self._compared_streams:
            self._is_compared.clear()
        self._requests.fail_all("the connection was lost")
        if not self._closing:
            log.warning("disconnected from the broker")
            self._report_unstored()

    async def _on_reconnected(self) -> None:
        self._generation += 1
        self._announce()

    async def _on_closed(self) -> None:
        """Some errors make the client give up for good; a service must not."""
        if not self._closing and self._revival is None:
            self._revival = asyncio.create_task(self._revive())

    async def _revive(self) -> None:
        opened = False
        while not opened:
            await asyncio.sleep(_RECONNECT_S)
            try:
                await self._open()
                opened = True
            except (NatsError, OSError) as error:
                log.warning("cannot reconnect yet: %s", error)
        self._revival = None
        self._announce()

    def _announce(self) -> None:
        log.info("reconnected to the broker")
        if not self._is_compared.is_set() and not self._older:
            if self._comparing is not None:
                self._comparing.cancel()
            self._comparing = asyncio.create_task(self._compare())
        self.metrics.reconnected()
        for callback in list(self._on_reconnect):
            callback()
