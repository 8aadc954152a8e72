"""Bringing events to one receiver: what its answers mean, and when an event is tried again."""

from __future__ import annotations

import asyncio
import enum
import logging
import time
from collections.abc import Callable

import msgspec

from muster_service.logs import fields
from muster_service.metrics import Metrics
from muster_status_tracker.webhooks.events import CONTENT_TYPE
from muster_status_tracker.webhooks.posting import Answer, NoAnswer, post, tls_of
from muster_status_tracker.webhooks.receivers import BadReceivers, Receiver
from muster_status_tracker.webhooks.signing import signature_headers

log = logging.getLogger(__name__)

_AT_ONCE = 8
_GONE = 410
_NEVER = frozenset({400, 413, 415, 422})
_TIMES_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800)


class Verdict(enum.StrEnum):
    """What an answer means for the event."""

    DELIVERED = "delivered"
    AGAIN = "again"
    REFUSED = "refused"
    GONE = "gone"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an event: its last verdict, why, and how often it was tried."""

    verdict: Verdict
    reason: str = ""
    tries: int = 0


def judge(status: int) -> Verdict:
    """What a status means. A redirect is not followed, so it delivers nothing."""
    if 200 <= status < 300:
        return Verdict.DELIVERED
    if status == _GONE:
        return Verdict.GONE
    return Verdict.REFUSED if status in _NEVER else Verdict.AGAIN


def pause_after(tries: int, receiver: Receiver, asked_s: float = 0.0) -> float:
    """Seconds until the next try: doubled each time, what the receiver asked for at least, the longest pause at most."""
    doubled = receiver.first_pause_seconds * 2.0 ** min(tries - 1, 30)
    return min(max(doubled, asked_s), receiver.longest_pause_seconds)


class CourierMeters:
    """What is counted of deliveries."""

    def __init__(self, metrics: Metrics) -> None:
        self.requests = metrics.counter(
            "muster_webhook_requests",
            "requests to receivers, by what the answer meant",
            ("receiver", "verdict"),
        )
        self.delays = metrics.histogram(
            "muster_webhook_delay_seconds",
            "from a change of phase until its receiver had it",
            ("receiver",),
            buckets=_TIMES_S,
        )
        self.waiting = metrics.gauge(
            "muster_webhook_waiting", "events read and not yet delivered or set aside", ("receiver",)
        )
        self.set_aside = metrics.counter(
            "muster_webhook_set_aside", "events that a receiver did not take", ("receiver",)
        )
        self.gone = metrics.gauge(
            "muster_webhook_gone", "1 where a receiver answered that it wants no more", ("receiver",)
        )


class Courier:
    """The way to one receiver. It takes a few events side by side; the caller keeps the order of those that have one."""

    def __init__(
        self, receiver: Receiver, meters: CourierMeters, clock: Callable[[], float] = time.time
    ) -> None:
        self.receiver = receiver
        self.meters = meters
        self._clock = clock
        self._address = receiver.address
        self._tls = tls_of(self._address, receiver.ca_file)
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._gone = False
        meters.gone.labels(receiver.name).set(0)

    async def deliver(self, body: bytes) -> Outcome:
        """Try until it is delivered, refused, or was tried as often as its receiver allows."""
        tries = 0
        while True:
            tries += 1
            verdict, reason, asked_s = await self._try(body, tries)
            if verdict is not Verdict.AGAIN or tries >= self.receiver.attempts:
                return Outcome(verdict=verdict, reason=reason, tries=tries)
            pause_s = pause_after(tries, self.receiver, asked_s)
            log.warning(
                "webhook not delivered: %s",
                reason,
                extra=fields(receiver=self.receiver.name, tries=tries, again_in_s=pause_s),
            )
            await asyncio.sleep(pause_s)

    async def try_once(self, body: bytes) -> str | None:
        """Try once more what was set aside; the reason where it was not delivered."""
        verdict, reason, _ = await self._try(body, 1, although_gone=True)
        return None if verdict is Verdict.DELIVERED else reason

    async def _try(
        self, body: bytes, tries: int, *, although_gone: bool = False
    ) -> tuple[Verdict, str, float]:
        async with self._turns:
            if self._gone and not although_gone:
                return Verdict.GONE, "its receiver wants no more", 0.0
            verdict, reason, asked_s = await self._send(body, tries)
        self.meters.requests.labels(self.receiver.name, verdict.value).inc()
        if verdict is Verdict.GONE and not self._gone:
            self._gone = True
            self.meters.gone.labels(self.receiver.name).set(1)
            log.error(
                "webhook receiver %s answered 410: it is told no more until this service is started again",
                self.receiver.name,
            )
        return verdict, reason, asked_s

    async def _send(self, body: bytes, tries: int) -> tuple[Verdict, str, float]:
        try:
            headers = {
                "Content-Type": CONTENT_TYPE,
                "User-Agent": "muster",
                "Muster-Try": str(tries),
                **signature_headers(body, secrets=self.receiver.secrets(), at_s=int(self._clock())),
            }
            answer = await post(
                self._address,
                body,
                headers=headers,
                timeout_s=self.receiver.timeout_seconds,
                tls=self._tls,
            )
        except (NoAnswer, BadReceivers, OSError) as failure:
            return Verdict.AGAIN, str(failure), 0.0
        return judge(answer.status), _reason(answer), answer.retry_after_s


def _reason(answer: Answer) -> str:
    if 300 <= answer.status < 400:
        return f"it answered {answer.status}; redirects are not followed"
    return f"it answered {answer.status}"
