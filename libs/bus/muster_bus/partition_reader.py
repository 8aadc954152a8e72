"""The ordered reader of a partition: every matching message, once, in order, across restarts of its owners.

A durable consumer alone cannot give that: messages that a dead owner had pulled are redelivered only after ``ack_wait``,
behind newer ones, and a deposed owner may still pull. The consumer is used to wake this instance and to store its position.
Order comes from the stream: each delivery carries the consumer's count, and gaps in it are read from the stream first. So
a takeover waits for nothing.

The owner's memory is rebuilt first: records, then the events after the low-water mark of the records, then new events.
Everything after that mark must be read; reading a little before it does no harm, missing one message does. It is computed from
acknowledgements and from the stream itself, never from a consumer's pending count, which may lag behind a message that was
just stored. A reader that rebuilds from records of another writer has no position to store, hence no durable consumer: it
follows the stream with an ordered consumer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

from muster_bus import _api
from muster_bus.batch_handler import BatchHandler, Handle
from muster_bus.connection import Bus
from muster_bus.dead_letters import DeadLetters, Replays, failure_of
from muster_bus.errors import BusUnavailable
from muster_bus.key_value import Entry, KeyValueStore
from muster_bus.messages import Incoming
from muster_bus.ordered_consumer import OrderedConsumer, StreamRange, read_range
from muster_bus.pull_subscription import TICK_S, PullPacer, PullSubscription
from muster_bus.work_queue import acknowledge, count_pending


async def low_water_mark(bus: Bus, stream: str, consumers: Sequence[str]) -> int:
    """Return the highest sequence up to which each of ``consumers`` has settled everything that it reads."""
    return min(await asyncio.gather(*(_settled(bus, stream, consumer) for consumer in consumers)))


async def acknowledged(bus: Bus, stream: str, consumer: str) -> int:
    """Return the sequence up to which ``consumer`` acknowledged."""
    return (await _api.consumer_info(bus, stream, consumer)).ack_floor.stream_seq


async def next_unread(bus: Bus, stream: str, filters: Sequence[str], position: int) -> int | None:
    """Return the first sequence after ``position`` that matches one of ``filters``, or ``None``."""
    found = await asyncio.gather(
        *(_api.next_message(bus, stream, subject, position + 1) for subject in filters)
    )
    return min((message.stream_sequence for message in found if message is not None), default=None)


async def _settled(bus: Bus, stream: str, consumer: str) -> int:
    # Read the end of the stream first: what is stored later will be read in any case.
    end = await bus.last_sequence(stream)
    info = await _api.consumer_info(bus, stream, consumer)
    floor = info.ack_floor.stream_seq
    unsettled = await next_unread(bus, stream, info.config.filters, floor)
    return max(floor, end) if unsettled is None else unsettled - 1


log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_POLL_S = 0.05
_IN_FLIGHT_S = 0.01
_ACKNOWLEDGE_EVERY_S = 0.25
_CHECK_EVERY_S = 1.0
_CHECK_LATER_EVERY_S = 5.0
_CHECK_AFTER_RECONNECT_S = 0.1
_CHECK_WITHOUT_CONSUMER_S = 0.25
_NEW_OWNER_S = 60.0
"""For so long after the start it is likely that an earlier owner still takes messages."""


async def _load_nothing(_: list[Entry]) -> None:
    return


async def _flush_nothing() -> None:
    return


class PartitionReader:
    """The messages of ``stream`` that match ``filters``, in order.

    ``records`` (those that match one of ``record_filters``) are passed to ``load`` once before the first message.
    ``record_writers`` names the durable consumers of the records' writer; reading continues from what they have settled, and
    ``consumer`` is only the name for dead letters. Without ``record_writers``, the durable consumer of that name, with
    ``ack="all"``, is the checkpoint. Under load messages are read every ``tick_s`` seconds: the longer, the cheaper.

    ``flush`` makes durable what ``handle`` keeps in memory: it is awaited before each acknowledgement, under load every
    ``flush_interval_s`` seconds. If it fails nothing is acknowledged, and it is called again.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        stream: str,
        consumer: str,
        filters: Sequence[str],
        handle: Handle,
        records: KeyValueStore | None = None,
        record_filters: Sequence[str] = (">",),
        record_writers: Sequence[str] = (),
        load: Callable[[list[Entry]], Awaitable[None]] = _load_nothing,
        batch: int = 256,
        tick_s: float = TICK_S,
        flush: Callable[[], Awaitable[None]] = _flush_nothing,
        flush_interval_s: float = _ACKNOWLEDGE_EVERY_S,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        self.caught_up = asyncio.Event()
        self.lost = 0
        self._bus = bus
        self._stream = stream
        self._durable = consumer
        self._filters = list(filters)
        self._records = records
        self._record_filters = list(record_filters)
        self._floors = list(record_writers)
        self._load = load
        self._batch = batch
        dead_letters = dead_letters or DeadLetters(bus)
        self._attempts = BatchHandler(consumer=consumer, handle=handle, dead_letters=dead_letters)
        self._source: PullSubscription | OrderedConsumer = (
            OrderedConsumer(
                bus,
                name=consumer,
                stream=stream,
                filters=self._filters,
                depth=2 * batch,
                pace=PullPacer(tick_s=tick_s),
            )
            if record_writers
            else PullSubscription(
                bus, stream=stream, consumer=consumer, depth=2 * batch, pace=PullPacer(tick_s=tick_s)
            )
        )
        self._replays = Replays(bus=bus, dead_letters=dead_letters, consumer=consumer, wake=self._source.wake)
        self._position = 0
        self._moved = asyncio.Event()
        self._last_delivery = (-1, -1)
        self._settle = flush
        self._settle_s = flush_interval_s
        self._settling = PullPacer(tick_s=flush_interval_s)
        self._unacknowledged: Incoming | None = None
        self._acknowledging: asyncio.Task[None] | None = None
        self._acknowledge_at = 0.0
        self._began_at = 0.0
        self._check_at = 0.0
        self._compared = 0
        self._gapless = False
        self._stopping = False
        self._has_rebuilt = False

    @property
    def position(self) -> int:
        """Every matching message up to this sequence is handled."""
        return self._position

    def stop(self) -> None:
        """Finish the current batch, then let ``run`` return."""
        self._stopping = True
        self._source.interrupt()

    async def run(self) -> None:
        """Rebuild, catch up, and follow until ``stop``; waits for an unavailable broker."""
        forget = self._bus.on_reconnect(self._check_soon)
        try:
            with self._bus.reading(self._durable, self._count_pending):
                await self._run()
        finally:
            forget()
            if self._acknowledging is not None:
                self._acknowledging.cancel()

    async def _run(self) -> None:
        async with self._source, self._replays:
            await self._rebuild()
            await self._catch_up()
            self._began_at = asyncio.get_running_loop().time()
            self._check_at = self._began_at + _CHECK_EVERY_S
            await self._follow()

    async def _count_pending(self) -> int | None:
        """Return how many stored messages are not handled, or not acknowledged; ``None`` before it is known what is read."""
        if isinstance(self._source, OrderedConsumer):
            pending = await self._source.count_pending()
        else:
            pending = await count_pending(self._bus, self._stream, self._durable)
        if pending is None and self._has_rebuilt:
            return await _api.count_after(self._bus, self._stream, self._filters, self._position)
        return pending

    async def wait_for(self, sequence: int, timeout_s: float) -> None:
        """Return when every matching message up to ``sequence`` is handled; raises ``TimeoutError``.

        A sequence that the stream has not reached yet is waited for, too.
        """
        async with asyncio.timeout(timeout_s):
            # Most waits are for a message in flight: a short wait saves a request to the broker.
            if await self.reaches(sequence, _IN_FLIGHT_S):
                return
            while not await self._has_handled(sequence):
                if await self.reaches(sequence, _POLL_S):
                    return

    async def wait_current(self, timeout_s: float) -> bool:
        """Wait until every matching message that is stored now is handled; return whether that was in time."""
        try:
            async with asyncio.timeout(timeout_s):
                last = await self._bus.last_sequence(self._stream)
                if not await self._has_handled(last):
                    await self.wait_for(last, timeout_s)
        except (TimeoutError, BusUnavailable):
            return False
        return True

    async def reaches(self, sequence: int, within_s: float) -> bool:
        """Return whether a message with this or a later sequence is handled within this time.

        Cheaper than ``wait_for`` if the message is known to be in flight.
        """
        give_up = asyncio.get_running_loop().time() + within_s
        while not self.caught_up.is_set() or self._position < sequence:
            waiting = self._moved
            try:
                async with asyncio.timeout_at(give_up):
                    await waiting.wait()
            except TimeoutError:
                return False
        return True

    async def _has_handled(self, sequence: int) -> bool:
        if not self.caught_up.is_set():
            return False
        position = self._position
        if position >= sequence:
            return True
        try:
            if await self._bus.last_sequence(self._stream) < sequence:
                return False
            unread = await next_unread(self._bus, self._stream, self._filters, position)
        except BusUnavailable:
            return False
        return unread is None or unread > sequence

    async def _rebuild(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                # The low-water mark before the records: a write between the two is then read twice rather than not at
                # all.
                floor = await self._floor()
                entries = await self._entries()
                break
            except BusUnavailable as error:
                log.warning("%s cannot rebuild yet: %s", self._durable, error)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        await self._load(entries)
        self._advance(floor)
        self._has_rebuilt = True

    async def _entries(self) -> list[Entry]:
        if self._records is None:
            return []
        found = await asyncio.gather(*map(self._records.entries, self._record_filters))
        return [entry for entries in found for entry in entries]

    async def _floor(self) -> int:
        if self._floors:
            return await low_water_mark(self._bus, self._stream, self._floors)
        return await acknowledged(self._bus, self._stream, self._durable)

    async def _catch_up(self) -> None:
        state = await self._state()
        lost = state.first_seq - 1 - self._position
        if self._position and lost > 0:
            self.lost += lost
            log.error("%s: up to %d messages expired before they were read", self._durable, lost)
        await self._read(state.last_seq, live=False)
        await self._try_to_settle()
        self.caught_up.set()
        self._advance(max(self._position, state.last_seq))

    async def _state(self) -> _api.StreamState:
        while True:
            try:
                return await _api.stream_state(self._bus, self._stream)
            except BusUnavailable as error:
                log.warning("%s cannot catch up yet: %s", self._durable, error)
                await asyncio.sleep(_LONGEST_PAUSE_S)

    async def _read(self, through: int, *, live: bool) -> None:
        """Handle the messages of the stream after the position, up to and including ``through``."""
        stretch = StreamRange(
            stream=self._stream, filters=self._filters, after=self._position, through=through
        )
        async with aclosing(read_range(self._bus, stretch, batch=self._batch)) as chunks:
            async for chunk in chunks:
                await self._handle(chunk, live=live)

    async def _follow(self) -> None:
        while not self._stopping:
            while (replay := await self._replays.next()) is not None:
                request, dead_letter = replay
                error = (
                    await self._attempts.try_once(dead_letter.to_incoming()) or await self._try_to_settle()
                )
                await self._replays.done(request, dead_letter, error)
            if isinstance(self._source, OrderedConsumer):
                await self._take_written(self._source)
            else:
                await self._take_delivered(self._source)
        await self._acknowledge()
        if self._acknowledging is not None:
            await self._acknowledging

    async def _take_written(self, ordered: OrderedConsumer) -> None:
        batch = await ordered.take(self._batch, after=self._position)
        if batch:
            await self._handle(batch, live=True)

    async def _take_delivered(self, subscription: PullSubscription) -> None:
        now = asyncio.get_running_loop().time()
        if subscription.is_refused:
            # The stream has the messages although the consumer is gone.
            self._check_at = min(self._check_at, now + _CHECK_WITHOUT_CONSUMER_S)
        waits = (self._until_acknowledged(), max(0.0, self._check_at - now))
        deliveries = await subscription.take(
            self._batch, wait_s=min(wait_s for wait_s in waits if wait_s is not None)
        )
        if deliveries:
            await self._absorb(deliveries)
            self._unacknowledged = deliveries[-1][1]
        elif asyncio.get_running_loop().time() >= self._check_at:
            await self._read_taken_by_others(subscription)
        if self._until_acknowledged() == 0:
            await self._acknowledge()

    async def _read_taken_by_others(self, subscription: PullSubscription) -> None:
        """Read from the stream what another instance or connection has taken from the consumer, if nothing comes after it.

        An owner that was paused takes messages until it finds that it has lost the partition.
        """
        now = asyncio.get_running_loop().time()
        is_new = now < self._began_at + _NEW_OWNER_S
        self._check_at = now + (_CHECK_EVERY_S if is_new else _CHECK_LATER_EVERY_S)
        try:
            end = await self._bus.last_sequence(self._stream)
            if end <= max(self._position, self._compared):
                return
            unread = await next_unread(self._bus, self._stream, self._filters, self._position)
            if unread is None:
                self._compared = end
            elif not await subscription.has_any(within_s=_POLL_S):
                log.info("%s: %d is not delivered, and read from the stream", self._durable, unread)
                await self._read(await self._bus.last_sequence(self._stream), live=True)
        except BusUnavailable as error:
            log.info("%s cannot be compared with the stream: %s", self._durable, error)
            self._check_at = now + _CHECK_EVERY_S

    def _check_soon(self) -> None:
        """Compare with the stream: deliveries that were in flight on the lost connection come again only after ``ack_wait``."""
        self._check_at = asyncio.get_running_loop().time() + _CHECK_AFTER_RECONNECT_S
        self._source.wake()

    async def _absorb(self, deliveries: list[tuple[int, Incoming]]) -> None:
        """Handle new deliveries, and what is missing between them."""
        fresh: list[Incoming] = []
        expected = self._position + 1
        for generation, incoming in deliveries:
            if (generation, incoming.consumer_sequence - 1) != self._last_delivery:
                self._gapless = False
            self._last_delivery = (generation, incoming.consumer_sequence)
            if incoming.stream_sequence < expected:
                self._bus.metrics.redelivered(self._durable)
                continue
            if not self._gapless and incoming.stream_sequence > expected:
                await self._handle(fresh, live=True)
                fresh = []
                await self._read(incoming.stream_sequence - 1, live=True)
            self._gapless = True
            fresh.append(incoming)
            expected = incoming.stream_sequence + 1
        await self._handle(fresh, live=True)

    async def _handle(self, batch: list[Incoming], *, live: bool) -> None:
        if batch:
            await self._attempts.handle(batch, live=live)
            self._advance(batch[-1].stream_sequence)

    def _advance(self, position: int) -> None:
        self._position = position
        self._bus.saw(self._stream, position)
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _until_acknowledged(self) -> float | None:
        """Return the seconds until an acknowledgement is due; None if there is nothing to acknowledge.

        An acknowledgement covers all earlier ones and the broker writes each to disk, so under load they are few. After a
        crash unacknowledged messages are read again, which every handler tolerates anyway.
        """
        if self._unacknowledged is None or self._acknowledging is not None:
            return None
        return max(0.0, self._acknowledge_at - asyncio.get_running_loop().time())

    async def _acknowledge(self) -> None:
        if self._unacknowledged is None:
            return
        now = asyncio.get_running_loop().time()
        self._acknowledge_at = self._settling.spend(now)
        if await self._try_to_settle() is not None:
            self._acknowledge_at = max(self._acknowledge_at, now + self._settle_s)
            return
        if self._acknowledging is not None:
            await self._acknowledging
        settled, self._unacknowledged = self._unacknowledged, None
        # Beside the reading: a broker that was restarted does not answer for messages that it does not wait for.
        self._acknowledging = asyncio.create_task(self._send_acknowledgement(settled))
        self._acknowledging.add_done_callback(self._acknowledged)

    async def _send_acknowledgement(self, settled: Incoming) -> None:
        try:
            await acknowledge(self._bus, settled)
        except BusUnavailable as error:
            # The next acknowledgement covers this one.
            log.debug("%s could not acknowledge: %s", self._durable, error)

    def _acknowledged(self, _: asyncio.Task[None]) -> None:
        self._acknowledging = None
        if self._unacknowledged is not None:
            self._source.wake()

    async def _try_to_settle(self) -> str | None:
        """Make handled messages durable; returns the reason of a failure."""
        try:
            await self._settle()
        except Exception as error:
            log.warning("%s cannot be settled yet: %s", self._durable, error)
            return failure_of(error)
        return None
