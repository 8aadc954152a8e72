"""Delivery of notifications to one receiver: signed requests, the meaning of responses, retries, dead letters and replays.

Redirects are never followed, so that a receiver cannot send Muster's requests elsewhere. Each request has a connection of its
own and one timeout for all of it, so that a receiver that sends a byte a minute does not block the others.
"""

from __future__ import annotations

import asyncio
import enum
import hashlib
import hmac
import logging
import ssl
import time
from collections.abc import Iterable

import aiohttp
import msgspec
from yarl import URL

from muster_bus import Bus, BusError, DeadLetters, Incoming, Replays
from muster_events.catalogue import JOBS_STREAM
from muster_service.logs import fields
from muster_service.metrics import Metrics
from muster_status_tracker.webhooks.cloud_events import CONTENT_TYPE
from muster_status_tracker.webhooks.receivers import BadReceivers, Receiver

log = logging.getLogger(__name__)

TIMESTAMP = "Muster-Timestamp"
SIGNATURE = "Muster-Signature"
_VERSION = "v1"
_CONCURRENT_REQUESTS = 8
_GONE = 410
_PERMANENT = frozenset({400, 413, 415, 422})
_BUCKETS_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800)
_DEAD_LETTER_PAUSE_S = 2.0
_NS = 1e9


class DeliveryResult(enum.StrEnum):
    """The meaning of a response for the notification."""

    DELIVERED = "delivered"
    RETRY = "retry"
    REJECTED = "rejected"
    GONE = "gone"


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a delivery: its last result, the reason, and the number of attempts."""

    result: DeliveryResult
    reason: str = ""
    attempts: int = 0


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """A CloudEvent to deliver; ``subject``, ``sequence`` and ``at_ns`` are those of the event that it reports."""

    job_id: str
    sequence: int
    subject: str
    at_ns: int
    body: bytes


def signature_headers(body: bytes, *, secrets: Iterable[bytes], at_s: int) -> dict[str, str]:
    """Return both headers: the time of sending (seconds since the epoch), and ``v1=<hex>`` for each secret, joined by commas.

    Each is the HMAC-SHA256 of ``<timestamp>.<body>``: the time is signed too, so that an old request cannot be replayed.
    """
    signed = str(at_s).encode() + b"." + body
    signatures = [f"{_VERSION}={hmac.new(secret, signed, hashlib.sha256).hexdigest()}" for secret in secrets]
    return {TIMESTAMP: str(at_s), SIGNATURE: ",".join(signatures)}


def result_of(status: int) -> DeliveryResult:
    """Return the meaning of a status. A redirect is not followed, so it delivers nothing."""
    if 200 <= status < 300:
        return DeliveryResult.DELIVERED
    if status == _GONE:
        return DeliveryResult.GONE
    return DeliveryResult.REJECTED if status in _PERMANENT else DeliveryResult.RETRY


def pause_after(attempts: int, receiver: Receiver, retry_after_s: float = 0.0) -> float:
    """Return the seconds until the next attempt: doubled each time, at least ``retry_after_s``, at most the longest pause."""
    doubled = receiver.first_pause_seconds * 2.0 ** min(attempts - 1, 30)
    return min(max(doubled, retry_after_s), receiver.longest_pause_seconds)


class WebhookMetrics:
    """Metrics of deliveries."""

    def __init__(self, metrics: Metrics) -> None:
        self.requests = metrics.counter(
            "muster_webhook_requests", "requests to receivers, by result", ("receiver", "result")
        )
        self.delays = metrics.histogram(
            "muster_webhook_delay_seconds",
            "from a change of phase until its delivery",
            ("receiver",),
            buckets=_BUCKETS_S,
        )
        self.pending = metrics.gauge(
            "muster_webhook_pending", "notifications neither delivered nor dead-lettered", ("receiver",)
        )
        self.dead_lettered = metrics.counter(
            "muster_webhook_dead_lettered", "notifications that could not be delivered", ("receiver",)
        )
        self.gone = metrics.gauge(
            "muster_webhook_gone", "1 after a receiver responded with 410", ("receiver",)
        )


class WebhookSender:
    """Sends notifications to one receiver, a few at a time; the caller keeps their order where it matters."""

    def __init__(self, receiver: Receiver, metrics: WebhookMetrics) -> None:
        self.receiver = receiver
        self.metrics = metrics
        self._url = URL(receiver.url, encoded=True)
        self._tls = (
            ssl.create_default_context(cafile=receiver.ca_file) if receiver.url.startswith("https") else True
        )
        self._concurrency = asyncio.Semaphore(_CONCURRENT_REQUESTS)
        self._gone = False
        metrics.gone.labels(receiver.name).set(0)
        metrics.pending.labels(receiver.name)
        metrics.delays.labels(receiver.name)
        metrics.dead_lettered.labels(receiver.name)
        for result in DeliveryResult:
            metrics.requests.labels(receiver.name, result.value)

    async def deliver(self, body: bytes) -> Delivery:
        """Retry until it is delivered, rejected, or the receiver's attempts are used up."""
        attempts = 0
        while True:
            attempts += 1
            result, reason, retry_after_s = await self._attempt(body, attempts)
            if result is not DeliveryResult.RETRY or attempts >= self.receiver.attempts:
                return Delivery(result=result, reason=reason, attempts=attempts)
            pause_s = pause_after(attempts, self.receiver, retry_after_s)
            log.warning(
                "webhook not delivered: %s",
                reason,
                extra=fields(receiver=self.receiver.name, attempts=attempts, retry_in_s=pause_s),
            )
            await asyncio.sleep(pause_s)

    async def deliver_once(self, body: bytes) -> str | None:
        """Deliver a dead letter in one attempt; returns the reason if it was not delivered."""
        result, reason, _ = await self._attempt(body, 1, ignore_gone=True)
        return None if result is DeliveryResult.DELIVERED else reason

    async def _attempt(
        self, body: bytes, attempts: int, *, ignore_gone: bool = False
    ) -> tuple[DeliveryResult, str, float]:
        async with self._concurrency:
            if self._gone and not ignore_gone:
                return DeliveryResult.GONE, "the receiver responded with 410 before", 0.0
            result, reason, retry_after_s = await self._send(body, attempts)
        self.metrics.requests.labels(self.receiver.name, result.value).inc()
        if result is DeliveryResult.GONE and not self._gone:
            self._gone = True
            self.metrics.gone.labels(self.receiver.name).set(1)
            log.error(
                "webhook receiver %s responded with 410: it gets no notifications until this service restarts",
                self.receiver.name,
            )
        return result, reason, retry_after_s

    async def _send(self, body: bytes, attempts: int) -> tuple[DeliveryResult, str, float]:
        receiver = self.receiver
        try:
            headers = {
                "Content-Type": CONTENT_TYPE,
                "User-Agent": "muster",
                "Muster-Try": str(attempts),
                **signature_headers(body, secrets=receiver.secrets(), at_s=int(time.time())),
            }
            timeout = aiohttp.ClientTimeout(total=receiver.timeout_seconds)
            async with (
                aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.post(
                    self._url, data=body, headers=headers, allow_redirects=False, ssl=self._tls
                ) as response,
            ):
                status = response.status
                retry_after = response.headers.get("Retry-After", "").strip()
        except TimeoutError:
            return DeliveryResult.RETRY, f"no response within {receiver.timeout_seconds:g} s", 0.0
        except (aiohttp.ClientError, BadReceivers, OSError, ValueError) as failure:
            return DeliveryResult.RETRY, f"{type(failure).__name__}: {failure}", 0.0
        redirect = "; redirects are not followed" if 300 <= status < 400 else ""
        retry_after_s = float(retry_after) if retry_after.isdigit() else 0.0
        return result_of(status), f"the receiver responded with {status}{redirect}", retry_after_s


class Deliveries:
    """Delivers or dead-letters the notifications of one receiver; ``pending`` is the gauge of those in this instance."""

    def __init__(self, *, bus: Bus, sender: WebhookSender) -> None:
        self._bus = bus
        self._sender = sender
        self._dead_letters = DeadLetters(bus)
        self._name = sender.receiver.name
        self._consumer = f"webhook-{self._name}"
        self.pending = sender.metrics.pending.labels(self._name)

    async def deliver(self, notification: Notification) -> None:
        """Deliver or dead-letter it; returns when either is durable."""
        delivery = await self._sender.deliver(notification.body)
        extra = fields(
            receiver=self._name,
            job_id=notification.job_id,
            sequence=notification.sequence,
            attempts=delivery.attempts,
        )
        match delivery.result:
            case DeliveryResult.DELIVERED:
                delay_s = time.time() - notification.at_ns / _NS
                self._sender.metrics.delays.labels(self._name).observe(delay_s)
                log.info("webhook delivered", extra=extra)
            case DeliveryResult.GONE:
                log.info("webhook dropped: %s", delivery.reason, extra=extra)
            case DeliveryResult.RETRY | DeliveryResult.REJECTED:
                await self._dead_letter(notification, delivery)
                self._sender.metrics.dead_lettered.labels(self._name).inc()
                log.error("webhook dead-lettered: %s", delivery.reason, extra=extra)
        self.pending.dec()

    async def replay(self) -> None:
        """Deliver again, once each, the dead letters that an operator replays; any instance may. Runs until cancelled."""
        requested = asyncio.Event()
        replays = Replays(
            bus=self._bus, dead_letters=self._dead_letters, consumer=self._consumer, wake=requested.set
        )
        async with replays:
            while True:
                await requested.wait()
                requested.clear()
                try:
                    while (request := await replays.next()) is not None:
                        message, dead_letter = request
                        failure = await self._sender.deliver_once(dead_letter.data)
                        await replays.done(message, dead_letter, failure)
                except BusError as error:
                    # The requester gets no response, and repeats the request.
                    log.warning("a replay failed: %s", error)

    async def _dead_letter(self, notification: Notification, delivery: Delivery) -> None:
        event = Incoming(
            subject=notification.subject,
            data=notification.body,
            headers={"content-type": CONTENT_TYPE},
            stream=JOBS_STREAM,
            stream_sequence=notification.sequence,
            delivered=delivery.attempts,
            timestamp_ns=notification.at_ns,
        )
        while True:
            try:
                return await self._dead_letters.put(event, self._consumer, delivery.reason)
            except BusError as error:
                log.warning("a notification cannot be dead-lettered yet: %s", error)
                await asyncio.sleep(_DEAD_LETTER_PAUSE_S)
