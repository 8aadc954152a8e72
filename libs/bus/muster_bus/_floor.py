"""From where a reader that rebuilds from records must read on.

The records were folded by somebody's durables, up to some place in the stream. Everything behind that place must be
read; reading a little of what was folded already does no harm, missing one message does. So the place is computed from
acknowledgements and from what the stream itself holds, never from a consumer's count of what is pending: that count may
lag behind a message that was just stored.
"""

import asyncio
from collections.abc import Sequence

from muster_bus import _api
from muster_bus.connection import Bus


async def floor_of(bus: Bus, stream: str, durables: Sequence[str]) -> int:
    """The highest sequence up to which each of ``durables`` has settled everything that it reads."""
    return min(await asyncio.gather(*(_settled(bus, stream, durable) for durable in durables)))


async def acknowledged(bus: Bus, stream: str, durable: str) -> int:
    """The sequence up to which ``durable`` itself acknowledged."""
    return (await _api.consumer_info(bus, stream, durable)).ack_floor.stream_seq


async def next_unread(bus: Bus, stream: str, filters: Sequence[str], position: int) -> int | None:
    """The first sequence behind ``position`` that matches one of ``filters``, ``None`` when there is none yet."""
    found = await asyncio.gather(
        *(_api.next_message(bus, stream, subject, position + 1) for subject in filters)
    )
    return min((message.stream_sequence for message in found if message is not None), default=None)


async def _settled(bus: Bus, stream: str, durable: str) -> int:
    # The end of the stream first: what is stored after it will be read in any case.
    end = await bus.last_sequence(stream)
    info = await _api.consumer_info(bus, stream, durable)
    floor = info.ack_floor.stream_seq
    unsettled = await next_unread(bus, stream, info.config.filters, floor)
    return max(floor, end) if unsettled is None else unsettled - 1
