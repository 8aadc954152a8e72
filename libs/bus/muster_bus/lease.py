"""A lease: a key that its holder renews, and that others may take when it is not renewed.

The broker removes the key after its time to live, which is part of the value. Others also take a key by compare-and-set that
did not change for that time by their own clock, which is faster and needs no synchronised clocks. A lease gives liveness,
never safety: a holder that could not renew in time goes on unless another instance has taken the lease, but until it has
renewed it does not know that.
"""

import asyncio
import logging
from contextlib import suppress
from secrets import token_hex

import msgspec

from muster_bus.errors import BusError, BusUnavailable, WrongSequence
from muster_bus.key_value import Entry, KeyValueStore
from muster_bus.lease_time import LeaseTime, elapsed_s
from muster_bus.messages import UNREADABLE

log = logging.getLogger(__name__)

_POLL_S = 0.25
_RETRY_S = 0.1


class LeaseLost(Exception):
    """Another instance has the lease."""


class LeaseValue(msgspec.Struct, frozen=True):
    """The holder of a lease, and after how many seconds without a renewal others may take it.

    The token distinguishes a process from an earlier one with the same name.
    """

    instance: str
    token: str
    ttl_s: int = 0

    @classmethod
    def of(cls, entry: Entry) -> "LeaseValue":
        """Decode the value of a key; an unreadable one counts as that of an unknown instance."""
        try:
            return msgspec.json.decode(entry.value, type=cls)
        except UNREADABLE:
            return cls(instance="", token="")


class Lease:
    """A candidacy of this instance for one key, for at least ``ttl_s`` whole seconds at a time."""

    def __init__(self, *, leases: KeyValueStore, key: str, instance: str, ttl_s: int) -> None:
        self._leases = leases
        self._key = key
        self._instance = instance
        self._time = LeaseTime(ttl_s)
        self._ttl_s = ttl_s
        self._token = token_hex(8)
        self._revision = 0
        self._renewed_at = float("-inf")
        self._other = (0, 0.0)

    @property
    def revision(self) -> int:
        """Return the revision of this instance's last write."""
        return self._revision

    @property
    def is_current(self) -> bool:
        """Whether the lease was renewed in time: no other instance can have taken it yet."""
        return elapsed_s() - self._renewed_at <= self._ttl_s

    async def acquire(self) -> None:
        """Wait until this instance has the lease."""
        while True:
            if await self._try_acquire():
                return
            await asyncio.sleep(_POLL_S)

    async def _try_acquire(self) -> bool:
        started = elapsed_s()
        try:
            entry = await self._leases.get(self._key)
            if entry is not None and self._is_mine(entry):
                self._revision = entry.revision
            elif entry is None or self._has_expired(entry, started):
                expected = 0 if entry is None else entry.revision
                self._revision = await self._write(expected)
            else:
                return False
        except WrongSequence:
            return False
        except BusUnavailable:
            # While no instance can renew, silence means nothing.
            self._other = (0, 0.0)
            return False
        self._renewed_at = started
        return True

    async def renew_until_lost(self) -> None:
        """Renew until another instance has taken the lease, then raise ``LeaseLost``.

        A holder that was busy, suspended or cut off past its time goes on if it finds that no other has taken it: giving up
        unasked would restart all work, which on a busy machine takes too long again.
        """
        pause_s = self._ttl_s / 3
        while True:
            due = elapsed_s() + pause_s
            await asyncio.sleep(pause_s)
            started = elapsed_s()
            try:
                async with asyncio.timeout(self._ttl_s):
                    self._revision = await self._renew()
            except (BusUnavailable, TimeoutError) as error:
                log.info("%s could not be renewed: %s", self._key, error or "no answer")
                pause_s = _RETRY_S
            else:
                self._renewed_at = started
                self._time.observe(elapsed_s() - due)
                pause_s = self._ttl_s / 3

    async def release(self) -> None:
        """Release the lease, if still held, so that another instance can take it at once."""
        with suppress(BusError):
            await self._leases.delete(self._key, expected=self._revision, ttl_s=self._ttl_s)

    async def _renew(self) -> int:
        try:
            return await self._write(self._revision)
        except WrongSequence:
            # An earlier renewal may have succeeded without an answer.
            entry = await self._leases.get(self._key)
        if entry is not None and self._is_mine(entry):
            self._revision = entry.revision
            return await self._write(entry.revision)
        if entry is None:
            # It expired, and no other instance took it.
            with suppress(WrongSequence):
                return await self._write(0)
        raise LeaseLost(f"another instance took {self._key}")

    async def _write(self, expected: int) -> int:
        ttl_s = self._time.seconds
        value = LeaseValue(instance=self._instance, token=self._token, ttl_s=ttl_s)
        revision = await self._leases.put(
            self._key, msgspec.json.encode(value), expected=expected, ttl_s=ttl_s
        )
        self._ttl_s = ttl_s
        return revision

    def _is_mine(self, entry: Entry) -> bool:
        return LeaseValue.of(entry).token == self._token

    def _has_expired(self, entry: Entry, now: float) -> bool:
        revision, since = self._other
        if revision != entry.revision:
            self._other = (entry.revision, now)
            return False
        return now - since > (LeaseValue.of(entry).ttl_s or self._ttl_s)
