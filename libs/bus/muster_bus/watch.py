"""Watch a bucket, recovering from missed changes.

A watch that only listens can miss changes for ever, for instance after a broker restart. This one reads an ordered
consumer, and every few seconds asks the leader two cheap questions: which keys exist, and is there a write after the last
one seen?
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from muster_bus import _api
from muster_bus.connection import Bus
from muster_bus.errors import BusUnavailable, NotFound
from muster_bus.messages import Incoming
from muster_bus.puller import ConsumerGone, Puller
from muster_bus.reader import read_last_values

log = logging.getLogger(__name__)

OPERATION = "KV-Operation"
PURGE = "PURGE"
_REMOVALS = frozenset({"DEL", PURGE})
_EXPIRED = "Nats-Marker-Reason"

_CHECK_EVERY_S = 5.0
_GRACE_S = 0.25
_PAUSE_S = 0.2
_INACTIVE_S = 30.0
_BATCH = 256


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A key's new value; ``value`` None if it was removed or has expired."""

    key: str
    value: bytes | None
    revision: int
    timestamp_ns: int = 0


def is_removal(message: Incoming) -> bool:
    """Return whether this write removes the key."""
    return message.headers.get(OPERATION) in _REMOVALS or _EXPIRED in message.headers


class Watch:
    """The changes of the keys below ``prefix`` that match ``filter_key``, each newer than the last one."""

    def __init__(self, bus: Bus, *, stream: str, prefix: str, filter_key: str) -> None:
        self._bus = bus
        self._stream = stream
        self._prefix = prefix
        self._filter = prefix + filter_key
        self._known: dict[str, int] = {}
        self._seen = 0

    async def changes(self) -> AsyncGenerator[Change, None]:
        """Iterate over existing values, then changes; waits for an unavailable broker."""
        listed = False
        while True:
            try:
                if not listed:
                    for message in await read_last_values(self._bus, self._stream, self._filter):
                        if (change := self._learn(message)) is not None:
                            yield change
                    listed = True
                async with aclosing(self._follow()) as following:
                    async for change in following:
                        yield change
            except (BusUnavailable, ConsumerGone, NotFound) as error:
                log.info("watching %s again after %d: %s", self._filter, self._seen, error)
                await asyncio.sleep(_PAUSE_S)

    async def _follow(self) -> AsyncGenerator[Change, None]:
        info = await _api.create_reader(
            self._bus, self._stream, [self._filter], start=self._seen + 1, inactive_s=_INACTIVE_S
        )
        expected = 1
        clock = asyncio.get_running_loop().time
        async with Puller(
            self._bus, stream=self._stream, consumer=info.name, depth=2 * _BATCH, ephemeral=True
        ) as puller:
            for change in await self._vanished():
                yield change
            check_at = clock() + _CHECK_EVERY_S
            generation = self._bus.generation
            while True:
                for _, message in await puller.take(_BATCH, wait_s=max(0.0, check_at - clock())):
                    if message.consumer_sequence != expected:
                        raise ConsumerGone(f"{info.name} skipped a message")
                    expected += 1
                    if (change := self._learn(message)) is not None:
                        yield change
                if generation != self._bus.generation:
                    raise ConsumerGone("the connection was re-established")
                if clock() >= check_at:
                    for change in await self._vanished():
                        yield change
                    await self._check_not_blind(puller)
                    check_at = clock() + _CHECK_EVERY_S

    def _learn(self, message: Incoming) -> Change | None:
        """Record the write; returns ``None`` if it is not new."""
        self._seen = max(self._seen, message.stream_sequence)
        key = message.subject.removeprefix(self._prefix)
        known = self._known.get(key, 0)
        if message.stream_sequence <= known:
            return None
        if not is_removal(message):
            self._known[key] = message.stream_sequence
            return Change(
                key=key,
                value=message.data,
                revision=message.stream_sequence,
                timestamp_ns=message.timestamp_ns,
            )
        if not known:
            return None
        del self._known[key]
        return Change(
            key=key, value=None, revision=message.stream_sequence, timestamp_ns=message.timestamp_ns
        )

    async def _vanished(self) -> list[Change]:
        """Return keys that expired: no write reports them."""
        present = await _api.subjects(self._bus, self._stream, self._filter)
        gone = [key for key in self._known if self._prefix + key not in present]
        return [Change(key=key, value=None, revision=self._known.pop(key)) for key in gone]

    async def _check_not_blind(self, puller: Puller) -> None:
        unseen = await _api.next_message(self._bus, self._stream, self._filter, self._seen + 1)
        if unseen is not None and not await puller.has_any(within_s=_GRACE_S):
            raise ConsumerGone(f"no delivery although {unseen.stream_sequence} was written")
