"""The time by which the broker stamps messages: ages are differences of this one clock, whatever the local one says.

A step of the broker's clock, or a suspended machine, must not make everything old at once. So a step forward is followed
slowly; a step backward at once, because the stamps of new messages would otherwise make these old. The time is at most the
broker's, so that no deadline takes effect before its time.
"""

import asyncio
import logging
import time

from muster_bus import _api
from muster_bus.connection import Bus
from muster_bus.errors import BusError

log = logging.getLogger(__name__)

_EVERY_S = 5.0
_RETRY_S = 0.5
_STEP_US = 1_000_000
_SLEW = 0.1
_US = 1_000_000


class SlewedClock:
    """A clock that is ``offset`` ahead of the monotonic one; all times are in µs."""

    def __init__(self) -> None:
        self._offset: float | None = None
        self._behind = 0.0
        self._at = 0.0

    def now(self, monotonic: float) -> int | None:
        """Return the time, or ``None`` before the first measurement."""
        if self._offset is None:
            return None
        slewed = min(self._behind, _SLEW * max(0.0, monotonic - self._at))
        return int(self._offset + slewed + monotonic)

    def measured(self, offset: float, monotonic: float, *, error: float) -> float:
        """Take note of a measurement, which is at most ``error`` too low, and return by how far the clock has stepped (0: not)."""
        if self._offset is None:
            self._offset, self._at = offset, monotonic
            return 0.0
        slewed = min(self._behind, _SLEW * max(0.0, monotonic - self._at))
        expected = self._offset + self._behind
        stepped = offset - expected
        self._offset, self._at = self._offset + slewed, monotonic
        if abs(stepped) <= error:
            stepped = 0.0
        # What remains to be followed; a step backward is taken at once.
        self._behind = max(0.0, expected + stepped - self._offset)
        self._offset = min(self._offset, expected + stepped)
        return stepped if abs(stepped) > _STEP_US else 0.0


class BrokerClock:
    """The broker's time, measured with the answers about ``stream``."""

    def __init__(self, bus: Bus, stream: str) -> None:
        self._bus = bus
        self._stream = stream
        self._clock = SlewedClock()
        self.synchronised = asyncio.Event()
        """Set after the first measurement."""

    def now(self) -> int:
        """Return the time in µs since the epoch; that of this machine before the first measurement."""
        measured = self._clock.now(time.monotonic() * _US)
        return time.time_ns() // 1000 if measured is None else measured

    async def run(self) -> None:
        """Follow the broker's clock until cancelled."""
        while True:
            try:
                await self._measure()
            except BusError as error:
                log.debug("the broker's time is not known: %s", error)
                await asyncio.sleep(_RETRY_S)
            else:
                self.synchronised.set()
                await asyncio.sleep(_EVERY_S)

    async def _measure(self) -> None:
        began = time.monotonic() * _US
        stamp = await _api.broker_time(self._bus, self._stream)
        ended = time.monotonic() * _US
        # The broker took the time at some instant between the two.
        stepped = self._clock.measured(stamp - ended, ended, error=ended - began)
        if stepped:
            log.warning(
                "the broker's clock stepped by %.1f s, or this machine was suspended; ages go on as before",
                stepped / _US,
            )
