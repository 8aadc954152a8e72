"""The platform's defaults in their bucket: one key a version, so that to apply is to create the next one, and only one can.

Earlier versions stay, for jobs say which one they got.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from muster_bus import BusUnavailable, NotFound, Records, WrongSequence
from muster_formats.defaults import PlatformDefaults
from muster_spec_validator.judging import NONE_APPLIED, Applied
from muster_spec_validator.ports import Superseded

log = logging.getLogger(__name__)

_PAUSE_S = 0.5
_NS_PER_US = 1000


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    defaults: PlatformDefaults
    applied_by: str = ""


_decoder = msgspec.json.Decoder(_Stored)


class DefaultsBucket:
    """See ``Defaults``."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._applied = NONE_APPLIED
        self._read = asyncio.Event()

    @property
    def heard(self) -> int:
        """The newest version that this copy has heard of."""
        return self._applied.version

    async def run(self) -> None:
        """Read what is in force, then follow it; until cancelled."""
        while not self._read.is_set():
            try:
                await self.refresh()
            except (BusUnavailable, NotFound) as error:
                log.warning("the platform's defaults cannot be read yet: %s", error)
                await asyncio.sleep(_PAUSE_S)
        async for change in self._records.watch():
            if change.value is not None:
                self._take(change.key, change.value, change.timestamp_ns)

    async def in_force(self) -> Applied:
        """See ``Defaults``."""
        await self._read.wait()
        return self._applied

    async def refresh(self) -> Applied:
        """See ``Defaults``."""
        for entry in await self._records.entries():
            self._take(entry.key, entry.value, entry.timestamp_ns)
        self._read.set()
        return self._applied

    async def version(self, version: int) -> Applied | None:
        """See ``Defaults``."""
        if version == 0:
            return NONE_APPLIED
        entry = await self._records.get(str(version))
        return _applied(entry.key, entry.value, entry.timestamp_ns) if entry else None

    async def store(self, defaults: PlatformDefaults, *, by: str, over: int) -> Applied:
        """See ``Defaults``."""
        key, value = str(over + 1), msgspec.json.encode(_Stored(defaults=defaults, applied_by=by))
        try:
            await self._records.put(key, value, expected=0, revive=False)
        except WrongSequence as error:
            raise Superseded(await self.refresh()) from error
        newest = await self.refresh()
        # Others may have applied theirs over these meanwhile: the caller is answered with its own.
        return await self.version(over + 1) or newest

    def _take(self, key: str, value: bytes, timestamp_ns: int) -> None:
        applied = _applied(key, value, timestamp_ns)
        if applied is not None and applied.version > self._applied.version:
            self._applied = applied
            log.info("the platform's defaults are of version %d", applied.version)


def _applied(key: str, value: bytes, timestamp_ns: int) -> Applied | None:
    try:
        stored = _decoder.decode(value)
        return Applied(
            version=int(key),
            defaults=stored.defaults,
            applied_by=stored.applied_by,
            applied_at=timestamp_ns // _NS_PER_US,
        )
    except (ValueError, msgspec.DecodeError) as error:
        log.error("version %s of the platform's defaults cannot be read: %s", key, error)
        return None
