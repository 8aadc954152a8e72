"""Ordered consumers: read a range of a stream, or follow its end, without a durable consumer.

The ephemeral consumer is in the broker's memory and dies with it; the reader then creates another one after the last
message it returned, so its caller sees one sequence without gaps.

In a cluster of brokers the consumer may be on a server whose copy of the stream is behind. It then ends too early, or begins
too early; so its end is compared with the stream's leader, and what comes before its beginning is left out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Self

import msgspec

from muster_bus import _api
from muster_bus.connection import Bus
from muster_bus.errors import BusMissing, BusUnavailable
from muster_bus.messages import Incoming
from muster_bus.pull_subscription import ConsumerGone, PullPacer, PullSubscription

log = logging.getLogger(__name__)

_INACTIVE_S = 10.0
_PAUSE_S = 0.2
_IDLE_S = 1.0
_HEADERS = 1024


class StreamRange(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of ``stream`` that match ``filters``, after sequence ``after`` up to and including ``through``."""

    stream: str
    filters: Sequence[str]
    after: int
    through: int


async def read_range(
    bus: Bus, stretch: StreamRange, *, batch: int = 256
) -> AsyncGenerator[list[Incoming], None]:
    """Iterate over the range in order, in lists of at most ``batch``; waits for an unavailable broker."""
    position = stretch.after
    while position < stretch.through:
        try:
            async with aclosing(_read_once(bus, stretch, after=position, batch=batch)) as chunks:
                async for chunk in chunks:
                    position = chunk[-1].stream_sequence
                    yield chunk
        except (BusUnavailable, ConsumerGone) as error:
            log.info("reading %s again after %d: %s", stretch.stream, position, error)
            await asyncio.sleep(_PAUSE_S)
            continue
        return


async def read_last_values(bus: Bus, stream: str, filter_subject: str) -> list[Incoming]:
    """Return the last message of every matching subject, in sequence order.

    Raises ``BusUnavailable`` if the broker becomes unavailable meanwhile: half a listing is useless.
    """
    newest = await _newest(bus, stream, filter_subject)
    info = await _api.create_reader(bus, stream, [filter_subject], start=None, inactive_s=_INACTIVE_S)
    found: dict[str, Incoming] = {}
    try:
        async with aclosing(_drain(bus, stream, info, batch=1024)) as chunks:
            async for chunk in chunks:
                found.update((message.subject, message) for message in chunk)
    except ConsumerGone as gone:
        raise BusUnavailable(f"listing {filter_subject} was interrupted") from gone
    listed = sorted(found.values(), key=lambda message: message.stream_sequence)
    await _require(bus, stream, filter_subject, newest, listed[-1].stream_sequence if listed else 0)
    return listed


async def read_last_headers(
    bus: Bus, stream: str, filter_subject: str
) -> AsyncGenerator[list[Incoming], None]:
    """Iterate over the last message of every matching subject, without its data, in lists.

    Raises ``BusUnavailable`` if the broker becomes unavailable meanwhile. A subject that is written meanwhile may come twice.
    """
    newest = await _newest(bus, stream, filter_subject)
    info = await _api.create_reader(
        bus, stream, [filter_subject], start=None, inactive_s=_INACTIVE_S, headers_only=True
    )
    last = 0
    try:
        async with aclosing(_drain(bus, stream, info, batch=_HEADERS)) as chunks:
            async for chunk in chunks:
                last = chunk[-1].stream_sequence
                yield chunk
    except ConsumerGone as gone:
        raise BusUnavailable(f"listing {filter_subject} was interrupted") from gone
    await _require(bus, stream, filter_subject, newest, last)


async def _newest(bus: Bus, stream: str, filter_subject: str) -> int:
    """Return the sequence of the leader's last message that matches; 0 if there is none, or one server only."""
    last = await _api.last_message(bus, stream, filter_subject) if bus.is_clustered else None
    return last.stream_sequence if last is not None else 0


async def _require(bus: Bus, stream: str, filter_subject: str, newest: int, last: int) -> None:
    """Raise ``BusUnavailable`` if a listing that ends with ``last`` lacks ``newest``, unless that was removed meanwhile."""
    if last < newest and await _newest(bus, stream, filter_subject) >= newest:
        raise BusUnavailable(f"{filter_subject} was listed by a server that is behind")


async def _read_once(
    bus: Bus, stretch: StreamRange, *, after: int, batch: int
) -> AsyncGenerator[list[Incoming], None]:
    info = await _api.create_reader(
        bus, stretch.stream, list(stretch.filters), start=after + 1, inactive_s=_INACTIVE_S
    )
    async with aclosing(_drain(bus, stretch.stream, info, batch=batch)) as chunks:
        async for chunk in chunks:
            wanted = [each for each in chunk if after < each.stream_sequence <= stretch.through]
            if wanted:
                after = wanted[-1].stream_sequence
                yield wanted
            if chunk[-1].stream_sequence >= stretch.through:
                return
    if bus.is_clustered:
        for subject in stretch.filters:
            unread = await _api.next_message(bus, stretch.stream, subject, after + 1)
            if unread is not None and unread.stream_sequence <= stretch.through:
                raise ConsumerGone(f"{info.name} is on a server that is behind")


async def _drain(
    bus: Bus, stream: str, info: _api.ConsumerInfo, *, batch: int
) -> AsyncGenerator[list[Incoming], None]:
    """Return everything that matches until nothing is left; deletes the consumer afterwards.

    The broker signals the end: a value that is replaced during the listing moves to the end.
    """
    if not info.num_pending:
        await _discard(bus, stream, info.name)
        return
    expected = 1
    left = info.num_pending
    async with PullSubscription(
        bus, stream=stream, consumer=info.name, depth=min(2 * batch, left), ephemeral=True
    ) as subscription:
        try:
            while True:
                # A request for more than there is would wait in the broker until the consumer is deleted.
                depth = left if left <= 2 * batch else None
                chunk = [
                    message for _, message in await subscription.take(batch, depth=depth, wait_s=_IDLE_S)
                ]
                if not chunk:
                    if await _exhausted(bus, stream, info.name, expected):
                        return
                    continue
                if [message.consumer_sequence for message in chunk] != [
                    *range(expected, expected + len(chunk))
                ]:
                    raise ConsumerGone(f"{info.name} skipped a message")
                expected += len(chunk)
                yield chunk
                left = chunk[-1].pending
                if not left:
                    return
        finally:
            await _discard(bus, stream, info.name)


async def _exhausted(bus: Bus, stream: str, name: str, expected: int) -> bool:
    """Return whether the rest was removed from the stream meanwhile, so that nothing will come."""
    try:
        info = await _api.consumer_info(bus, stream, name)
    except BusMissing as error:
        raise ConsumerGone(name) from error
    if info.delivered.consumer_seq >= expected:
        raise ConsumerGone(f"{name} lost a message on the way")
    return not info.num_pending


async def _discard(bus: Bus, stream: str, name: str) -> None:
    try:
        await bus.send(f"$JS.API.CONSUMER.DELETE.{stream}.{name}", b"")
    except BusUnavailable:
        log.debug("reader %s is left to expire", name)


_CHECK_EVERY_S = 5.0


class OrderedConsumer:
    """The messages of ``stream`` that match ``filters`` from a position on, each once and in order.

    ``name`` is for the log. At most ``depth`` messages are requested at a time, as often as ``pace`` allows; with
    ``headers_only`` they come without their data.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        name: str,
        stream: str,
        filters: Sequence[str],
        depth: int,
        pace: PullPacer,
        headers_only: bool = False,
    ) -> None:
        self._bus = bus
        self._name = name
        self._stream = stream
        self._filters = list(filters)
        self._depth = depth
        self._pace = pace
        self._headers_only = headers_only
        self._subscription: PullSubscription | None = None
        self._consumer = ""
        self._generation = -1
        self._expected = 1
        self._handled = 0
        self._stopped = False
        self._woken = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    def interrupt(self) -> None:
        """Make ``take`` return an empty list, now and from now on."""
        self._stopped = True
        self.wake()

    def wake(self) -> None:
        """Make a waiting ``take`` return an empty list, once."""
        self._woken.set()
        if self._subscription is not None:
            self._subscription.wake()

    async def count_pending(self) -> int | None:
        """Return the number of messages that were not handled at the last call of ``take``, or ``None`` without a consumer.

        A consumer whose reader does not call ``take`` is deleted by the broker after some time.
        """
        if self._subscription is None:
            return None
        try:
            info = await _api.consumer_info(self._bus, self._stream, self._consumer)
        except BusMissing:
            return None
        if info.name != self._consumer:
            return None
        return max(info.num_pending + info.delivered.consumer_seq - self._handled, 0)

    async def take(self, limit: int, *, after: int) -> list[Incoming]:
        """Return at least one and at most ``limit`` messages after the sequence ``after``.

        Waits for an unavailable broker. Returns an empty list after ``interrupt`` or ``wake``, and when nothing came for
        some seconds.
        """
        while not self._stopped:
            if self._woken.is_set():
                self._woken.clear()
                break
            try:
                return await self._take(limit, after)
            except (BusUnavailable, ConsumerGone) as error:
                log.info("%s reads again after %d: %s", self._name, after, error)
            await self._close()
            await self._pause()
        return []

    async def _take(self, limit: int, after: int) -> list[Incoming]:
        # What was returned before is handled.
        self._handled = self._expected - 1
        subscription = self._subscription or await self._open(after)
        batch = [message for _, message in await subscription.take(limit, wait_s=_CHECK_EVERY_S)]
        quiet = not batch and not self._woken.is_set()
        self._woken.clear()
        if [message.consumer_sequence for message in batch] != [
            *range(self._expected, self._expected + len(batch))
        ]:
            raise ConsumerGone(f"{self._consumer} skipped a message")
        self._expected += len(batch)
        if batch:
            self._bus.saw(self._stream, batch[-1].stream_sequence)
        if self._generation != self._bus.generation:
            raise ConsumerGone("the connection was re-established")
        if quiet:
            await self._check_for_missed(subscription, after)
        return [message for message in batch if message.stream_sequence > after]

    async def _open(self, after: int) -> PullSubscription:
        info = await _api.create_reader(
            self._bus,
            self._stream,
            self._filters,
            start=after + 1,
            inactive_s=_INACTIVE_S,
            headers_only=self._headers_only,
        )
        self._consumer, self._expected, self._handled = info.name, 1, 0
        self._generation = self._bus.generation
        subscription = PullSubscription(
            self._bus,
            stream=self._stream,
            consumer=info.name,
            depth=self._depth,
            ephemeral=True,
            pace=self._pace,
        )
        self._subscription = await subscription.__aenter__()
        return subscription

    async def _close(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        await subscription.__aexit__(None, None, None)
        try:
            await self._bus.send(f"$JS.API.CONSUMER.DELETE.{self._stream}.{self._consumer}", b"")
        except BusUnavailable:
            log.debug("reader %s is left to expire", self._consumer)

    async def _check_for_missed(self, subscription: PullSubscription, after: int) -> None:
        """Check after a silence whether there is really nothing new."""
        for subject in self._filters:
            unseen = await _api.next_message(self._bus, self._stream, subject, after + 1)
            if unseen is not None and not await subscription.has_any(within_s=_PAUSE_S):
                raise ConsumerGone(f"no delivery although {unseen.stream_sequence} was written")

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(_PAUSE_S):
                await self._woken.wait()
        except TimeoutError:
            return
