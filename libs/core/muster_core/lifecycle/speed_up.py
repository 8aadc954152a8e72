"""The speed-up model: Amdahl's law, fitted to the job's progress reports.

With a serial fraction f, n workers are n / (1 + f (n - 1)) times as fast as one (Amdahl, 1967). Rates at two sizes
determine f; with more, f is the slope over the intercept of the least-squares line of n / rate over n - 1. All numbers
are rational, so every machine gets the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import msgspec

from muster_core.models import Throughput

MILLI = 1000
"""Thousandths of a worker, the unit of gains."""

_UNMEASURED = Fraction(14, 100)
"""The serial fraction of an unmeasured job."""

_US = 1_000_000


class SpeedUp(msgspec.Struct, frozen=True, kw_only=True):
    """``serial`` is the serial fraction, 0 to 1 in thousandths; ``sizes`` is the number of measured sizes.

    ``milli_rate`` is the rate of one worker in thousandths of a step per second, 0 if unknown.
    """

    serial: Fraction = _UNMEASURED
    sizes: int = 0
    milli_rate: int = 0

    def at(self, workers: int) -> Fraction:
        """Return how many times as fast as one worker ``workers`` are; 0 for none."""
        return workers / (1 + self.serial * (workers - 1)) if workers > 0 else Fraction(0)

    def gain(self, workers: int) -> Fraction:
        """Return what one more worker adds to ``workers``."""
        return self.at(workers + 1) - self.at(workers)


def speed_up_of(measured: Sequence[Throughput]) -> SpeedUp:
    """Return the model that fits the measurements best; a single size determines the rate but not the serial fraction."""
    points = [
        (one.workers - 1, Fraction(one.workers * one.micros, one.steps * _US))
        for one in measured
        if one.steps > 0 and one.micros > 0 and one.workers > 0
    ]
    sizes = len({x for x, _ in points})
    if not sizes:
        return SpeedUp()
    if sizes == 1:
        x, y = points[0]
        return SpeedUp(sizes=1, milli_rate=_milli((1 + _UNMEASURED * x) / y))
    slope, intercept = _line(points)
    if intercept <= 0:
        return SpeedUp(serial=Fraction(1), sizes=sizes)
    serial = min(max(slope / intercept, Fraction(0)), Fraction(1))
    return SpeedUp(serial=Fraction(_milli(serial), MILLI), sizes=sizes, milli_rate=_milli(1 / intercept))


def _line(points: Sequence[tuple[int, Fraction]]) -> tuple[Fraction, Fraction]:
    """Return slope and intercept of the least-squares line through points of at least two different x."""
    mean_x = Fraction(sum(x for x, _ in points), len(points))
    mean_y = sum((y for _, y in points), Fraction(0)) / len(points)
    spread = sum(((x - mean_x) ** 2 for x, _ in points), Fraction(0))
    slope = sum(((x - mean_x) * (y - mean_y) for x, y in points), Fraction(0)) / spread
    return slope, mean_y - slope * mean_x


def _milli(value: Fraction) -> int:
    return round(value * MILLI)
