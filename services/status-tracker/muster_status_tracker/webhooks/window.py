"""What was read and is not dealt with yet, and the place that follows from it."""

from __future__ import annotations

import asyncio

from muster_status_tracker.webhooks.places import Place


class Window:
    """Sequences between the place and what was read last. Later ones may be done before earlier ones."""

    def __init__(self, place: Place) -> None:
        self.read_through = place.through
        self._told_before = frozenset(place.beyond)
        self._done = set(place.beyond)
        self._waiting: set[int] = set()
        self._finished = asyncio.Event()
        self._told = False

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, sequence: int) -> bool:
        """Whether what is at a sequence is to be told; it then counts as waiting."""
        if sequence in self._told_before:
            return False
        self._waiting.add(sequence)
        return True

    def finish(self, sequence: int) -> None:
        """What is at the sequence is dealt with."""
        self._waiting.discard(sequence)
        self._done.add(sequence)
        self._told = True
        self._finished.set()

    def take_news(self) -> bool:
        """Whether anything was dealt with since the last call."""
        told, self._told = self._told, False
        return told

    async def until_below(self, count: int) -> None:
        """Return when fewer than ``count`` wait."""
        while len(self._waiting) >= count:
            self._finished.clear()
            await self._finished.wait()

    def place(self) -> Place:
        """The place now; what it has passed is forgotten."""
        through = min(self._waiting) - 1 if self._waiting else self.read_through
        self._done = {sequence for sequence in self._done if sequence > through}
        return Place(through=through, beyond=tuple(sorted(self._done)))
