"""When a call is made again. Every call of the API can be repeated, so the only question is for how long."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

DEFAULT_PATIENCE_S = 30.0
"""Seconds for which a call is repeated while Muster is away."""

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


class Attempts:
    """The attempts of one call: pauses double from 0.1 s to 2 s, with jitter, until ``patience_s`` have passed without success."""

    def __init__(
        self,
        patience_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._jitter = jitter
        self.reset()

    def reset(self) -> None:
        """Something came through: patience begins anew."""
        self._deadline = self._clock() + self._patience_s
        self._pause_s = _FIRST_PAUSE_S

    def remaining_s(self) -> float:
        """Seconds until patience ends; never quite 0, so that a last call is still a call."""
        return max(0.01, self._deadline - self._clock())

    def pause_s(self) -> float | None:
        """Seconds to wait before the next attempt; None when patience has ended."""
        pause = self._pause_s * (0.75 + self._jitter() / 2)
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
        return pause if self._clock() + pause < self._deadline else None
