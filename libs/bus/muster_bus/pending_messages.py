"""What is pending of each consumer that this instance reads, asked of the broker.

A delivery says how many messages follow it, but a reader that does not progress gets no deliveries. So the broker is asked at
intervals.
"""

from __future__ import annotations

import asyncio
import logging

from muster_bus.connection import Bus, CountPending
from muster_bus.errors import BusError

log = logging.getLogger(__name__)

_EVERY_S = 10.0


async def report_pending(bus: Bus) -> None:
    """Report the pending messages of every reader of ``bus`` to its metrics, at intervals, until cancelled."""
    while True:
        await asyncio.sleep(_EVERY_S)
        await asyncio.gather(*(_report(bus, name, count) for name, count in bus.readers.items()))


async def _report(bus: Bus, name: str, count: CountPending) -> None:
    try:
        pending = await count()
    except BusError as error:
        log.debug("what is pending of %s is not known: %s", name, error)
        return
    # The reader may have stopped meanwhile.
    if pending is not None and bus.readers.get(name) is count:
        bus.metrics.pending(name, pending)
