"""How often a reader wakes up.

A message that is read alone costs its reader and the broker ten times what it costs in a batch: a wake-up, a socket
write, a commit. At a few messages a second that does not matter and each is read as it arrives. At hundreds it dominates;
a reader that woke up often then leaves messages in the stream for a moment and reads them together.
"""

import math
from random import random

_TURNS = 8
TICK_S = 0.025
"""The default time that messages gather, in seconds."""

_PHASE = random()  # noqa: S311 - no secret
"""All readers of a process wake at the same ticks, so that they work together; other processes do not."""


class Pace:
    """A budget of reads: ``turns`` at once, and one more for every tick (``tick_s`` seconds)."""

    def __init__(self, *, turns: int = _TURNS, tick_s: float = TICK_S) -> None:
        self._most = float(turns)
        self._tick_s = tick_s
        self._left = self._most
        self._counted_at = 0.0

    def spend(self, now: float) -> float:
        """Use one read at ``now`` (seconds of the loop's clock); returns when the next one is available."""
        gained = (now - self._counted_at) / self._tick_s
        self._left = max(min(self._left + gained, self._most) - 1, 0.0)
        self._counted_at = now
        return now if self._left >= 1 else self._tick_after(now)

    def _tick_after(self, now: float) -> float:
        return (math.floor(now / self._tick_s - _PHASE) + 1 + _PHASE) * self._tick_s
