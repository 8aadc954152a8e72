"""An ordered consumer of new messages, for readers whose position is stored elsewhere.

The ephemeral consumer behind it is in the broker's memory, needs no acknowledgements and writes nothing to disk, which is
most of a durable consumer's cost. If it is lost, or has skipped anything, another one is created after the last delivered
message.
"""

import asyncio
import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from muster_bus import _api
from muster_bus._pace import Pace
from muster_bus.connection import Bus
from muster_bus.errors import BusUnavailable, NotFound
from muster_bus.messages import Incoming
from muster_bus.puller import ConsumerGone, Puller

log = logging.getLogger(__name__)

_INACTIVE_S = 10.0
_PAUSE_S = 0.2
_CHECK_EVERY_S = 5.0


class Tail:
    """The messages of ``stream`` that match ``filters`` from a position on, each once and in order.

    ``name`` is for the log. At most ``depth`` messages are requested at a time, as often as ``pace`` allows.
    """

    def __init__(
        self, bus: Bus, *, name: str, stream: str, filters: Sequence[str], depth: int, pace: Pace
    ) -> None:
        self._bus = bus
        self._name = name
        self._stream = stream
        self._filters = list(filters)
        self._depth = depth
        self._pace = pace
        self._puller: Puller | None = None
        self._consumer = ""
        self._generation = -1
        self._expected = 1
        self._stopped = False
        self._woken = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    def interrupt(self) -> None:
        """Make ``take`` return an empty list, now and from now on."""
        self._stopped = True
        self.wake()

    def wake(self) -> None:
        """Make a waiting ``take`` return an empty list, once."""
        self._woken.set()
        if self._puller is not None:
            self._puller.wake()

    async def take(self, limit: int, *, after: int) -> list[Incoming]:
        """Return at least one and at most ``limit`` messages after the sequence ``after``.

        Waits for an unavailable broker. Returns an empty list after ``interrupt`` or ``wake``, and when nothing came for
        some seconds.
        """
        while not self._stopped:
            if self._woken.is_set():
                self._woken.clear()
                break
            try:
                return await self._take(limit, after)
            except (BusUnavailable, ConsumerGone, NotFound) as error:
                log.info("%s reads again after %d: %s", self._name, after, error)
            await self._close()
            await self._pause()
        return []

    async def _take(self, limit: int, after: int) -> list[Incoming]:
        puller = self._puller or await self._open(after)
        batch = [message for _, message in await puller.take(limit, wait_s=_CHECK_EVERY_S)]
        quiet = not batch and not self._woken.is_set()
        self._woken.clear()
        if [message.consumer_sequence for message in batch] != [
            *range(self._expected, self._expected + len(batch))
        ]:
            raise ConsumerGone(f"{self._consumer} skipped a message")
        self._expected += len(batch)
        if self._generation != self._bus.generation:
            raise ConsumerGone("the connection was re-established")
        if quiet:
            await self._check_not_blind(puller, after)
        return batch

    async def _open(self, after: int) -> Puller:
        info = await _api.create_reader(
            self._bus, self._stream, self._filters, start=after + 1, inactive_s=_INACTIVE_S
        )
        self._consumer, self._expected = info.name, 1
        self._generation = self._bus.generation
        puller = Puller(
            self._bus,
            stream=self._stream,
            consumer=info.name,
            depth=self._depth,
            ephemeral=True,
            pace=self._pace,
        )
        self._puller = await puller.__aenter__()
        return puller

    async def _close(self) -> None:
        puller, self._puller = self._puller, None
        if puller is None:
            return
        await puller.__aexit__(None, None, None)
        try:
            await self._bus.send(f"$JS.API.CONSUMER.DELETE.{self._stream}.{self._consumer}", b"")
        except BusUnavailable:
            log.debug("reader %s is left to expire", self._consumer)

    async def _check_not_blind(self, puller: Puller, after: int) -> None:
        """Check after a silence whether there is really nothing new."""
        for subject in self._filters:
            unseen = await _api.next_message(self._bus, self._stream, subject, after + 1)
            if unseen is not None and not await puller.has_any(within_s=_PAUSE_S):
                raise ConsumerGone(f"no delivery although {unseen.stream_sequence} was written")

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(_PAUSE_S):
                await self._woken.wait()
        except TimeoutError:
            return
