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
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TypeVar

import msgspec

from muster_bus import _api
from muster_bus.connection import Bus
from muster_bus.errors import BusError, BusUnavailable, WrongSequence
from muster_bus.group_commit import GroupCommit
from muster_bus.messages import ROLLUP, TTL, Incoming, Outgoing, Published, parse_ack, wire_headers
from muster_bus.ordered_consumer import OrderedConsumer, read_last_headers, read_last_values
from muster_bus.pull_subscription import ConsumerGone, PullPacer, PullSubscription

log = logging.getLogger(__name__)

T = TypeVar("T")

OPERATION = "KV-Operation"
PURGE = "PURGE"
_REMOVALS = frozenset({"DEL", PURGE})
_EXPIRED = "Nats-Marker-Reason"

_CHECK_EVERY_S = 5.0
_GRACE_S = 0.25
_PAUSE_S = 0.2
_POLL_S = 0.02
_INACTIVE_S = 30.0
_BATCH = 256
_SHOWN = 500


class KeyChange(msgspec.Struct, frozen=True, kw_only=True):
    """A key's new value; ``value`` None if it was removed or has expired."""

    key: str
    value: bytes | None
    revision: int
    timestamp_ns: int = 0


Decode = Callable[[bytes], T]
"""Decodes and checks a value; raises ``ValueError``."""


async def _decoded(bus: Bus, stream: str, message: Incoming, decode: Decode[T]) -> T | None:
    """Return the decoded value, or None with a warning: the caller goes on with its last good one."""
    subject, revision = message.subject, message.stream_sequence
    try:
        return decode(message.data)
    except ValueError as error:
        why = str(error)
    try:
        # The delivery may have been damaged, and the value be whole in its stream.
        stored = await _api.message_at(bus, stream, revision)
        if stored is not None and stored.data != message.data:
            return decode(stored.data)
    except (BusError, ValueError) as error:
        log.debug("%s is not read again: %s", subject, error)
    bus.metrics.unreadable(stream)
    log.warning("%s at %d of %s cannot be read and is ignored: %s", subject, revision, stream, why[:_SHOWN])
    return None


IsSound = Callable[[str, Mapping[str, str]], bool]
"""Whether a key and the headers of its last write can be what was written, and not damaged on their way."""


def _accept_all(_: str, __: Mapping[str, str]) -> bool:
    return True


class _Deliveries(msgspec.Struct, frozen=True):
    """Which deliveries of the keys below ``prefix`` can be what was written."""

    bus: Bus
    stream: str
    prefix: str
    is_sound: IsSound

    async def sound(self, messages: Sequence[Incoming]) -> list[Incoming]:
        """Return the messages; one that is not sound is replaced by what its stream has, and left out if that is not, either.

        Raises ``BusUnavailable``.
        """
        found: list[Incoming] = []
        for message in messages:
            if self._is_sound(message):
                found.append(message)
                continue
            stored = await _api.message_at(self.bus, self.stream, message.stream_sequence)
            if stored is None:
                # A newer write has replaced it, and is delivered, too.
                continue
            if self._is_sound(stored):
                log.warning(
                    "%d of %s was damaged on delivery and is read from the stream",
                    message.stream_sequence,
                    self.stream,
                )
                found.append(stored)
            else:
                self.bus.metrics.unreadable(self.stream)
                log.warning(
                    "%d of %s has the key %r: ignored", stored.stream_sequence, self.stream, stored.subject
                )
        return found

    def _is_sound(self, message: Incoming) -> bool:
        subject = message.subject
        return subject.startswith(self.prefix) and self.is_sound(
            subject.removeprefix(self.prefix), message.headers
        )


def is_removal(message: Incoming) -> bool:
    """Return whether this write removes the key."""
    return message.headers.get(OPERATION) in _REMOVALS or _EXPIRED in message.headers


class KeyWatch:
    """The changes of the keys below ``prefix`` that match ``filter_key``, each newer than the last one."""

    def __init__(
        self, bus: Bus, *, stream: str, prefix: str, filter_key: str, is_sound: IsSound = _accept_all
    ) -> None:
        self._bus = bus
        self._stream = stream
        self._prefix = prefix
        self._filter = prefix + filter_key
        self._deliveries = _Deliveries(bus, stream, prefix, is_sound)
        self._known: dict[str, int] = {}
        self._seen = 0
        self.listed = asyncio.Event()
        """Set when all values that existed at the start have been returned."""

    async def read(self, change: KeyChange, decode: Decode[T]) -> T | None:
        """Return the decoded value of a change, or None with a warning if it was removed or cannot be read."""
        if change.value is None:
            return None
        subject = self._prefix + change.key
        message = Incoming(subject=subject, data=change.value, stream_sequence=change.revision)
        return await _decoded(self._bus, self._stream, message, decode)

    async def catch_up(self) -> None:
        """Return when ``changes`` has returned every write before this call. Raises ``BusUnavailable``."""
        await self.listed.wait()
        end = await self._bus.last_sequence(self._stream)
        while True:
            unseen = await _api.next_message(self._bus, self._stream, self._filter, self._seen + 1)
            if unseen is None or unseen.stream_sequence > end:
                return
            await asyncio.sleep(_POLL_S)

    async def changes(self) -> AsyncGenerator[KeyChange, None]:
        """Iterate over existing values, then changes; waits for an unavailable broker."""
        while True:
            try:
                if not self.listed.is_set():
                    listed = await read_last_values(self._bus, self._stream, self._filter)
                    for message in await self._deliveries.sound(listed):
                        if (change := self._update(message)) is not None:
                            yield change
                    self.listed.set()
                async with aclosing(self._follow()) as following:
                    async for change in following:
                        yield change
            except (BusUnavailable, ConsumerGone) as error:
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
                taken = await subscription.take(_BATCH, wait_s=max(0.0, check_at - clock()))
                for _, message in taken:
                    if message.consumer_sequence != expected:
                        raise ConsumerGone(f"{info.name} skipped a message")
                    expected += 1
                for message in await self._deliveries.sound([message for _, message in taken]):
                    if (change := self._update(message)) is not None:
                        yield change
                self._seen = max([self._seen, *(message.stream_sequence for _, message in taken)])
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


class KeyHeaders(msgspec.Struct, frozen=True, kw_only=True):
    """The headers of a key's last write, and whether that removed the key."""

    key: str
    headers: dict[str, str]
    revision: int
    removed: bool


class HeaderWatch:
    """The headers of the keys below ``prefix`` that match ``filter_key``, for keys whose values are read on demand.

    Removals are reported, expiries are not.
    """

    def __init__(
        self, bus: Bus, *, stream: str, prefix: str, filter_key: str, is_sound: IsSound = _accept_all
    ) -> None:
        self._bus = bus
        self._stream = stream
        self._prefix = prefix
        self._filter = prefix + filter_key
        self._deliveries = _Deliveries(bus, stream, prefix, is_sound)
        self._handled = 0
        self._advanced = asyncio.Event()
        self.listed = asyncio.Event()
        """Set when all keys that existed at the start have been handled, or the position of the start is known."""

    async def changes(self, *, existing: bool = True) -> AsyncGenerator[list[KeyHeaders], None]:
        """Iterate over what exists, if ``existing``, and then over each write; waits for an unavailable broker.

        A change counts as handled when the next ones are requested. Repetitions are possible, also of older writes than the
        last one of a key: compare revisions.
        """
        while not self.listed.is_set():
            try:
                end = await self._bus.last_sequence(self._stream)
                if existing:
                    async with aclosing(read_last_headers(self._bus, self._stream, self._filter)) as chunks:
                        async for chunk in chunks:
                            yield _headers(await self._deliveries.sound(chunk), self._prefix)
            except BusUnavailable as error:
                log.info("listing %s again: %s", self._filter, error)
                await asyncio.sleep(_PAUSE_S)
            else:
                self._handled = end
                self.listed.set()
        consumer = OrderedConsumer(
            self._bus,
            name=self._filter,
            stream=self._stream,
            filters=[self._filter],
            depth=2 * _BATCH,
            pace=PullPacer(),
            headers_only=True,
        )
        async with consumer:
            while True:
                if batch := await consumer.take(_BATCH, after=self._handled):
                    yield _headers(await self._sound(batch), self._prefix)
                    self._handled = batch[-1].stream_sequence
                    self._advanced.set()

    async def _sound(self, batch: list[Incoming]) -> list[Incoming]:
        while True:
            try:
                return await self._deliveries.sound(batch)
            except BusUnavailable as error:
                log.info("a damaged delivery cannot be read again yet: %s", error)
            await asyncio.sleep(_PAUSE_S)

    async def catch_up(self) -> None:
        """Return when every write before this call is handled; waits for an unavailable broker."""
        await self.listed.wait()
        end: int | None = None
        while True:
            self._advanced.clear()
            try:
                end = end or await self._bus.last_sequence(self._stream)
                unseen = await _api.next_message(self._bus, self._stream, self._filter, self._handled + 1)
                if unseen is None or unseen.stream_sequence > end:
                    return
            except BusUnavailable as error:
                log.info("%s cannot be compared with the stream: %s", self._filter, error)
            try:
                async with asyncio.timeout(_PAUSE_S):
                    await self._advanced.wait()
            except TimeoutError:
                continue


def _headers(messages: list[Incoming], prefix: str) -> list[KeyHeaders]:
    return [
        KeyHeaders(
            key=message.subject.removeprefix(prefix),
            headers=message.headers,
            revision=message.stream_sequence,
            removed=is_removal(message),
        )
        for message in messages
    ]


_KEY = re.compile(r"[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A key's value and the sequence of its write."""

    key: str
    value: bytes
    revision: int
    timestamp_ns: int = 0


class KeyValueStore:
    """One bucket with one writer.

    Concurrent writes are group-committed if ``written_in_groups``. What is listed or watched and not ``is_sound`` is read again
    from the stream.
    """

    def __init__(
        self, bus: Bus, bucket: str, *, written_in_groups: bool = False, is_sound: IsSound = _accept_all
    ) -> None:
        self._bus = bus
        self._groups = GroupCommit(bus) if written_in_groups else None
        self._stream = f"KV_{bucket}"
        self._prefix = f"$KV.{bucket}."
        self._deliveries = _Deliveries(bus, self._stream, self._prefix, is_sound)

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
        compared: str = "",
        ttl_s: int | None = None,
        revive: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        """Write a value and return its revision.

        ``expected`` is the revision to replace (0: the key must not exist), ``None`` replaces any; with the filter
        ``compared`` it is the last revision of all keys that match. A removed key counts as absent, unless ``revive`` is
        False: then 0 means that it never existed. The value expires ``ttl_s`` whole seconds after the write. Raises
        ``WrongSequence`` if another write came first, ``BusUnavailable`` if the outcome is unknown: read back, and compare.
        """
        all_headers = dict(headers or {})
        if ttl_s is not None:
            all_headers[TTL] = f"{ttl_s}s"
        try:
            return await self._write(key, value, all_headers, expected, compared)
        except WrongSequence:
            # A removed key has a marker, whose sequence the broker compares with although the key does not exist.
            marker = await self._last(key) if expected == 0 and revive and not compared else None
            if marker is None or not is_removal(marker):
                raise
        return await self._write(key, value, all_headers, marker.stream_sequence)

    async def delete(self, key: str, *, expected: int | None = None, ttl_s: int | None = None) -> int:
        """Remove the key and leave a marker for watchers, for ``ttl_s`` seconds if given; returns the marker's revision.

        Raises ``WrongSequence`` if the key's revision is not ``expected``.
        """
        headers = {OPERATION: PURGE}
        if ttl_s is not None:
            headers[TTL] = f"{ttl_s}s"
        return await self._write(key, b"", headers, expected)

    async def removal(self, key: str) -> Entry | None:
        """Return the marker of a removed key, an entry without a value, or ``None``."""
        message = await self._last(key)
        return None if message is None or not is_removal(message) else self._entry(message)

    async def last_revision(self, filter: str) -> int:  # noqa: A002
        """Return the revision of the last write, removals included, to the matching keys; 0 if there is none."""
        message = await self._bus.last(self._stream, self._prefix + filter)
        return 0 if message is None else message.stream_sequence

    async def entries(self, filter: str = ">") -> list[Entry]:  # noqa: A002
        """Return every key that matches ``filter`` with its value, in revision order."""
        messages = await read_last_values(self._bus, self._stream, self._prefix + filter)
        return [self._entry(one) for one in await self._deliveries.sound(messages) if not is_removal(one)]

    async def read(self, written: Entry | KeyChange, decode: Decode[T]) -> T | None:
        """Return the decoded value, or None with a warning if it was removed or cannot be read."""
        if written.value is None:
            return None
        subject = self._prefix + written.key
        message = Incoming(subject=subject, data=written.value, stream_sequence=written.revision)
        return await _decoded(self._bus, self._stream, message, decode)

    def watch(self, filter: str = ">") -> AsyncGenerator[KeyChange, None]:  # noqa: A002
        """Iterate over matching values, then changes; intermediate values may be skipped.

        Existing keys are compared again every 5 seconds and on reconnect, so a broken watch misses nothing.
        """
        return self.watch_keys(filter).changes()

    def watch_keys(self, filter: str = ">") -> KeyWatch:  # noqa: A002
        """Return the watch behind ``watch``, which says when everything is listed."""
        return KeyWatch(
            self._bus,
            stream=self._stream,
            prefix=self._prefix,
            filter_key=filter,
            is_sound=self._deliveries.is_sound,
        )

    async def headers(self, filter: str) -> AsyncGenerator[list[KeyHeaders], None]:  # noqa: A002
        """Iterate over the headers of the matching keys' last writes, without their values.

        Raises ``BusUnavailable`` if the broker becomes unavailable meanwhile.
        """
        async with aclosing(read_last_headers(self._bus, self._stream, self._prefix + filter)) as chunks:
            async for chunk in chunks:
                yield _headers(await self._deliveries.sound(chunk), self._prefix)

    def watch_headers(self, filter: str) -> HeaderWatch:  # noqa: A002
        """Return a watch of the headers of the matching keys' writes, without their values."""
        return HeaderWatch(
            self._bus,
            stream=self._stream,
            prefix=self._prefix,
            filter_key=filter,
            is_sound=self._deliveries.is_sound,
        )

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

    async def _write(
        self, key: str, value: bytes, headers: dict[str, str], expected: int | None, compared: str = ""
    ) -> int:
        outgoing = Outgoing(
            subject=self._subject_of(key),
            data=value,
            msg_id="",
            # The broker records what a rollup removes. What a limit per key removes it derives again after a crash, and a
            # value comes back if the marker of its removal has expired.
            headers=headers | {ROLLUP: "sub"},
            expected_last=expected,
            expected_subject=self._prefix + compared if compared else "",
        )

        async def publish_one() -> Published:
            with self._bus.storing():
                reply = await self._bus.request(outgoing.subject, value, headers=wire_headers(outgoing))
            ack = parse_ack(reply.data)
            if not ack.stream:
                raise BusUnavailable(f"no acknowledgement for {outgoing.subject}")
            return Published(ack.stream, ack.seq)

        if self._groups is None:
            return (await publish_one()).sequence
        return (await self._groups.publish(outgoing, publish_one)).sequence
