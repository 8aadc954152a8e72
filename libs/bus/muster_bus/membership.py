"""Membership of instances, and their shards.

Every instance holds one lease. Shards are assigned by rendezvous hashing over the live instances, so that a change moves
only the affected share. Two instances may briefly both own a shard; its readers and writers tolerate that.
"""

import asyncio
import hashlib
import logging
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from secrets import token_hex

import msgspec

from muster_bus.connection import Bus
from muster_bus.errors import BusError, BusUnavailable
from muster_bus.key_value import Entry, KeyValueStore
from muster_bus.messages import Incoming

log = logging.getLogger(__name__)

_POLL_S = 0.5
_SETTLE_S = 0.02
_UNSAFE = re.compile(r"[^-_=a-zA-Z0-9]")


def owner_of(shard: int, members: Iterable[str]) -> str | None:
    """Return the member with the highest weight for ``shard``, or ``None`` without members."""
    return max(members, key=lambda member: (_weight(member, shard), member), default=None)


def _weight(member: str, shard: int) -> bytes:
    return hashlib.blake2b(f"{member}/{shard}".encode(), digest_size=8).digest()


class Membership:
    """This instance's membership of ``group``; ``ttl_s`` are whole seconds.

    ``instance`` must be unique.
    """

    def __init__(self, bus: Bus, *, leases: KeyValueStore, group: str, instance: str, ttl_s: int = 3) -> None:
        self._bus = bus
        self._leases = leases
        self._group = group
        self._member = _UNSAFE.sub("_", instance)
        self._value = msgspec.json.encode({"instance": instance, "token": token_hex(8)})
        self._ttl_s = ttl_s
        self._seen: dict[str, tuple[int, float]] = {}
        self._renewed_at = float("-inf")
        self._live: frozenset[str] = frozenset()
        self._changed = asyncio.Event()

    @property
    def members(self) -> frozenset[str]:
        """The live instances, including this one while it holds its lease."""
        return self._live

    def shards(self, total: int) -> frozenset[int]:
        """Return which of the shards 0 to ``total`` - 1 this instance owns; none without its lease."""
        if self._member not in self._live:
            return frozenset()
        return frozenset(shard for shard in range(total) if owner_of(shard, self._live) == self._member)

    async def run(self, on_change: Callable[[frozenset[int]], None], total: int) -> None:
        """Be a member until cancelled; ``on_change`` receives this instance's shards whenever they change.

        On cancellation the shards are removed first, then the lease is released.
        """
        mine: frozenset[int] = frozenset()
        hint = await self._bus.subscribe(self._leases.subject(f"{self._group}.*"), self._notice)
        forget = self._bus.on_reconnect(self._extend_all)
        renewing = asyncio.create_task(self._renew())
        try:
            while True:
                await self._look()
                shards = self.shards(total)
                if shards != mine:
                    mine = shards
                    log.info("%s/%s has shards %s", self._group, self._member, sorted(shards))
                    on_change(shards)
                await self._wait()
        finally:
            renewing.cancel()
            forget()
            await hint.close()
            self._live = frozenset()
            if mine:
                on_change(frozenset())
            with suppress(BusError):
                await self._leases.delete(self._key, ttl_s=self._ttl_s)

    @property
    def _key(self) -> str:
        return f"{self._group}.{self._member}"

    async def _renew(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            started = clock()
            try:
                await self._leases.put(self._key, self._value, ttl_s=self._ttl_s)
            except BusError as error:
                log.info("%s could not renew its membership: %s", self._member, error)
                await asyncio.sleep(_POLL_S / 2)
            else:
                self._renewed_at = started
                await asyncio.sleep(self._ttl_s / 3)

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        try:
            entries = await self._leases.entries(f"{self._group}.*")
        except BusUnavailable as error:
            # No instance can renew while the broker is unavailable: others count as alive, this one must prove itself.
            log.info("the members of %s are not known: %s", self._group, error)
            self._extend_all()
        else:
            self._seen = {self._name(entry): self._last_change(entry, now) for entry in entries}
        live = {member for member, (_, at) in self._seen.items() if now - at <= self._ttl_s}
        live.discard(self._member)
        if now - self._renewed_at <= self._ttl_s:
            live.add(self._member)
        self._live = frozenset(live)

    def _last_change(self, entry: Entry, now: float) -> tuple[int, float]:
        """When this revision of a member's lease was first seen, by this instance's clock."""
        known = self._seen.get(self._name(entry))
        if known is not None and known[0] == entry.revision:
            return known
        return (entry.revision, now)

    def _name(self, entry: Entry) -> str:
        return entry.key.removeprefix(f"{self._group}.")

    def _extend_all(self) -> None:
        now = asyncio.get_running_loop().time()
        self._seen = {member: (revision, now) for member, (revision, _) in self._seen.items()}

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
