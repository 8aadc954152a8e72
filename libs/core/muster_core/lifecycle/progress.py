"""Progress reports of a job: its step, its speed at each size, and the speed-up model that fits these speeds.

Speeds are stored as steps and microseconds and never divided in the record, so that comparisons are exact. The model is
Amdahl's law: with a serial fraction f, n workers are n / (1 + f (n - 1)) times as fast as one (Amdahl, 1967). Rates at two
sizes determine f; with more, f is the slope over the intercept of the least-squares line of n / rate over n - 1. All
numbers are rational, so every machine gets the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import msgspec

from muster_core.events import ProgressReported
from muster_core.frameworks import computes
from muster_core.models import JobRecord, Progress, Throughput

_SIZES_KEPT = 16
_SILENCE_US = 60_000_000
"""After this time another replica may report for the job."""

_WINDOW_US = 600_000_000
"""The time span that measurements of a size cover, so that changes of the program show."""


def with_progress(record: JobRecord, event: ProgressReported, at: int) -> JobRecord:
    """Return the record after a report stored at ``at`` (µs); one of another attempt, or of a replica that has left,
    changes nothing.

    One replica reports for the job. The difference between two of its reports within one generation is a measurement; the
    first report of a generation only starts one, because the resize itself takes time.
    """
    speakers = {member.key for member in record.gang() if not member.ended}
    if event.attempt != record.attempt or (event.role, event.index) not in speakers:
        return record
    before = record.progress
    same_attempt = before is not None and before.attempt == event.attempt
    if before is not None and same_attempt and (before.role, before.index) != (event.role, event.index):
        if (before.role, before.index) in speakers and event.at < before.at + _SILENCE_US:
            return record
        before = None
    if before is not None and same_attempt and event.at <= before.at:
        return record
    throughput = record.throughput
    if before is not None and same_attempt and before.generation == record.generation:
        workers = sum(1 for member in record.gang() if computes(member.role))
        throughput = _measured(throughput, workers, event.step - before.step, event.at - before.at)
    progress = Progress(
        role=event.role,
        index=event.index,
        attempt=event.attempt,
        generation=record.generation,
        step=event.step,
        at=min(event.at, at),
        metrics=event.metrics,
    )
    return msgspec.structs.replace(record, progress=progress, throughput=throughput)


def _measured(known: tuple[Throughput, ...], workers: int, steps: int, micros: int) -> tuple[Throughput, ...]:
    """Return ``known`` with one more measurement; a program that returned to a checkpoint measures nothing."""
    if steps < 0 or micros <= 0 or workers < 1:
        return known
    by_size = {one.workers: one for one in known}
    old = by_size.pop(workers, Throughput(workers=workers, steps=0, micros=0))
    steps, micros = old.steps + steps, old.micros + micros
    if micros > _WINDOW_US:
        steps, micros = steps * _WINDOW_US // micros, _WINDOW_US
    by_size[workers] = Throughput(workers=workers, steps=steps, micros=micros)
    latest = list(by_size.values())[-_SIZES_KEPT:]
    return tuple(sorted(latest, key=lambda one: one.workers))


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
