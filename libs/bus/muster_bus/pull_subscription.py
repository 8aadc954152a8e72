"""Pull subscription: overlapping requests, an inbox of its own, heartbeats to detect silence, and pacing under load.

The client library's ``fetch`` can lose a request, and does not repeat a pull after a reconnect; here a lost request is
detected by a new connection, by its own expiry, or by missing heartbeats, whichever is first.

A message that is read alone costs its reader and the broker ten times what it costs in a batch: a wake-up, a socket write, a
commit. At a few messages per second that does not matter and each is read as it arrives. At hundreds it dominates; a paced
subscription that woke up often leaves messages in the stream for a moment and reads them together.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from random import random
from secrets import token_hex
from types import TracebackType
from typing import Self

import msgspec

from muster_bus.connection import Bus, Subscription
from muster_bus.errors import BusUnavailable
from muster_bus.messages import DESCRIPTION, STATUS, Incoming

log = logging.getLogger(__name__)

_BURST = 8
TICK_S = 0.025
"""The default time that messages gather, in seconds."""

_PHASE = random()  # noqa: S311 - no secret
"""All readers of a process wake at the same ticks, so that they work together; other processes do not."""


class PullPacer:
    """A budget of reads: ``burst`` at once, and one more for every tick (``tick_s`` seconds)."""

    def __init__(self, *, burst: int = _BURST, tick_s: float = TICK_S) -> None:
        self._most = float(burst)
        self._tick_s = tick_s
        self._left = self._most
        self._counted_at = 0.0

    def spend(self, now: float) -> float:
        """Use one read at ``now`` (seconds of the loop's clock); returns when the next one is available."""
        gained = (now - self._counted_at) / self._tick_s
        self._left = max(min(self._left + gained, self._most) - 1, 0.0)
        self._counted_at = now
        return now if self._left >= 1 else self._tick_after(now)

    def _tick_after(self, now: float) -> float:
        return (math.floor(now / self._tick_s - _PHASE) + 1 + _PHASE) * self._tick_s


_EXPIRES_S = 30.0
_HEARTBEAT_S = 0.5
_SILENCE_S = 3 * _HEARTBEAT_S
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0
_NS = 1_000_000_000

_HEARTBEAT = "100"
_NO_RESPONDERS = "503"
_CONFLICT = "409"


class ConsumerGone(Exception):
    """The consumer no longer exists."""


class PullSubscription:
    """Takes the messages of one consumer, in order of delivery to this instance.

    At most ``depth`` messages are requested or held at a time. A missing durable consumer is waited for; with
    ``ephemeral`` its loss raises ``ConsumerGone``. Without a ``pace`` the broker delivers every message as it is written;
    with one only while messages are few.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        stream: str,
        consumer: str,
        depth: int,
        ephemeral: bool = False,
        pace: PullPacer | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._bus = bus
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._consumer = consumer
        self._depth = depth
        self._ephemeral = ephemeral
        self._pace = pace
        self._clock = clock or asyncio.get_running_loop().time
        self._gathering = False
        self._arriving: str | None = None
        self._inbox = f"{bus.inbox_prefix}.{token_hex(11)}"
        self._delivered: deque[tuple[int, Incoming]] = deque()
        self._open: dict[str, int] = {}
        self._requested = 0
        self._generation = -1
        self._last_activity = 0.0
        self._not_before = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self._gone = False
        self._interrupted = False
        self._woken = False
        self._changed = asyncio.Event()
        self._subscription: Subscription | None = None
        self._remove_reconnect_callback = bus.on_reconnect(self._changed.set)

    async def __aenter__(self) -> Self:
        self._subscription = await self._bus.subscribe(f"{self._inbox}.*", self._receive, flush=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove_reconnect_callback()
        if self._subscription is not None:
            # Messages in flight are received, so that the owner can return them for another instance.
            await self._subscription.drain()

    @property
    def is_refused(self) -> bool:
        """Whether the broker refuses requests, for example because the consumer was deleted."""
        return self._pause_s > _FIRST_PAUSE_S

    def interrupt(self) -> None:
        """Make ``take`` return an empty list, now and from now on."""
        self._interrupted = True
        self._changed.set()

    def wake(self) -> None:
        """Make a waiting ``take`` return an empty list, once."""
        self._woken = True
        self._changed.set()

    def delivered(self) -> list[Incoming]:
        """Return the messages that were delivered and not taken."""
        return [incoming for _, incoming in self._delivered]

    async def take(
        self, limit: int, *, depth: int | None = None, wait_s: float | None = None
    ) -> list[tuple[int, Incoming]]:
        """Return at least one and at most ``limit`` messages, each with the number of the connection that delivered it.

        With ``depth`` no more than that is requested, and nothing ahead of the next call.

        Returns an empty list after ``interrupt`` or ``wake``, or when nothing came for ``wait_s`` seconds. Raises
        ``ConsumerGone`` for an ephemeral consumer.
        """
        if depth is not None:
            self._depth = depth
        if not await self.has_any(within_s=wait_s):
            return []
        count = min(limit, len(self._delivered))
        if self._pace is not None:
            self._spend(self._pace, left=self._delivered[-1][1].pending)
        elif depth is None:
            # Requested before taking: a cancellation during the request must not lose messages.
            await self._request(self._clock(), taking=count)
        return [self._delivered.popleft() for _ in range(count)]

    async def has_any(self, *, within_s: float | None) -> bool:
        """Return whether a message is held or arrives within this time (``None``: no limit)."""
        give_up = None if within_s is None else self._clock() + within_s
        while not self._delivered or self._is_arriving():
            woken, self._woken = self._woken, False
            if self._interrupted or woken or (give_up is not None and self._clock() >= give_up):
                return False
            if self._gone and not self._delivered:
                raise ConsumerGone(self._consumer)
            now = self._clock()
            await self._request(now)
            await self._wait(now, give_up)
        return True

    async def _wait(self, now: float, give_up: float | None) -> None:
        # The same clock reading decides whether to request and how long to wait: with a later one, it would wait without
        # a request.
        until = self._not_before if self._not_before > now else now + _SILENCE_S
        try:
            async with asyncio.timeout_at(until if give_up is None else min(until, give_up)):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()

    def _spend(self, pace: PullPacer, *, left: int) -> None:
        """Receive nothing before the next tick, unless enough has gathered; then request all of it."""
        now = self._clock()
        next_turn = pace.spend(now)
        self._gathering = next_turn > now
        if left < self._depth:
            self._not_before = max(self._not_before, next_turn)

    def _is_arriving(self) -> bool:
        """Return whether more of the gathered messages are in flight; a broker's status message ends them."""
        return (
            self._arriving is not None and self._arriving in self._open and len(self._delivered) < self._depth
        )

    async def _request(self, now: float, taking: int = 0) -> None:
        """Keep enough requested; drop requests that the broker has dropped."""
        if self._generation != self._bus.generation:
            self._generation = self._bus.generation
            self._open.clear()
        elif (
            self._open
            and now - self._last_activity > _SILENCE_S
            and (not self._delivered or self._is_arriving())
        ):
            self._open.clear()
        missing = self._depth - len(self._delivered) + taking - sum(self._open.values())
        if missing < max(1, self._depth // 2) or now < self._not_before or not self._bus.connected:
            return
        if self._pace is not None and self._open:
            return
        self._requested += 1
        number = str(self._requested)
        request: dict[str, int | bool]
        if self._gathering:
            self._gathering = False
            self._arriving = number
            request = {"batch": missing, "no_wait": True}
        else:
            missing = missing if self._pace is None else 1
            request = {
                "batch": missing,
                "expires": int(_EXPIRES_S * _NS),
                "idle_heartbeat": int(_HEARTBEAT_S * _NS),
            }
        self._open[number] = missing
        self._last_activity = now
        try:
            await self._bus.send(self._subject, msgspec.json.encode(request), reply=f"{self._inbox}.{number}")
        except BusUnavailable:
            self._open.pop(number, None)

    def _receive(self, incoming: Incoming) -> None:
        self._last_activity = self._clock()
        if incoming.stream:
            self._delivered.append((self._bus.generation, incoming))
            self._serve_oldest()
            self._pause_s = _FIRST_PAUSE_S
            self._changed.set()
            return
        status = incoming.headers.get(STATUS, "")
        if status == _HEARTBEAT:
            self._pause_s = _FIRST_PAUSE_S
            return
        self._open.pop(incoming.subject.rpartition(".")[2], None)
        if status in {_NO_RESPONDERS, _CONFLICT}:
            self._back_off(status, incoming.headers.get(DESCRIPTION, ""))
        self._changed.set()

    def _serve_oldest(self) -> None:
        """The broker serves requests in order, so a message counts against the oldest."""
        for number, remaining in self._open.items():
            if remaining > 1:
                self._open[number] = remaining - 1
            else:
                del self._open[number]
            return

    def _back_off(self, status: str, description: str) -> None:
        if self._ephemeral and (status == _NO_RESPONDERS or "deleted" in description.lower()):
            self._gone = True
            return
        log.log(
            logging.WARNING if self._pause_s >= _LONGEST_PAUSE_S else logging.DEBUG,
            "%s cannot be pulled from: %s %s",
            self._consumer,
            status,
            description,
        )
        if not self.is_refused:
            # Its reader may read the stream instead.
            self._woken = True
        self._not_before = self._clock() + self._pause_s
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
