"""The platform defaults in their bucket: one key for each version. Creating the next key applies it, so only one writer succeeds.

Earlier versions are retained, because jobs refer to the version that was applied to them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

import msgspec

from muster_bus import BusUnavailable, KeyValueStore, WrongSequence
from muster_formats.defaults import PlatformDefaults

log = logging.getLogger(__name__)

_RETRY_S = 0.5
_NS_PER_US = 1000


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """One version of the platform defaults; ``version`` 0: none were applied yet. ``applied_at`` is in microseconds."""

    version: int = 0
    defaults: PlatformDefaults = PlatformDefaults()
    applied_by: str = ""
    applied_at: int = 0


NONE_APPLIED = Applied()
"""The version before any defaults were applied."""


class DefaultsSuperseded(Exception):
    """Another writer applied the next version first: ``applied``, which is current now."""

    def __init__(self, applied: Applied) -> None:
        super().__init__(f"version {applied.version} is current")
        self.applied = applied


class Defaults(Protocol):
    """The platform defaults."""

    async def current(self) -> Applied:
        """Return the newest version that this instance has read; waits for the first read."""
        ...

    async def refresh(self) -> Applied:
        """Read the current version from the bucket. Raises ``BusUnavailable``."""
        ...

    async def version(self, version: int) -> Applied | None:
        """Return one version, or ``None``. Raises ``BusUnavailable``."""
        ...

    async def store(self, defaults: PlatformDefaults, *, by: str, over: int) -> Applied:
        """Store the version after ``over``.

        Raises:
            DefaultsSuperseded: There is such a version already.
            BusUnavailable: The result is unknown.
        """
        ...


class _DefaultsEntry(msgspec.Struct, frozen=True, kw_only=True):
    defaults: PlatformDefaults
    applied_by: str = ""


_decoder = msgspec.json.Decoder(_DefaultsEntry)


class DefaultsBucket:
    """Implements ``Defaults``."""

    def __init__(self, records: KeyValueStore) -> None:
        self._records = records
        self._applied = NONE_APPLIED
        self._values: dict[str, bytes] = {}
        self._read = asyncio.Event()

    @property
    def newest_version(self) -> int:
        """The newest version that this instance has read."""
        return self._applied.version

    async def run(self) -> None:
        """Read the current version, then follow the bucket; until cancelled."""
        while not self._read.is_set():
            try:
                await self.refresh()
            except BusUnavailable as error:
                log.warning("the platform defaults cannot be read yet: %s", error)
                await asyncio.sleep(_RETRY_S)
        async for change in self._records.watch():
            if change.value is None:
                await self._store_again(change.key)
            else:
                self._take(change.key, change.value, change.timestamp_ns)

    async def current(self) -> Applied:
        """Return the newest version that this instance has read; waits for the first read."""
        await self._read.wait()
        return self._applied

    async def refresh(self) -> Applied:
        """Read the current version from the bucket."""
        for entry in await self._records.entries():
            self._take(entry.key, entry.value, entry.timestamp_ns)
        self._read.set()
        return self._applied

    async def version(self, version: int) -> Applied | None:
        """Return one version, or ``None``."""
        if version == 0:
            return NONE_APPLIED
        entry = await self._records.get(str(version))
        return _decoded(entry.key, entry.value, entry.timestamp_ns) if entry else None

    async def store(self, defaults: PlatformDefaults, *, by: str, over: int) -> Applied:
        """Store the version after ``over``."""
        key, value = str(over + 1), msgspec.json.encode(_DefaultsEntry(defaults=defaults, applied_by=by))
        try:
            await self._records.put(key, value, expected=0, revive=False)
        except WrongSequence as error:
            raise DefaultsSuperseded(await self.refresh()) from error
        newest = await self.refresh()
        # A later version may have been applied meanwhile: the answer is the version of this call.
        return await self.version(over + 1) or newest

    async def _store_again(self, key: str) -> None:
        """Store a version that was removed: jobs refer to it, and no service removes one."""
        value = self._values.get(key)
        if value is None:
            return
        log.error("version %s of the platform defaults was removed, it is stored again", key)
        while True:
            try:
                await self._records.put(key, value, expected=0)
            except WrongSequence:
                return
            except BusUnavailable as error:
                log.warning("version %s of the platform defaults cannot be stored: %s", key, error)
                await asyncio.sleep(_RETRY_S)
            else:
                return

    def _take(self, key: str, value: bytes, timestamp_ns: int) -> None:
        self._values[key] = value
        applied = _decoded(key, value, timestamp_ns)
        if applied is not None and applied.version > self._applied.version:
            self._applied = applied
            log.info("version %d of the platform defaults is current", applied.version)


def _decoded(key: str, value: bytes, timestamp_ns: int) -> Applied | None:
    try:
        stored = _decoder.decode(value)
        return Applied(
            version=int(key),
            defaults=stored.defaults,
            applied_by=stored.applied_by,
            applied_at=timestamp_ns // _NS_PER_US,
        )
    except (ValueError, msgspec.DecodeError) as error:
        log.error("version %s of the platform defaults cannot be read: %s", key, error)
        return None
