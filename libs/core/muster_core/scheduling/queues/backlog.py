"""How many wait that could start if there were room, and since when: what tells a scaler that growing others can wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from muster_core.scheduling.placement import Gang, gang_of
from muster_core.scheduling.queues.index import PoolIndex
from muster_core.scheduling.queues.lines import Line
from muster_core.scheduling.queues.sizes import gang_amounts, smallest


class Backlog(NamedTuple):
    """``number`` jobs, the longest waiting of them since ``oldest`` (µs, None: nobody waits)."""

    number: int
    oldest: int | None


def backlog(index: PoolIndex, could_start: Callable[[Gang], bool]) -> Backlog:
    """The jobs that only wait for room, or for an end of their own, and that the empty pool could hold (``could_start``)."""
    number = 0
    since: list[int] = []
    for line in index.lines:
        needed = gang_amounts(smallest(line.shape.gang))
        if could_start(line.shape.gang) and index.ledger.barrier(line.shape.queue, needed) is None:
            one = _of_line(line, index)
            number += one.number
            since += [] if one.oldest is None else [one.oldest]
    for job_id in index.draining:
        record = index.records[job_id]
        if record.job is not None and could_start(gang_of(record.job)):
            number += 1
            since.append(record.waiting_since)
    return Backlog(number, min(since, default=None))


def _of_line(line: Line, index: PoolIndex) -> Backlog:
    if line.oldest is not None:
        return Backlog(len(line.keys), line.oldest)
    records = [index.records[job_id] for _, _, job_id in line.keys]
    waiting = [record for record in records if index.holder_of_name(record) is None]
    oldest = min((record.waiting_since for record in waiting), default=None)
    if len(waiting) == len(records):
        line.oldest = oldest
    return Backlog(len(waiting), oldest)
