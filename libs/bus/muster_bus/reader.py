"""Reading a stretch of a stream in order, without a durable: for catching up and for filling gaps.

The consumer behind it lives in the broker's memory and dies with it; the reader then makes another one behind the last
message that it handed out, so its caller sees one gap-free sequence.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec

from muster_bus import _api
from muster_bus.connection import Bus
from muster_bus.errors import BusUnavailable, NotFound
from muster_bus.messages import Incoming
from muster_bus.puller import ConsumerGone, Puller

log = logging.getLogger(__name__)

_INACTIVE_S = 10.0
_PAUSE_S = 0.2
_IDLE_S = 1.0


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of ``stream`` that match ``filters``, after sequence ``after`` up to and with ``through``."""

    stream: str
    filters: Sequence[str]
    after: int
    through: int


async def read_stretch(
    bus: Bus, stretch: Stretch, *, batch: int = 256
) -> AsyncGenerator[list[Incoming], None]:
    """The stretch in order, in lists of at most ``batch``; waits out a broker that is away."""
    position = stretch.after
    while position < stretch.through:
        try:
            async with aclosing(_read_once(bus, stretch, after=position, batch=batch)) as chunks:
                async for chunk in chunks:
                    position = chunk[-1].stream_sequence
                    yield chunk
        except (BusUnavailable, ConsumerGone) as error:
            log.info("reading %s again after %d: %s", stretch.stream, position, error)
            await asyncio.sleep(_PAUSE_S)
            continue
        return


async def read_last_values(bus: Bus, stream: str, filter_subject: str) -> list[Incoming]:
    """The last message of every matching subject that existed at the call, in the order of their sequences.

    Raises ``BusUnavailable`` when the broker goes away meanwhile: half a listing is none.
    """
    info = await _api.create_reader(bus, stream, [filter_subject], start=None, inactive_s=_INACTIVE_S)
    found: dict[str, Incoming] = {}
    try:
        async with aclosing(_drain(bus, stream, info, batch=1024)) as chunks:
            async for chunk in chunks:
                found.update((message.subject, message) for message in chunk)
    except ConsumerGone as gone:
        raise BusUnavailable(f"listing {filter_subject} was interrupted") from gone
    return sorted(found.values(), key=lambda message: message.stream_sequence)


async def _read_once(
    bus: Bus, stretch: Stretch, *, after: int, batch: int
) -> AsyncGenerator[list[Incoming], None]:
    info = await _api.create_reader(
        bus, stretch.stream, list(stretch.filters), start=after + 1, inactive_s=_INACTIVE_S
    )
    async with aclosing(_drain(bus, stretch.stream, info, batch=batch)) as chunks:
        async for chunk in chunks:
            wanted = [message for message in chunk if message.stream_sequence <= stretch.through]
            if wanted:
                yield wanted
            if len(wanted) < len(chunk) or chunk[-1].stream_sequence == stretch.through:
                return


async def _drain(
    bus: Bus, stream: str, info: _api.ConsumerInfo, *, batch: int
) -> AsyncGenerator[list[Incoming], None]:
    """All that matches, until nothing is left for the moment; deletes the consumer afterwards.

    The end is told by the broker, not by a count: a value that is replaced while the listing runs moves to the end.
    """
    if not info.num_pending:
        await _discard(bus, stream, info.name)
        return
    expected = 1
    depth = min(2 * batch, info.num_pending)
    async with Puller(bus, stream=stream, consumer=info.name, depth=depth, ephemeral=True) as puller:
        try:
            while True:
                chunk = [message for _, message in await puller.take(batch, wait_s=_IDLE_S)]
                if not chunk:
                    if await _exhausted(bus, stream, info.name, expected):
                        return
                    continue
                if [message.consumer_sequence for message in chunk] != [
                    *range(expected, expected + len(chunk))
                ]:
                    raise ConsumerGone(f"{info.name} skipped a message")
                expected += len(chunk)
                yield chunk
                if not chunk[-1].pending:
                    return
        finally:
            await _discard(bus, stream, info.name)


async def _exhausted(bus: Bus, stream: str, name: str, expected: int) -> bool:
    """Whether what was left has been removed from the stream meanwhile, so that nothing will come."""
    try:
        info = await _api.consumer_info(bus, stream, name)
    except NotFound as error:
        raise ConsumerGone(name) from error
    if info.delivered.consumer_seq >= expected:
        raise ConsumerGone(f"{name} lost a message on the way")
    return not info.num_pending


async def _discard(bus: Bus, stream: str, name: str) -> None:
    try:
        await bus.send(f"$JS.API.CONSUMER.DELETE.{stream}.{name}", b"")
    except BusUnavailable:
        log.debug("reader %s is left to expire", name)
