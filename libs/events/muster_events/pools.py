"""The pools whose nodes are on the bus."""

from __future__ import annotations

import asyncio

from muster_bus import Bus
from muster_bus.inspection import stored_subjects
from muster_events.catalogue import NODES_STREAM
from muster_events.subjects import CAPACITY_EVENTS, NODE_EVENTS, pool_in


async def known_pools(bus: Bus) -> tuple[str, ...]:
    """Return the pools that have stated nodes or a capacity, sorted. Raises ``BusUnavailable``."""
    nodes, totals = await asyncio.gather(
        stored_subjects(bus, NODES_STREAM, NODE_EVENTS), stored_subjects(bus, NODES_STREAM, CAPACITY_EVENTS)
    )
    return tuple(sorted({pool_in(subject) for subject in nodes | totals}))
