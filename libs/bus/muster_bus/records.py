"""Key-value store: the last value of each key, changed by compare-and-set.

The layout is that of NATS key-value buckets, so that NATS tools can read it; the code is separate because the client
library reads from any replica, and drops a key's time to live on renewal.
"""

import re
from collections.abc import AsyncGenerator

import msgspec

from muster_bus.connection import Bus
from muster_bus.errors import BusUnavailable, WrongSequence
from muster_bus.group_commit import GroupCommit
from muster_bus.messages import (
    EXPECTED_LAST,
    ROLLUP,
    TTL,
    Incoming,
    Outgoing,
    Published,
    parse_ack,
)
from muster_bus.reader import read_last_values
from muster_bus.watch import OPERATION, PURGE, Change, Watch, is_removal

_KEY = re.compile(r"[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A key's value and the sequence of its write."""

    key: str
    value: bytes
    revision: int
    timestamp_ns: int = 0


class Records:
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

    def watch(self, filter: str = ">") -> AsyncGenerator[Change, None]:  # noqa: A002
        """Iterate over matching values, then changes; intermediate values may be skipped.

        Existing keys are compared again every 5 seconds and on reconnect, so a broken watch misses nothing.
        """
        return Watch(self._bus, stream=self._stream, prefix=self._prefix, filter_key=filter).changes()

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

        async def alone() -> Published:
            conditions = {} if expected is None else {EXPECTED_LAST: str(expected)}
            reply = await self._bus.request(subject, value, headers=headers | conditions)
            ack = parse_ack(reply.data)
            if not ack.stream:
                raise BusUnavailable(f"no acknowledgement for {subject}")
            return Published(ack.stream, ack.seq)

        if self._groups is None:
            return (await alone()).sequence
        outgoing = Outgoing(subject=subject, data=value, msg_id="", headers=headers, expected_last=expected)
        return (await self._groups.publish(outgoing, alone)).sequence
