"""Deadlines at which a live job is ended.

They follow from the record alone, so a new owner of the job knows them at once.
"""

from __future__ import annotations

import msgspec

from muster_core.lifecycle.builds import awaits_build
from muster_core.models import JobRecord, Phase

_US = 1_000_000


class Overrun(msgspec.Struct, frozen=True):
    """A deadline of a job: the time ``due`` (µs), and the code and message of missing it."""

    due: int
    code: str
    message: str


def deadlines_of(record: JobRecord) -> tuple[Overrun, ...]:
    """Return the current deadlines; the active deadline precedes the queue deadline."""
    return tuple(one for one in (_of_the_run(record), _of_the_wait(record)) if one is not None)


def _of_the_run(record: JobRecord) -> Overrun | None:
    seconds = record.job.run.active_deadline_s if record.job else None
    if seconds is None or not record.active_from:
        return None
    return Overrun(record.active_from + seconds * _US, "ActiveDeadline", f"ran longer than {seconds} s")


def _of_the_wait(record: JobRecord) -> Overrun | None:
    seconds = record.job.run.queue_deadline_s if record.job else None
    waits = record.attempt == 0 and record.phase is Phase.QUEUED and not awaits_build(record)
    if seconds is None or not waits:
        return None
    return Overrun(record.waiting_since + seconds * _US, "QueueDeadline", f"did not start within {seconds} s")
