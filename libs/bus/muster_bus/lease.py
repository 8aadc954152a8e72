"""A lease: a key that its holder renews, and that others may take when it is not renewed.

The broker removes the key after its time to live. Others also take a key by compare-and-set that did not change for that
time by their own clock, which is faster and needs no synchronised clocks. A lease gives liveness, never safety.
"""

import asyncio
import logging
from contextlib import suppress
from secrets import token_hex

import msgspec

from muster_bus.errors import BusError, BusUnavailable, WrongSequence
from muster_bus.key_value import Entry, KeyValueStore

log = logging.getLogger(__name__)

_POLL_S = 0.25
_RETRY_S = 0.1


class LeaseLost(Exception):
    """Another instance has the lease, or may have it."""


class Lease:
    """A candidacy of this instance for one key, for ``ttl_s`` whole seconds at a time."""

    def __init__(self, *, leases: KeyValueStore, key: str, instance: str, ttl_s: int) -> None:
        self._leases = leases
        self._key = key
        self._ttl_s = ttl_s
        # The token distinguishes this process from an earlier one with the same name.
        self._value = msgspec.json.encode({"instance": instance, "token": token_hex(8)})
        self._revision = 0
        self._renewed_at = 0.0
        self._other = (0, 0.0)

    @property
    def revision(self) -> int:
        """Return the revision of this instance's last write."""
        return self._revision

    async def acquire(self) -> None:
        """Wait until this instance has the lease."""
        while True:
            if await self._try_acquire():
                return
            await asyncio.sleep(_POLL_S)

    async def _try_acquire(self) -> bool:
        started = asyncio.get_running_loop().time()
        try:
            entry = await self._leases.get(self._key)
            if entry is not None and entry.value == self._value:
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
        """Renew as long as that succeeds, then raise ``LeaseLost``.

        A process that was busy or suspended past its time has lost the lease only if another instance has taken it
        meanwhile. Giving it up unasked would restart all work, which on a busy machine takes too long again.
        """
        clock = asyncio.get_running_loop().time
        pause_s = self._ttl_s / 3
        while True:
            deadline = self._renewed_at + self._ttl_s
            await asyncio.sleep(max(0.0, min(pause_s, deadline - clock())))
            started = clock()
            late = started > deadline + _RETRY_S
            try:
                async with asyncio.timeout_at(started + self._ttl_s / 3 if late else deadline):
                    self._revision = await self._renew()
            except BusUnavailable:
                pause_s = _RETRY_S
                if clock() >= deadline:
                    raise LeaseLost(f"{self._key} could not be renewed for {self._ttl_s} s") from None
            except TimeoutError:
                raise LeaseLost(f"{self._key} could not be renewed for {self._ttl_s} s") from None
            else:
                self._renewed_at = started
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
        if entry is not None and entry.value == self._value:
            return entry.revision
        if entry is None:
            # It expired, and no other instance took it.
            with suppress(WrongSequence):
                return await self._write(0)
        raise LeaseLost(f"another instance took {self._key}")

    async def _write(self, expected: int) -> int:
        return await self._leases.put(self._key, self._value, expected=expected, ttl_s=self._ttl_s)

    def _has_expired(self, entry: Entry, now: float) -> bool:
        revision, since = self._other
        if revision != entry.revision:
            self._other = (entry.revision, now)
            return False
        return now - since > self._ttl_s
