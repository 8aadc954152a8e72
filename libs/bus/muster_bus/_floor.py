"""The low-water mark: from where a reader that rebuilds from records must read.

The records contain the events up to some position in the stream. Everything after it must be read; reading a little
before it does no harm, missing one message does. The position is computed from acknowledgements and from the stream
itself, never from a consumer's pending count, which may lag behind a message that was just stored.
"""

import asyncio
from collections.abc import Sequence

from muster_bus import _api
from muster_bus.connection import Bus


async def floor_of(bus: Bus, stream: str, durables: Sequence[str]) -> int:
    """Return the highest sequence up to which each of ``durables`` has settled everything that it reads."""
    return min(await asyncio.gather(*(_settled(bus, stream, durable) for durable in durables)))


async def acknowledged(bus: Bus, stream: str, durable: str) -> int:
    """Return the sequence up to which ``durable`` acknowledged."""
    return (await _api.consumer_info(bus, stream, durable)).ack_floor.stream_seq


async def next_unread(bus: Bus, stream: str, filters: Sequence[str], position: int) -> int | None:
    """Return the first sequence after ``position`` that matches one of ``filters``, or ``None``."""
    found = await asyncio.gather(
        *(_api.next_message(bus, stream, subject, position + 1) for subject in filters)
    )
    return min((message.stream_sequence for message in found if message is not None), default=None)


async def _settled(bus: Bus, stream: str, durable: str) -> int:
    # Read the end of the stream first: what is stored later will be read in any case.
    end = await bus.last_sequence(stream)
    info = await _api.consumer_info(bus, stream, durable)
    floor = info.ack_floor.stream_seq
    unsettled = await next_unread(bus, stream, info.config.filters, floor)
    return max(floor, end) if unsettled is None else unsettled - 1
