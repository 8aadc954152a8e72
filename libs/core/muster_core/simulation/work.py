"""The work of a job: an amount, and its speed-up with more workers.

All integers, so that a simulation ends at the same microsecond on every machine.
"""

from __future__ import annotations

import msgspec

_WHOLE = 1000
_NS_PER_US = 1000
_NS_PER_STEP = 1_000_000
_US = 1_000_000

ASSUMED_SERIAL = 140
"""The default serial fraction, in thousandths."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """``amount_us`` is the time (µs) of one worker alone, None for endless work.

    ``serial`` is the serial fraction in thousandths: by Amdahl's law ``n`` workers are ``n / (1 + f (n - 1))`` times as
    fast as one. With 1000, the default, any number takes equally long: a fixed duration.
    """

    amount_us: int | None
    serial: int = _WHOLE

    @property
    def is_fixed(self) -> bool:
        """Whether the number of workers changes nothing."""
        return self.serial >= _WHOLE


def fixed(seconds: float) -> Work:
    """Return work that takes ``seconds`` with any number of workers."""
    return Work(amount_us=round(seconds * _US))


def endless() -> Work:
    """Return endless work."""
    return Work(amount_us=None)


def scalable(worker_seconds: float, serial: int = ASSUMED_SERIAL) -> Work:
    """Return work that takes one worker ``worker_seconds``, with ``serial`` thousandths that more workers do not speed up."""
    return Work(amount_us=round(worker_seconds * _US), serial=serial)


def taking(seconds: float, workers: int, serial: int = ASSUMED_SERIAL) -> Work:
    """Return work that takes ``workers`` workers ``seconds``."""
    numerator, denominator = speed(workers, serial)
    return Work(amount_us=round(seconds * _US) * numerator // denominator, serial=serial)


def speed(workers: int, serial: int) -> tuple[int, int]:
    """Return how many times as fast as one worker ``workers`` are, as numerator and denominator."""
    return workers * _WHOLE, _WHOLE + serial * (workers - 1)


class Progress:
    """The progress of some work while its workers come and go. Times are µs.

    ``pause_us`` is the standstill after a change of the number of workers; what was computed since the last checkpoint,
    one every ``checkpoint_us`` (0: continuous), is lost if an attempt ends before the work does.
    """

    def __init__(self, work: Work, *, pause_us: int = 0, checkpoint_us: int = 0) -> None:
        self.workers = 0
        self._work = work
        self._pause_us = pause_us
        self._checkpoint_us = checkpoint_us
        self._left_ns = None if work.amount_us is None else work.amount_us * _NS_PER_US
        self._begun_with_ns = self._left_ns
        self._since = 0
        self._ran_us = 0
        self._done_ns = 0
        self._computed_with = 1

    @property
    def done(self) -> bool:
        """Whether nothing is left."""
        return self._left_ns is not None and self._left_ns <= 0

    def steps_at(self, now: int) -> int:
        """What is done, in thousandths of a second of one worker, which a program would report as steps."""
        self._advance(now)
        return self._done_ns // _NS_PER_STEP

    def work_with(self, workers: int, now: int) -> None:
        """Continue with this many workers from ``now`` on; 0 stand still."""
        self._advance(now)
        pause = self._pause_us if self.workers and workers else 0
        self.workers = workers
        self._computed_with = workers or self._computed_with
        self._since = max(self._since, now + pause)

    def end_attempt(self, now: int) -> None:
        """End the attempt: what no checkpoint holds is lost. A no-op if it has ended already."""
        self._advance(now)
        if self._left_ns is not None and self._checkpoint_us and not self.done:
            lost_us = self._ran_us % self._checkpoint_us
            numerator, denominator = speed(self._computed_with, self._work.serial)
            lost_ns = lost_us * _NS_PER_US * numerator // denominator
            left_ns = min(self._left_ns + lost_ns, self._begun_with_ns or 0)
            self._done_ns -= left_ns - self._left_ns
            self._left_ns = left_ns
        self._begun_with_ns = self._left_ns
        self._ran_us = 0
        self.workers = 0

    def finished_at(self) -> int | None:
        """Return when the work is done if nothing changes, or None."""
        if self._left_ns is None or not self.workers:
            return None
        numerator, denominator = speed(self.workers, self._work.serial)
        return self._since + -(-max(self._left_ns, 0) * denominator // (_NS_PER_US * numerator))

    def _advance(self, now: int) -> None:
        elapsed = now - self._since
        if elapsed <= 0:
            return
        self._since = now
        if self.workers and self._left_ns is not None:
            numerator, denominator = speed(self.workers, self._work.serial)
            done_ns = elapsed * _NS_PER_US * numerator // denominator
            self._left_ns -= done_ns
            self._done_ns += done_ns
            self._ran_us += elapsed
