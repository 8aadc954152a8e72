"""Membership of instances, and their shards.

Every instance holds one lease. Shards are assigned by rendezvous hashing over the live instances, so that a change moves
only the affected share. Two instances may briefly both own a shard; its readers and writers tolerate that.

An instance that did not renew its lease in time (it was paused, suspended, cut off or slow) may have lost its shards to
others without a notice. As soon as it finds that, it gives up all its shards before it takes any again.
"""

import asyncio
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from secrets import token_hex

import msgspec

from muster_bus.connection import Bus
from muster_bus.errors import BusError, BusUnavailable, WrongSequence
from muster_bus.key_value import Entry, KeyValueStore
from muster_bus.lease import LeaseValue
from muster_bus.lease_time import LeaseTime, elapsed_s
from muster_bus.messages import Incoming

log = logging.getLogger(__name__)

_POLL_S = 0.5
_SETTLE_S = 0.02
_LAST_WORK_S = 2.0
_UNSAFE = re.compile(r"[^-_=a-zA-Z0-9]")


def owner_of(shard: int, members: Iterable[str]) -> str | None:
    """Return the member with the highest weight for ``shard``, or ``None`` without members."""
    return max(members, key=lambda member: (_weight(member, shard), member), default=None)


def _weight(member: str, shard: int) -> bytes:
    return hashlib.blake2b(f"{member}/{shard}".encode(), digest_size=8).digest()


class _Seen(msgspec.Struct, frozen=True):
    """A member's lease: its revision, when that was first seen by this instance's clock, and for how long it counts."""

    revision: int
    at: float
    ttl_s: int


class Membership:
    """This instance's membership of ``group``; a lease counts for at least ``ttl_s`` whole seconds.

    ``instance`` must be unique.
    """

    def __init__(self, bus: Bus, *, leases: KeyValueStore, group: str, instance: str, ttl_s: int = 3) -> None:
        self._bus = bus
        self._leases = leases
        self._group = group
        self._instance = instance
        self._member = _UNSAFE.sub("_", instance)
        self._token = token_hex(8)
        self._time = LeaseTime(ttl_s)
        self._ttl_s = ttl_s
        self._revision = 0
        self._seen: dict[str, _Seen] = {}
        self._renewed_at = float("-inf")
        self._has_lapsed = False
        self._live: frozenset[str] = frozenset()
        self._changed = asyncio.Event()

    @property
    def members(self) -> frozenset[str]:
        """The live instances, including this one while it holds its lease."""
        return self._live

    @property
    def is_current(self) -> bool:
        """Whether the lease was renewed in time: no other instance can have taken this instance's shards unnoticed."""
        return elapsed_s() - self._renewed_at <= self._ttl_s and not self._has_lapsed

    def shards(self, total: int) -> frozenset[int]:
        """Return which of the shards 0 to ``total`` - 1 this instance owns; none without its lease."""
        if self._member not in self._live:
            return frozenset()
        return frozenset(shard for shard in range(total) if owner_of(shard, self._live) == self._member)

    async def run(
        self,
        on_change: Callable[[frozenset[int]], None],
        total: int,
        *,
        ended: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Be a member until cancelled; ``on_change`` receives this instance's shards, first when it is a member, and whenever they change.

        After a lapse it receives no shards first. On cancellation the shards are removed first, then the lease is released:
        when ``ended`` returns, which waits for the end of the work on them, or after two seconds.
        """
        mine: frozenset[int] | None = None
        hint = await self._bus.subscribe(self._leases.subject(f"{self._group}.*"), self._notice)
        forget = self._bus.on_reconnect(self._extend_all)
        renewing = asyncio.create_task(self._renew())
        self._bus.metrics.partitions(self._group, 0, total)
        try:
            while True:
                await self._look()
                if self._has_lapsed:
                    log.warning("%s/%s did not renew its lease in time", self._group, self._member)
                    self._bus.metrics.lapsed(self._group)
                    mine = frozenset()
                    self._bus.metrics.partitions(self._group, 0, total)
                    on_change(mine)
                    self._has_lapsed = False
                shards = self.shards(total)
                # An instance may have none, which it has to know before it is ready.
                if shards != mine and (mine is not None or self._member in self._live):
                    mine = shards
                    log.info("%s/%s has shards %s", self._group, self._member, sorted(shards))
                    self._bus.metrics.partitions(self._group, len(shards), total)
                    on_change(shards)
                await self._wait()
        finally:
            renewing.cancel()
            forget()
            await hint.close()
            self._live = frozenset()
            self._bus.metrics.partitions(self._group, 0, total)
            if mine:
                on_change(frozenset())
            if ended is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_WORK_S):
                        await ended()
            with suppress(BusError):
                await self._leases.delete(self._key, ttl_s=self._ttl_s)

    @property
    def _key(self) -> str:
        return f"{self._group}.{self._member}"

    async def _renew(self) -> None:
        pause_s = 0.0
        while True:
            due = elapsed_s() + pause_s
            await asyncio.sleep(pause_s)
            started = elapsed_s()
            is_joining = self._revision == 0
            was_late = started - self._renewed_at > self._ttl_s
            try:
                was_kept = await self._write_lease()
            except BusError as error:
                log.info("%s could not renew its membership: %s", self._member, error)
                pause_s = _POLL_S / 2
                continue
            if not is_joining and (not was_kept or (was_late and not self._is_alone())):
                self._has_lapsed = True
                self._changed.set()
            self._renewed_at = started
            self._time.observe(elapsed_s() - due)
            pause_s = self._ttl_s / 3

    async def _write_lease(self) -> bool:
        """Renew the lease; returns whether it was still there."""
        ttl_s = self._time.seconds
        value = msgspec.json.encode(LeaseValue(instance=self._instance, token=self._token, ttl_s=ttl_s))
        was_kept = True
        try:
            self._revision = await self._leases.put(self._key, value, expected=self._revision, ttl_s=ttl_s)
        except WrongSequence:
            entry = await self._leases.get(self._key)
            # An earlier renewal may have succeeded without an answer.
            was_kept = entry is not None and LeaseValue.of(entry).token == self._token
            expected = 0 if entry is None else entry.revision
            self._revision = await self._leases.put(self._key, value, expected=expected, ttl_s=ttl_s)
        self._ttl_s = ttl_s
        return was_kept

    def _is_alone(self) -> bool:
        """Whether no other instance had a lease when the members were last read."""
        return self._seen.keys() <= {self._member}

    async def _look(self) -> None:
        now = elapsed_s()
        try:
            entries = await self._leases.entries(f"{self._group}.*")
        except BusUnavailable as error:
            # No instance can renew while the broker is unavailable: others count as alive, this one must prove itself.
            log.info("the members of %s are not known: %s", self._group, error)
            self._extend_all()
        else:
            self._seen = {self._name(entry): self._last_change(entry, now) for entry in entries}
        live = {member for member, seen in self._seen.items() if now - seen.at <= seen.ttl_s}
        live.discard(self._member)
        is_late = elapsed_s() - self._renewed_at > self._ttl_s
        if self._revision and (not is_late or self._is_alone()):
            live.add(self._member)
        self._live = frozenset(live)

    def _last_change(self, entry: Entry, now: float) -> _Seen:
        known = self._seen.get(self._name(entry))
        if known is not None and known.revision == entry.revision:
            return known
        return _Seen(entry.revision, now, LeaseValue.of(entry).ttl_s or self._ttl_s)

    def _name(self, entry: Entry) -> str:
        return entry.key.removeprefix(f"{self._group}.")

    def _extend_all(self) -> None:
        now = elapsed_s()
        self._seen = {member: msgspec.structs.replace(seen, at=now) for member, seen in self._seen.items()}

    def _notice(self, incoming: Incoming) -> None:
        """React at once when an instance joins or leaves; ignore renewals."""
        member = incoming.subject.rpartition(".")[2]
        if member not in self._live or not incoming.data:
            self._changed.set()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(_POLL_S):
                await self._changed.wait()
                # The write may appear here before it is stored.
                await asyncio.sleep(_SETTLE_S)
        except TimeoutError:
            return
        self._changed.clear()
