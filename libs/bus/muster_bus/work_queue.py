"""Work queue: messages of a durable consumer, shared by instances, handled concurrently, redelivered until acknowledged.

Acknowledgements are no fence: the broker accepts one from a deposed instance, too.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from muster_bus import _api
from muster_bus.connection import Bus
from muster_bus.dead_letters import DeadLetter, DeadLetters, Replays, failure_of
from muster_bus.errors import BusError, BusMissing, BusUnavailable, Poison
from muster_bus.messages import Incoming
from muster_bus.pull_subscription import PullPacer, PullSubscription

_NS = 1_000_000_000


async def acknowledge(bus: Bus, incoming: Incoming) -> None:
    """Acknowledge the message and wait for the broker's confirmation; raises ``BusUnavailable`` if it is unknown."""
    await bus.request(incoming.reply, b"+ACK")


async def count_pending(bus: Bus, stream: str, consumer: str) -> int | None:
    """Return how many messages a durable consumer has not delivered or not got acknowledged; ``None`` if it is missing."""
    try:
        info = await _api.consumer_info(bus, stream, consumer)
    except BusMissing:
        return None
    return info.num_pending + info.num_ack_pending


async def negative_ack(bus: Bus, incoming: Incoming, *, delay_s: float) -> None:
    """Request redelivery, not before ``delay_s`` seconds."""
    order = b"-NAK"
    if delay_s > 0:
        order += b" " + json.dumps({"delay": int(delay_s * _NS)}).encode()
    await bus.send(incoming.reply, order)


async def in_progress(bus: Bus, incoming: Incoming) -> None:
    """Report progress: the message's ack wait restarts."""
    await bus.send(incoming.reply, b"+WPI")


log = logging.getLogger(__name__)

_PROGRESS_EVERY_S = 1.5
_COLLECT_EVERY_S = 30.0
_STORED_WITHIN_S = 5.0
_RETRY_S = 0.2
_BACK_OFF_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_DRAIN_S = 10.0
_MAX_DELIVER = 5
_SHARE_AT_A_TIME = 4
"""Messages are requested when there is capacity for a quarter of those in progress: requesting each alone costs as much as handling it."""

Handler = Callable[[Incoming], Awaitable[None]]


class WorkQueue:
    """One instance's share of a durable consumer with explicit acknowledgements.

    A message is acknowledged after ``handler`` returned. If it raises, the message is redelivered with back-off, and
    dead-lettered at ``max_deliver``; ``Poison`` dead-letters it at once; ``BusUnavailable`` never counts. ``handler``
    must tolerate repeated messages.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        stream: str,
        consumer: str,
        handler: Handler,
        concurrency: int = 16,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        self._bus = bus
        self._stream = stream
        self._durable = consumer
        self._handler = handler
        self._concurrency = concurrency
        self._max_deliver: int | None = None
        self._dead_letters = dead_letters or DeadLetters(bus)
        self._subscription = PullSubscription(
            bus, stream=stream, consumer=consumer, depth=concurrency, pace=PullPacer()
        )
        self._replays = Replays(
            bus=bus, dead_letters=self._dead_letters, consumer=consumer, wake=self._subscription.wake
        )
        self._running: dict[asyncio.Task[None], Incoming] = {}
        self._replaying: set[asyncio.Task[None]] = set()
        self._collect_at = 0.0
        self._expected_until = 0.0
        self._stopping = False

    def stop(self) -> None:
        """Take no more messages; ``run`` returns when the current ones are finished."""
        self._stopping = True
        self._subscription.interrupt()

    async def run(self) -> None:
        """Handle messages until ``stop``; when cancelled, current ones are returned for another instance."""
        reporting = asyncio.create_task(self._report_progress())
        advisory = self._dead_letters.advisory_subject(self._stream, self._durable)
        hint = await self._bus.subscribe(advisory, self._expect_advisory)
        try:
            with self._bus.reading(self._durable, self._count_pending):
                async with self._subscription, self._replays:
                    await self._take_turns()
                await self._drain()
        finally:
            reporting.cancel()
            await hint.close()
            await self._return_messages()

    async def _count_pending(self) -> int | None:
        return await count_pending(self._bus, self._stream, self._durable)

    async def _take_turns(self) -> None:
        while not self._stopping:
            await self._collect_advisories()
            while (replay := await self._replays.next()) is not None:
                replaying = asyncio.create_task(self._replay(*replay))
                self._replaying.add(replaying)
                replaying.add_done_callback(self._replaying.discard)
            free = self._concurrency - len(self._running)
            if free * _SHARE_AT_A_TIME < self._concurrency:
                await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
                continue
            wait_s = max(self._collect_at - asyncio.get_running_loop().time(), 0.0)
            for _, incoming in await self._subscription.take(free, depth=free, wait_s=wait_s):
                task = asyncio.create_task(self._handle(incoming))
                self._running[task] = incoming
                task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s could not settle a message", self._durable, exc_info=error)
        self._subscription.wake()

    async def _handle(self, incoming: Incoming) -> None:
        if incoming.delivered > 1:
            self._bus.metrics.redelivered(self._durable)
        try:
            await self._call_stored(incoming)
        except Poison as poison:
            await self._dead_letter_(incoming, poison.reason)
        except BusUnavailable:
            await self._put_back(incoming, _BACK_OFF_S[-1])
        except Exception as error:
            await self._failed(incoming, error)
        else:
            await self._acknowledge(incoming)

    async def _call_stored(self, incoming: Incoming) -> None:
        """Call the handler; for an unreadable message again with what the stream has, if the delivery was damaged."""
        try:
            await self._call(incoming)
        except Poison:
            stored = await self._dead_letters.stored_version(incoming)
            if stored is None:
                raise
            await self._call(stored)

    async def _call(self, incoming: Incoming) -> None:
        """Call the handler; without the bus the message is held here, since a redelivery would count."""
        pauses = iter(_BACK_OFF_S)
        while True:
            try:
                await self._handler(incoming)
            except BusUnavailable as error:
                log.warning("%s waits at message %d: %s", self._durable, incoming.stream_sequence, error)
            else:
                return
            await asyncio.sleep(next(pauses, _BACK_OFF_S[-1]))

    async def _failed(self, incoming: Incoming, error: Exception) -> None:
        log.warning(
            "%s failed at message %d (delivery %d)",
            self._durable,
            incoming.stream_sequence,
            incoming.delivered,
            exc_info=error,
        )
        if incoming.delivered >= await self._limit():
            await self._dead_letter_(incoming, failure_of(error))
        else:
            await self._put_back(incoming, _BACK_OFF_S[min(incoming.delivered, len(_BACK_OFF_S)) - 1])

    async def _limit(self) -> int:
        """After how many deliveries a message is dead-lettered: the consumer's limit, before the broker drops it."""
        if self._max_deliver is None:
            try:
                declared = (
                    await _api.consumer_info(self._bus, self._stream, self._durable)
                ).config.max_deliver
            except BusError:
                return _MAX_DELIVER
            self._max_deliver = declared if declared > 0 else _MAX_DELIVER
        return self._max_deliver

    async def _dead_letter_(self, incoming: Incoming, reason: str) -> None:
        try:
            await self._dead_letters.put(incoming, self._durable, reason)
        except BusError as error:
            log.warning("message %d could not be dead-lettered yet: %s", incoming.stream_sequence, error)
            await self._put_back(incoming, _BACK_OFF_S[-1])
            return
        await self._acknowledge(incoming)

    async def _acknowledge(self, incoming: Incoming) -> None:
        try:
            await acknowledge(self._bus, incoming)
        except BusUnavailable as error:
            log.info("message %d will be redelivered: %s", incoming.stream_sequence, error)

    async def _put_back(self, incoming: Incoming, delay_s: float) -> None:
        with suppress(BusUnavailable):
            await negative_ack(self._bus, incoming, delay_s=delay_s)

    async def _replay(self, request: Incoming, dead_letter: DeadLetter) -> None:
        error: str | None = None
        try:
            await self._handler(dead_letter.to_incoming())
        except Poison as poison:
            error = poison.reason
        except Exception as failure:
            error = failure_of(failure)
        with suppress(BusUnavailable):
            await self._replays.done(request, dead_letter, error)

    async def _report_progress(self) -> None:
        """Report progress on the current messages."""
        while True:
            await asyncio.sleep(_PROGRESS_EVERY_S)
            for incoming in list(self._running.values()):
                with suppress(BusUnavailable):
                    await in_progress(self._bus, incoming)

    def _expect_advisory(self, _: Incoming) -> None:
        self._collect_at = 0.0
        self._expected_until = asyncio.get_running_loop().time() + _STORED_WITHIN_S
        self._subscription.wake()

    async def _collect_advisories(self) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._collect_at:
            return
        # An advisory may arrive before it is stored.
        self._collect_at = now + (_RETRY_S if now < self._expected_until else _COLLECT_EVERY_S)
        try:
            if await self._dead_letters.collect_advisories(self._stream, self._durable):
                self._expected_until = 0.0
        except BusError as error:
            log.debug("advisories are not read: %s", error)

    async def _drain(self) -> None:
        if self._running:
            await asyncio.wait(list(self._running), timeout=_DRAIN_S)

    async def _return_messages(self) -> None:
        left = dict(self._running)
        for task in (*left, *self._replaying):
            task.cancel()
        for incoming in [*left.values(), *self._subscription.delivered()]:
            await self._put_back(incoming, 0.0)
