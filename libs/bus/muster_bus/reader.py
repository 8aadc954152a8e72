"""Read a range of a stream in order, without a durable consumer: for catching up and filling gaps.

The ephemeral consumer is in the broker's memory and dies with it; the reader then creates another one after the last
message it returned, so its caller sees one sequence without gaps.
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
    """The messages of ``stream`` that match ``filters``, after sequence ``after`` up to and including ``through``."""

    stream: str
    filters: Sequence[str]
    after: int
    through: int


async def read_stretch(
    bus: Bus, stretch: Stretch, *, batch: int = 256
) -> AsyncGenerator[list[Incoming], None]:
    """Iterate over the range in order, in lists of at most ``batch``; waits for an unavailable broker."""
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
    """Return the last message of every matching subject, in sequence order.

    Raises ``BusUnavailable`` if the broker becomes unavailable meanwhile: half a listing is useless.
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
    """Return everything that matches until nothing is left; deletes the consumer afterwards.

    The broker signals the end: a value that is replaced during the listing moves to the end.
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
    """Return whether the rest was removed from the stream meanwhile, so that nothing will come."""
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
