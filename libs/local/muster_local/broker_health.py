"""Restarts a broker that stores nothing although its disk has space.

After a failed write, NATS acknowledges no message of that stream until it is restarted. It logs the error, and probes find
a stream that does not acknowledge for another reason. A broker that does not answer at all is left alone: it may be paused,
or the machine busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from muster_bus import Bus, BusSettings
from muster_bus.disk import shortage
from muster_bus.write_probe import WriteProbe
from muster_events.catalogue import JOBS_STREAM, NODES_STREAM
from muster_events.subjects import UNSTORED, probe_subject

_ERROR, _FAILED_WRITE = b"[ERR]", b"critical write error"
_PROBER = "up"
_CHECK_EVERY_S = 1.0
_UNSTORED_FOR_S = 10.0
_SETTLE_S = 10.0
"""After a restart the broker reads its store again, and the connection is made again."""


class BrokerHealth:
    """Decides when to restart the broker.

    Args:
        settings: how to connect to the broker.
        store: the folder of its store.
        restart: restarts it.
        log: gets a level and a message.
    """

    def __init__(
        self,
        *,
        settings: BusSettings,
        store: Path,
        restart: Callable[[], None],
        log: Callable[[str, str], None],
    ) -> None:
        self._settings = settings
        self._store = store
        self._restart = restart
        self._log = log
        self._has_failed_write = False
        self._unstored_s = 0.0
        self._short: str | None = None

    def observe(self, line: bytes) -> None:
        """Note a line that the broker has logged."""
        if _FAILED_WRITE in line and _ERROR in line:
            self._has_failed_write = True

    async def run(self) -> None:
        """Restart the broker whenever necessary, until cancelled."""
        bus = await Bus.connect(self._settings, name=_PROBER)
        subjects = {name: probe_subject(name, _PROBER) for name in (JOBS_STREAM, NODES_STREAM)}
        probe = WriteProbe(bus, subjects=subjects, hint=UNSTORED, shortage=lambda: shortage(self._store))
        probing = asyncio.create_task(probe.run())
        try:
            while True:
                await asyncio.sleep(_CHECK_EVERY_S)
                if await asyncio.to_thread(self._is_short):
                    continue
                self._unstored_s = self._unstored_s + _CHECK_EVERY_S if probe.unstored else 0.0
                if self._has_failed_write or self._unstored_s >= _UNSTORED_FOR_S:
                    self._log("error", "the broker stores nothing after a failed write: it is restarted")
                    self._has_failed_write, self._unstored_s = False, 0.0
                    self._restart()
                    await asyncio.sleep(_SETTLE_S)
        finally:
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)
            await bus.close()

    def _is_short(self) -> bool:
        short = shortage(self._store)
        if short != self._short and (short is None or self._short is None):
            self._log(*(("error", short) if short else ("warning", "the broker's disk has space again")))
        self._short = short
        return short is not None
