"""The running instances of all services: each states its version under a key that lives as long as the instance.

The broker removes the key of an instance that was killed after its time to live. Nothing depends on it: while the broker is
unavailable the instance works on without its key.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from contextlib import suppress

import msgspec

from muster_bus.errors import BusError
from muster_bus.key_value import KeyValueStore
from muster_bus.messages import UNREADABLE

log = logging.getLogger(__name__)

_PREFIX = "instances"
_TTL_S = 15
_RENEW_S = 5.0
_RETRY_S = 1.0
_REMOVE_S = 0.5
_UNSAFE = re.compile(r"[^-_=a-zA-Z0-9]")


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A running instance; ``started_at`` in microseconds since the epoch."""

    service: str
    name: str
    version: str
    started_at: int = 0


class InstanceRegistry:
    """The instances that are stated in a bucket, whose keys may have a time to live."""

    def __init__(self, bucket: KeyValueStore, *, ttl_s: int = _TTL_S, renew_s: float = _RENEW_S) -> None:
        self._bucket = bucket
        self._ttl_s = ttl_s
        self._renew_s = renew_s

    async def state(self, *, service: str, name: str, version: str) -> None:
        """State an instance until cancelled, then remove it."""
        instance = Instance(service=service, name=name, version=version, started_at=time.time_ns() // 1000)
        key = f"{_PREFIX}.{service}.{_UNSAFE.sub('_', name)}"
        value = msgspec.json.encode(instance)
        revision = 0
        try:
            while True:
                pause_s = self._renew_s
                try:
                    revision = await self._bucket.put(key, value, ttl_s=self._ttl_s)
                except BusError as error:
                    log.debug("%s is not stated: %s", key, error)
                    pause_s = _RETRY_S
                await asyncio.sleep(pause_s)
        finally:
            # Not that of a successor with the same name.
            with suppress(BusError, TimeoutError):
                async with asyncio.timeout(_REMOVE_S):
                    await self._bucket.delete(key, expected=revision, ttl_s=self._ttl_s)

    async def list(self) -> list[Instance]:
        """Return the instances by service and name; raises ``BusUnavailable``."""
        found: list[Instance] = []
        for entry in await self._bucket.entries(f"{_PREFIX}.>"):
            with suppress(*UNREADABLE):
                found.append(msgspec.json.decode(entry.value, type=Instance))
        return sorted(found, key=lambda one: (one.service, one.name))
