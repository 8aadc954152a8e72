"""What progress reports tell about a job: its step, and its speed at each size.

Speeds are stored as steps and microseconds and never divided here, so that comparisons are exact.
"""

from __future__ import annotations

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
    speakers = {member.key for member in record.members() if not member.ended}
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
        workers = sum(1 for member in record.members() if computes(member.role))
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
