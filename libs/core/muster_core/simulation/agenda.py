"""The event queue: ordered by time, then by insertion."""

from __future__ import annotations

import heapq
from collections.abc import Callable

Event = Callable[[], None]


class Agenda:
    """Future events, at times in µs."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Event]] = []
        self._planned = 0

    def plan(self, at: int, event: Event) -> None:
        """Schedule ``event`` at ``at``."""
        self._planned += 1
        heapq.heappush(self._heap, (at, self._planned, event))

    def next_at(self) -> int | None:
        """Return the time of the next event, or None."""
        return self._heap[0][0] if self._heap else None

    def take(self, now: int) -> Event | None:
        """Remove and return the next event up to ``now``, or None."""
        if not self._heap or self._heap[0][0] > now:
            return None
        return heapq.heappop(self._heap)[2]
