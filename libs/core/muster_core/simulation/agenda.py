"""What is to happen, in the order in which it does: by instant, and at one instant in the order in which it was planned."""

from __future__ import annotations

import heapq
from collections.abc import Callable

Event = Callable[[], None]


class Agenda:
    """Events to come, at instants in µs."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Event]] = []
        self._planned = 0

    def plan(self, at: int, event: Event) -> None:
        """Let ``event`` happen at ``at``."""
        self._planned += 1
        heapq.heappush(self._heap, (at, self._planned, event))

    def next_at(self) -> int | None:
        """The instant of the next event, or None where none is planned."""
        return self._heap[0][0] if self._heap else None

    def take(self, now: int) -> Event | None:
        """The next event up to ``now``, or None."""
        if not self._heap or self._heap[0][0] > now:
            return None
        return heapq.heappop(self._heap)[2]
