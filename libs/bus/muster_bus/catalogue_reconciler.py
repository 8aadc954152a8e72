"""Streams, buckets and durable consumers that are deleted under a service are created again.

A service creates only streams that it has seen, with the configuration that they had: sizes are decided when the bus is
provisioned. A stream's sequences go on from the time in microseconds, which is beyond those of the deleted one, so that what
is known of it stays older than what is stored from now on. What it contained is lost; the owner of a bucket stores its
content again. A consumer goes on from its last known position, or from the beginning of the stream: some messages are
delivered again, none is missed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from muster_bus import _api
from muster_bus.connection import Bus, Subscription
from muster_bus.errors import BusError, BusMissing, BusRejected, BusUnavailable
from muster_bus.messages import Incoming
from muster_bus.provision import ConsumerSpec, consumer_config

log = logging.getLogger(__name__)

_CHECK_EVERY_S = 5.0
_RETRY_S = 1.0
_SETTLE_S = 0.05
"""An advisory of a deletion may arrive before the deletion is complete."""

_IN_USE = frozenset({10058, 10148, 10013})
"""Another instance has created it."""


class _Stream(msgspec.Struct, frozen=True):
    config: dict[str, object]
    created: str
    state: _api.StreamState = _api.StreamState()


class _Position(msgspec.Struct, frozen=True):
    stream_seq: int = 0


class _Consumer(msgspec.Struct, frozen=True):
    ack_floor: _Position = _Position()


class _Created(msgspec.Struct, frozen=True):
    created: str = ""


class CatalogueReconciler:
    """Keeps ``streams`` (also those of buckets) and ``consumers`` in existence.

    Args:
        bus: The connection; its user may create streams and consumers, or an error is logged.
        streams: The names of the streams to keep.
        consumers: The consumers to keep.
        on_recreated: Called with the name of a stream that this or another instance has created again.
        set_complete: Called with what is missing, empty if nothing is, whenever that changes.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        streams: Sequence[str],
        consumers: Sequence[ConsumerSpec] = (),
        on_recreated: Callable[[str], Awaitable[None]],
        set_complete: Callable[[Sequence[str]], None],
    ) -> None:
        self._bus = bus
        self._consumers = consumers
        self._on_recreated = on_recreated
        self._set_complete = set_complete
        self._streams: dict[str, _Stream | None] = dict.fromkeys(streams)
        self._floors: dict[str, int] = {}
        self._missing: list[str] | None = None
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Compare every few seconds, and as soon as the broker reports a deletion; until cancelled."""
        hints = [await self._hint(f"STREAM.DELETED.{name}") for name in self._streams]
        hints += [
            await self._hint(f"CONSUMER.DELETED.{one.stream}.{one.consumer}") for one in self._consumers
        ]
        forget = self._bus.on_reconnect(self._woken.set)
        self._bus.metrics.keeps(tuple(self._streams), [one.consumer for one in self._consumers])
        try:
            while True:
                missing = await self._compare()
                await self._wait(_RETRY_S if missing else _CHECK_EVERY_S)
        finally:
            forget()
            for hint in hints:
                await hint.close()

    async def _hint(self, event: str) -> Subscription:
        return await self._bus.subscribe(f"$JS.EVENT.ADVISORY.{event}", self._wake, flush=False)

    def _wake(self, _: Incoming) -> None:
        self._woken.set()

    async def _wait(self, at_most_s: float) -> None:
        try:
            async with asyncio.timeout(at_most_s):
                await self._woken.wait()
                await asyncio.sleep(_SETTLE_S)
        except TimeoutError:
            return
        self._woken.clear()

    async def _compare(self) -> list[str]:
        """Create what is missing; returns what still is, or was until now."""
        missing: list[str] = []
        try:
            recreated = [name for name in self._streams if await self._compare_stream(name, missing)]
            for consumer in self._consumers:
                if f"stream {consumer.stream}" not in missing:
                    await self._compare_consumer(consumer, missing)
            for name in recreated:
                await self._on_recreated(name)
        except BusUnavailable as error:
            # An absent broker is noticed elsewhere.
            log.debug("the streams are not compared: %s", error)
            return missing or self._missing or []
        if missing != self._missing:
            self._missing = missing
            self._set_complete(missing)
        return missing

    async def _compare_stream(self, name: str, missing: list[str]) -> bool:
        """Create the stream if it was deleted; returns whether it is another one than before."""
        known = self._streams[name]
        try:
            found = await _api.call(self._bus, f"STREAM.INFO.{name}", None, _Stream)
        except BusMissing:
            missing.append(f"stream {name}")
            if known is None:
                log.warning("stream %s does not exist: provision the bus", name)
                return False
            self._set_complete(missing)
            self._missing = None
            log.error("stream %s was deleted, with all that it contained: it is created again", name)
            await self._create_stream(name, known)
            return False
        self._streams[name] = found
        limit = found.config.get("max_bytes")
        self._bus.metrics.stream_state(
            name, found.state.messages, found.state.bytes, max(limit, 0) if isinstance(limit, int) else 0
        )
        if known is None or known.created == found.created:
            return False
        log.warning("stream %s was created again", name)
        return True

    async def _create_stream(self, name: str, known: _Stream) -> None:
        config = {**known.config, "first_seq": time.time_ns() // 1000}
        await self._create(f"STREAM.CREATE.{name}", config, f"stream {name}")

    async def _compare_consumer(self, consumer: ConsumerSpec, missing: list[str]) -> None:
        path = f"CONSUMER.INFO.{consumer.stream}.{consumer.consumer}"
        try:
            found = await _api.call(self._bus, path, None, _Consumer)
        except BusMissing:
            missing.append(f"consumer {consumer.consumer}")
            log.error(
                "consumer %s of %s does not exist: it is created again", consumer.consumer, consumer.stream
            )
            await self._create_consumer(consumer, after=self._floors.get(consumer.consumer, 0))
        else:
            self._floors[consumer.consumer] = found.ack_floor.stream_seq

    async def restart_consumer(self, consumer: ConsumerSpec) -> None:
        """Delete a consumer and create it again, so that it reads the whole stream."""
        try:
            await _api.call(
                self._bus, f"CONSUMER.DELETE.{consumer.stream}.{consumer.consumer}", None, _Created
            )
        except BusMissing:
            log.debug("consumer %s is deleted already", consumer.consumer)
        await self._create_consumer(consumer, after=0)

    async def _create_consumer(self, consumer: ConsumerSpec, *, after: int) -> None:
        config = consumer_config(consumer)
        if after:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1}
        request = {"stream_name": consumer.stream, "config": config, "action": "create"}
        path = f"CONSUMER.CREATE.{consumer.stream}.{consumer.consumer}"
        await self._create(path, request, f"consumer {consumer.consumer}")

    async def _create(self, path: str, request: Mapping[str, object], what: str) -> None:
        try:
            await _api.call(self._bus, path, request, _Created)
        except BusRejected as refusal:
            if refusal.err_code not in _IN_USE:
                log.error("%s cannot be created, provision the bus: %s", what, refusal)
            return
        except BusError as error:
            log.error("%s cannot be created yet: %s", what, error)
            return
        self._bus.metrics.restored(what)
        self._woken.set()
