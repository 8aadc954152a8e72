"""The position of a receiver in a partition: which events have been delivered or dead-lettered."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from muster_bus import Bus, KeyValueStore
from muster_bus.messages import UNREADABLE
from muster_events.catalogue import JOBS_STREAM, WEBHOOKS_BUCKET

log = logging.getLogger(__name__)


class Position(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything up to sequence ``through`` is finished, and so are the later sequences in ``beyond``."""

    through: int
    beyond: tuple[int, ...] = ()


class PositionStore:
    """The stored position of one receiver in one partition, written by compare-and-set."""

    def __init__(self, bus: Bus, *, receiver: str, partition: int) -> None:
        self._bus = bus
        self._records = KeyValueStore(bus, WEBHOOKS_BUCKET)
        self._key = f"{receiver}.{partition}"
        self._revision = 0

    async def load(self) -> Position:
        """Load the position; a new receiver starts at the end of the stream, and that position is stored at once.

        Raises ``WrongSequence`` if another instance stores one at the same time, ``BusUnavailable``.
        """
        entry = await self._records.get(self._key)
        self._revision = entry.revision if entry is not None else 0
        if entry is not None:
            try:
                return msgspec.json.decode(entry.value, type=Position)
            except UNREADABLE as error:
                log.error(
                    "position %s cannot be read (%s): its receiver gets what happens from now on",
                    self._key,
                    error,
                )
        position = Position(through=await self._bus.last_sequence(JOBS_STREAM))
        await self.save(position)
        return position

    async def save(self, position: Position) -> None:
        """Store the position. Raises ``WrongSequence`` if another instance owns the partition now, ``BusUnavailable``."""
        self._revision = await self._records.put(
            self._key, msgspec.json.encode(position), expected=self._revision
        )


class PendingNotifications:
    """Sequences between the position and the last read event; they may finish in any order."""

    def __init__(self, position: Position) -> None:
        self.read_through = position.through
        self._finished_before = frozenset(position.beyond)
        self._done = set(position.beyond)
        self._waiting: set[int] = set()
        self._finished = asyncio.Event()
        self._progressed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, sequence: int) -> bool:
        """Return whether the sequence still needs a delivery; then it is pending."""
        if sequence in self._finished_before:
            return False
        self._waiting.add(sequence)
        return True

    def finish(self, sequence: int) -> None:
        """Mark a sequence as finished."""
        self._waiting.discard(sequence)
        self._done.add(sequence)
        self._progressed = True
        self._finished.set()

    def take_progress(self) -> bool:
        """Return whether anything has finished since the last call."""
        progressed, self._progressed = self._progressed, False
        return progressed

    async def until_below(self, count: int) -> None:
        """Return when fewer than ``count`` are pending."""
        while len(self._waiting) >= count:
            self._finished.clear()
            await self._finished.wait()

    def position(self) -> Position:
        """Return the current position, and drop finished sequences before it."""
        through = min(self._waiting) - 1 if self._waiting else self.read_through
        self._done = {sequence for sequence in self._done if sequence > through}
        return Position(through=through, beyond=tuple(sorted(self._done)))
