"""How often a reader lets itself be woken.

A message that is read alone costs its reader and the broker ten times what it costs among others: a wake-up, a write to a
socket, a commit. At a few messages a second that is nothing, and each is read as it comes. At hundreds it is most of what a
machine does; so whoever has been woken often of late leaves the messages in the stream for a moment and reads them together.
"""

import math
from random import random

_TURNS = 8
TICK_S = 0.025
"""How long messages gather, seconds, where whoever reads them does not say otherwise."""

_PHASE = random()  # noqa: S311 - no secret
"""All readers of a process wake at the same ticks, so that their work is done in one go; different processes do not."""


class Pace:
    """Turns at reading: ``turns`` of them at once, and one more for every tick (``tick_s`` seconds) that passes."""

    def __init__(self, *, turns: int = _TURNS, tick_s: float = TICK_S) -> None:
        self._most = float(turns)
        self._tick_s = tick_s
        self._left = self._most
        self._counted_at = 0.0

    def spend(self, now: float) -> float:
        """Use a turn at ``now`` (seconds of the loop's clock); the instant from which on there is another."""
        gained = (now - self._counted_at) / self._tick_s
        self._left = max(min(self._left + gained, self._most) - 1, 0.0)
        self._counted_at = now
        return now if self._left >= 1 else self._tick_after(now)

    def _tick_after(self, now: float) -> float:
        return (math.floor(now / self._tick_s - _PHASE) + 1 + _PHASE) * self._tick_s
