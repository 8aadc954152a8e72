"""Retries of calls. Every call of the API is idempotent, so only the time limit matters."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

DEFAULT_RETRY_TIMEOUT_S = 30.0
"""Seconds for which a call is retried while the server is unavailable."""

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


class Retries:
    """The attempts of one call: pauses double from 0.1 s to 2 s, with jitter, until ``retry_timeout_s`` have passed without success."""

    def __init__(
        self,
        retry_timeout_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._retry_timeout_s = retry_timeout_s
        self._clock = clock
        self._jitter = jitter
        self.reset()

    def reset(self) -> None:
        """Restart the time limit after a success."""
        self._deadline = self._clock() + self._retry_timeout_s
        self._pause_s = _FIRST_PAUSE_S

    def remaining_s(self) -> float:
        """Return the seconds left; never quite 0, so that a last call is possible."""
        return max(0.01, self._deadline - self._clock())

    def pause_s(self) -> float | None:
        """Return the pause before the next attempt, or None when the time is up."""
        pause = self._pause_s * (0.75 + self._jitter() / 2)
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
        return pause if self._clock() + pause < self._deadline else None
