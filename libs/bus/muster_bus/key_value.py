"""Key-value store: the last value of each key, changed by compare-and-set, and watches.

The layout is that of NATS key-value buckets, so that NATS tools can read it; the code is separate because the client
library reads from any replica, and drops a key's time to live on renewal.

A watch that only listens can miss changes for ever, for instance after a broker restart. This one reads an ordered
consumer, and every few seconds makes two cheap requests to the leader: which keys exist, and is there a write after the last
one seen?
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from muster_bus import _api
from muster_bus.connection import Bus
from muster_bus.errors import BusNotFound, BusUnavailable, WrongSequence
from muster_bus.group_commit import GroupCommit
from muster_bus.messages import EXPECTED_LAST, ROLLUP, TTL, Incoming, Outgoing, Published, parse_ack
from muster_bus.ordered_consumer import read_last_values
from muster_bus.pull_subscription import ConsumerGone, PullSubscription

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


class KeyChange(msgspec.Struct, frozen=True, kw_only=True):
    """A key's new value; ``value`` None if it was removed or has expired."""

    key: str
    value: bytes | None
    revision: int
    timestamp_ns: int = 0


def is_removal(message: Incoming) -> bool:
    """Return whether this write removes the key."""
    return message.headers.get(OPERATION) in _REMOVALS or _EXPIRED in message.headers


class KeyWatch:
    """The changes of the keys below ``prefix`` that match ``filter_key``, each newer than the last one."""

    def __init__(self, bus: Bus, *, stream: str, prefix: str, filter_key: str) -> None:
        self._bus = bus
        self._stream = stream
        self._prefix = prefix
        self._filter = prefix + filter_key
        self._known: dict[str, int] = {}
        self._seen = 0

    async def changes(self) -> AsyncGenerator[KeyChange, None]:
        """Iterate over existing values, then changes; waits for an unavailable broker."""
        listed = False
        while True:
            try:
                if not listed:
                    for message in await read_last_values(self._bus, self._stream, self._filter):
                        if (change := self._update(message)) is not None:
                            yield change
                    listed = True
                async with aclosing(self._follow()) as following:
                    async for change in following:
                        yield change
            except (BusUnavailable, ConsumerGone, BusNotFound) as error:
                log.info("watching %s again after %d: %s", self._filter, self._seen, error)
                await asyncio.sleep(_PAUSE_S)

    async def _follow(self) -> AsyncGenerator[KeyChange, None]:
        info = await _api.create_reader(
            self._bus, self._stream, [self._filter], start=self._seen + 1, inactive_s=_INACTIVE_S
        )
        expected = 1
        clock = asyncio.get_running_loop().time
        async with PullSubscription(
            self._bus, stream=self._stream, consumer=info.name, depth=2 * _BATCH, ephemeral=True
        ) as subscription:
            for change in await self._vanished():
                yield change
            check_at = clock() + _CHECK_EVERY_S
            generation = self._bus.generation
            while True:
                for _, message in await subscription.take(_BATCH, wait_s=max(0.0, check_at - clock())):
                    if message.consumer_sequence != expected:
                        raise ConsumerGone(f"{info.name} skipped a message")
                    expected += 1
                    if (change := self._update(message)) is not None:
                        yield change
                if generation != self._bus.generation:
                    raise ConsumerGone("the connection was re-established")
                if clock() >= check_at:
                    for change in await self._vanished():
                        yield change
                    await self._check_for_missed(subscription)
                    check_at = clock() + _CHECK_EVERY_S

    def _update(self, message: Incoming) -> KeyChange | None:
        """Record the write; returns ``None`` if it is not new."""
        self._seen = max(self._seen, message.stream_sequence)
        key = message.subject.removeprefix(self._prefix)
        known = self._known.get(key, 0)
        if message.stream_sequence <= known:
            return None
        if not is_removal(message):
            self._known[key] = message.stream_sequence
            return KeyChange(
                key=key,
                value=message.data,
                revision=message.stream_sequence,
                timestamp_ns=message.timestamp_ns,
            )
        if not known:
            return None
        del self._known[key]
        return KeyChange(
            key=key, value=None, revision=message.stream_sequence, timestamp_ns=message.timestamp_ns
        )

    async def _vanished(self) -> list[KeyChange]:
        """Return keys that expired: no write reports them."""
        present = await _api.subjects(self._bus, self._stream, self._filter)
        gone = [key for key in self._known if self._prefix + key not in present]
        return [KeyChange(key=key, value=None, revision=self._known.pop(key)) for key in gone]

    async def _check_for_missed(self, subscription: PullSubscription) -> None:
        unseen = await _api.next_message(self._bus, self._stream, self._filter, self._seen + 1)
        if unseen is not None and not await subscription.has_any(within_s=_GRACE_S):
            raise ConsumerGone(f"no delivery although {unseen.stream_sequence} was written")


_KEY = re.compile(r"[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A key's value and the sequence of its write."""

    key: str
    value: bytes
    revision: int
    timestamp_ns: int = 0


class KeyValueStore:
    """One bucket with one writer.

    Concurrent writes are group-committed if ``written_in_groups``.
    """

    def __init__(self, bus: Bus, bucket: str, *, written_in_groups: bool = False) -> None:
        self._bus = bus
        self._groups = GroupCommit(bus) if written_in_groups else None
        self._stream = f"KV_{bucket}"
        self._prefix = f"$KV.{bucket}."

    def subject(self, filter: str) -> str:  # noqa: A002 - the broker's own word
        """Return the subject of writes to the matching keys."""
        return self._prefix + filter

    async def get(self, key: str) -> Entry | None:
        """Return the key's value, read from the leader, or ``None``."""
        message = await self._last(key)
        if message is None or is_removal(message):
            return None
        return self._entry(message)

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        expected: int | None = None,
        ttl_s: int | None = None,
        revive: bool = True,
    ) -> int:
        """Write a value and return its revision.

        ``expected`` is the revision to replace (0: the key must not exist), ``None`` replaces any. A removed key counts
        as absent, unless ``revive`` is False: then 0 means that it never existed. The value expires ``ttl_s`` whole
        seconds after the write. Raises ``WrongSequence`` if another write came first, ``BusUnavailable`` if the outcome
        is unknown: read back, and compare.
        """
        headers = {} if ttl_s is None else {TTL: f"{ttl_s}s"}
        try:
            return await self._write(key, value, headers, expected)
        except WrongSequence:
            # A removed key has a marker, whose sequence the broker compares with although the key does not exist.
            marker = await self._last(key) if expected == 0 and revive else None
            if marker is None or not is_removal(marker):
                raise
        return await self._write(key, value, headers, marker.stream_sequence)

    async def delete(self, key: str, *, expected: int | None = None, ttl_s: int | None = None) -> None:
        """Remove the key and leave a marker for watchers, for ``ttl_s`` seconds if given.

        Raises ``WrongSequence`` if the key's revision is not ``expected``.
        """
        headers = {OPERATION: PURGE, ROLLUP: "sub"}
        if ttl_s is not None:
            headers[TTL] = f"{ttl_s}s"
        await self._write(key, b"", headers, expected)

    async def removal(self, key: str) -> Entry | None:
        """Return the marker of a removed key, an entry without a value, or ``None``."""
        message = await self._last(key)
        return None if message is None or not is_removal(message) else self._entry(message)

    async def entries(self, filter: str = ">") -> list[Entry]:  # noqa: A002
        """Return every key that matches ``filter`` with its value, in revision order."""
        messages = await read_last_values(self._bus, self._stream, self._prefix + filter)
        return [self._entry(message) for message in messages if not is_removal(message)]

    def watch(self, filter: str = ">") -> AsyncGenerator[KeyChange, None]:  # noqa: A002
        """Iterate over matching values, then changes; intermediate values may be skipped.

        Existing keys are compared again every 5 seconds and on reconnect, so a broken watch misses nothing.
        """
        return KeyWatch(self._bus, stream=self._stream, prefix=self._prefix, filter_key=filter).changes()

    def _entry(self, message: Incoming) -> Entry:
        return Entry(
            key=message.subject.removeprefix(self._prefix),
            value=message.data,
            revision=message.stream_sequence,
            timestamp_ns=message.timestamp_ns,
        )

    async def _last(self, key: str) -> Incoming | None:
        return await self._bus.last(self._stream, self._subject_of(key))

    def _subject_of(self, key: str) -> str:
        if _KEY.fullmatch(key) is None:
            raise ValueError(f"not a key: {key!r}")
        return self._prefix + key

    async def _write(self, key: str, value: bytes, headers: dict[str, str], expected: int | None) -> int:
        subject = self._subject_of(key)

        async def publish_one() -> Published:
            conditions = {} if expected is None else {EXPECTED_LAST: str(expected)}
            reply = await self._bus.request(subject, value, headers=headers | conditions)
            ack = parse_ack(reply.data)
            if not ack.stream:
                raise BusUnavailable(f"no acknowledgement for {subject}")
            return Published(ack.stream, ack.seq)

        if self._groups is None:
            return (await publish_one()).sequence
        outgoing = Outgoing(subject=subject, data=value, msg_id="", headers=headers, expected_last=expected)
        return (await self._groups.publish(outgoing, publish_one)).sequence
