"""Group commit: messages that are published at the same time become durable together.

Each message that is stored by itself costs the broker a write to the disk and this process an acknowledgement. Under load
that is what limits how many can be taken; an atomic batch pays it once for all. While little is going on every message
goes its own way, for a batch takes longer than a single message.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

import msgspec

from muster_runtime.bus.connection import Bus
from muster_runtime.bus.errors import BusError
from muster_runtime.bus.messages import Outgoing, Published

log = logging.getLogger(__name__)

_WRITERS = 2
_LARGEST = 128
_LARGEST_BYTES = 4 * 1024 * 1024
_WORTH_A_BATCH = 8


class _Waiting(msgspec.Struct, frozen=True, eq=False):
    outgoing: Outgoing
    deadline_s: float
    done: "asyncio.Future[Published]"


class GroupCommit:
    """Publishes messages of one stream, together where several wait.

    A message's fate is its own: where a batch is refused, or nobody knows what became of it, each of its messages is
    published by itself and gets its own answer.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._waiting: deque[_Waiting] = deque()
        self._writers: set[asyncio.Task[None]] = set()

    async def publish_once(self, outgoing: Outgoing, *, deadline_s: float = 60.0) -> Published:
        """As ``Bus.publish_once``, answers and errors included."""
        waiting = _Waiting(outgoing, deadline_s, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if len(self._writers) < _WRITERS:
            writer = asyncio.create_task(self._write())
            self._writers.add(writer)
            writer.add_done_callback(self._writers.discard)
        return await waiting.done

    async def _write(self) -> None:
        while self._waiting:
            group = self._next_group()
            if len(group) < _WORTH_A_BATCH or not await self._commit(group):
                await asyncio.gather(*map(self._publish, group))

    def _next_group(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        size = 0
        while self._waiting and len(group) < _LARGEST and size < _LARGEST_BYTES:
            waiting = self._waiting.popleft()
            if not waiting.done.done():
                group.append(waiting)
                size += len(waiting.outgoing.data)
        return group

    async def _commit(self, group: Sequence[_Waiting]) -> bool:
        try:
            published = await self._bus.commit([waiting.outgoing for waiting in group], fence=None)
        except BusError as error:
            log.debug("%d messages are published one by one: %s", len(group), error)
            return False
        if published.duplicate:
            return False
        first = published.sequence - len(group) + 1
        for sequence, waiting in enumerate(group, start=first):
            if not waiting.done.done():
                waiting.done.set_result(Published(published.stream, sequence))
        return True

    async def _publish(self, waiting: _Waiting) -> None:
        try:
            published = await self._bus.publish_once(waiting.outgoing, deadline_s=waiting.deadline_s)
        except Exception as error:
            if not waiting.done.done():
                waiting.done.set_exception(error)
        else:
            if not waiting.done.done():
                waiting.done.set_result(published)
