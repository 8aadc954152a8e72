"""Group commit: publish concurrent messages together where that is cheaper.

The broker writes each message to disk separately; an atomic batch is written as a whole, at the price of some dozen
messages. So the first callers are served singly, which is fastest, and callers that arrive meanwhile wait for the next
batch.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from muster_bus.connection import Bus
from muster_bus.messages import Outgoing, Published

log = logging.getLogger(__name__)

_SINGLY = 8
_WORTH_A_BATCH = 16
_MOST = 256
_MOST_BYTES = 4 * 1024 * 1024


PublishOne = Callable[[], Awaitable[Published]]
"""How one message is stored alone, with its own retries and errors."""


class _PendingPublish(msgspec.Struct, frozen=True):
    outgoing: Outgoing
    publish_one: PublishOne
    published: "asyncio.Future[Published]"


class GroupCommit:
    """Stores messages of one stream, each for its own caller: a few singly, the others in batches.

    The stream must allow atomic batches.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._under_way = 0
        self._batch: asyncio.Task[None] | None = None
        self._waiting: deque[_PendingPublish] = deque()

    async def publish(self, outgoing: Outgoing, publish_one: PublishOne) -> Published:
        """Store ``outgoing``; raises what ``publish_one`` raises, so that one caller's refusal does not affect others."""
        if self._under_way < _SINGLY and not self._waiting and self._batch is None:
            self._under_way += 1
            try:
                return await publish_one()
            finally:
                self._under_way -= 1
                self._go_on()
        published: asyncio.Future[Published] = asyncio.get_running_loop().create_future()
        self._waiting.append(_PendingPublish(outgoing, publish_one, published))
        self._go_on()
        return await published

    def _go_on(self) -> None:
        """Commit the waiting messages when they are worth a batch, or when nothing else is in flight."""
        if (
            self._batch is None
            and self._waiting
            and (len(self._waiting) >= _WORTH_A_BATCH or not self._under_way)
        ):
            self._batch = asyncio.create_task(self._commit(self._next_group()))
            self._batch.add_done_callback(self._committed)

    def _next_group(self) -> list[_PendingPublish]:
        group: list[_PendingPublish] = []
        size = 0
        while self._waiting and len(group) < _MOST and size < _MOST_BYTES:
            waiting = self._waiting.popleft()
            if not waiting.published.cancelled():
                group.append(waiting)
                size += len(waiting.outgoing.data)
        return group

    async def _commit(self, group: list[_PendingPublish]) -> None:
        if len(group) >= _WORTH_A_BATCH and await self._commit_together(group):
            return
        # A duplicate or unstorable message fails the whole batch; each is then stored alone for its own result.
        await asyncio.gather(*map(self._publish, group))

    async def _commit_together(self, group: list[_PendingPublish]) -> bool:
        try:
            last = await self._bus.commit([waiting.outgoing for waiting in group], fence=None)
        except Exception as error:
            log.debug("a batch of %d is stored one by one: %s", len(group), error)
            return False
        if last.duplicate:
            return False
        first = last.sequence - len(group) + 1
        for place, waiting in enumerate(group):
            if not waiting.published.done():
                waiting.published.set_result(Published(last.stream, first + place))
        return True

    async def _publish(self, waiting: _PendingPublish) -> None:
        """Store one message alone while its caller waits: a later retry might overtake what follows it."""
        if waiting.published.done():
            return
        publish_one = asyncio.ensure_future(waiting.publish_one())
        waiting.published.add_done_callback(lambda _: publish_one.cancel())
        try:
            published = await publish_one
        except asyncio.CancelledError:
            if not waiting.published.cancelled():
                raise
        except Exception as error:  # the caller handles it, whatever it is
            if not waiting.published.done():
                waiting.published.set_exception(error)
        else:
            if not waiting.published.done():
                waiting.published.set_result(published)

    def _committed(self, _: asyncio.Task[None]) -> None:
        self._batch = None
        self._go_on()
