"""Where an event ends up: with its receiver, or set aside for a person who can have it sent again."""

from __future__ import annotations

import asyncio
import logging
import time

import msgspec

from muster_bus import Bus, BusError, DeadLetters, Incoming, Replays
from muster_events.catalogue import JOBS_STREAM
from muster_service.logs import fields
from muster_status_tracker.webhooks.courier import Courier, Verdict
from muster_status_tracker.webhooks.events import CONTENT_TYPE

log = logging.getLogger(__name__)

_PAUSE_S = 2.0
_NS = 1e9


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """An event on its way; ``subject``, ``sequence`` and ``at_ns`` are those of the event that it tells of."""

    job_id: str
    sequence: int
    subject: str
    at_ns: int
    body: bytes


class Desk:
    """One receiver's events in this copy, of all partitions."""

    def __init__(self, *, bus: Bus, courier: Courier) -> None:
        self._bus = bus
        self._courier = courier
        self._letters = DeadLetters(bus)
        self._name = courier.receiver.name
        self._reader = courier.receiver.reader

    def take(self) -> None:
        """Count an event that waits to be told."""
        self._courier.meters.waiting.labels(self._name).inc()

    def withdraw(self, count: int) -> None:
        """Count events that this copy does not tell after all."""
        self._courier.meters.waiting.labels(self._name).dec(count)

    async def bring(self, parcel: Parcel) -> None:
        """Deliver it or set it aside; returns when either is done for good."""
        outcome = await self._courier.deliver(parcel.body)
        told = fields(
            receiver=self._name, job_id=parcel.job_id, sequence=parcel.sequence, tries=outcome.tries
        )
        match outcome.verdict:
            case Verdict.DELIVERED:
                self._courier.meters.delays.labels(self._name).observe(time.time() - parcel.at_ns / _NS)
                log.info("webhook delivered", extra=told)
            case Verdict.GONE:
                log.info("webhook dropped: %s", outcome.reason, extra=told)
            case Verdict.AGAIN | Verdict.REFUSED:
                await self._set_aside(parcel, outcome.reason, outcome.tries)
                self._courier.meters.set_aside.labels(self._name).inc()
                log.error("webhook set aside: %s", outcome.reason, extra=told)
        self.withdraw(1)

    async def replay(self) -> None:
        """Send again, once each, what an operator asks for; any copy may. Runs until cancelled."""
        asked_for = asyncio.Event()
        replays = Replays(bus=self._bus, letters=self._letters, durable=self._reader, wake=asked_for.set)
        async with replays:
            while True:
                await asked_for.wait()
                asked_for.clear()
                try:
                    await self._answer(replays)
                except BusError as error:
                    # Who asked hears nothing, and asks again.
                    log.warning("a replay was not answered: %s", error)

    async def _answer(self, replays: Replays) -> None:
        while (asked := await replays.next()) is not None:
            request, letter = asked
            await replays.done(request, letter, await self._courier.try_once(letter.data))

    async def _set_aside(self, parcel: Parcel, reason: str, tries: int) -> None:
        event = Incoming(
            subject=parcel.subject,
            data=parcel.body,
            headers={"content-type": CONTENT_TYPE},
            stream=JOBS_STREAM,
            stream_sequence=parcel.sequence,
            delivered=tries,
            timestamp_ns=parcel.at_ns,
        )
        while True:
            try:
                await self._letters.put(event, self._reader, reason)
            except BusError as error:
                log.warning("an event cannot be set aside yet: %s", error)
                await asyncio.sleep(_PAUSE_S)
            else:
                return
