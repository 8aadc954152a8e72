"""Deadlines of a job: run and queue deadlines, start timeouts, and the time to live of its record.

They follow from the record alone, so a new owner of the job knows them at once.
"""

from __future__ import annotations

import msgspec

from muster_core.frameworks import start_order_reason
from muster_core.lifecycle.job_kinds import awaits_build
from muster_core.models import JobRecord, Phase, ReplicaRecord

_US = 1_000_000


class Deadline(msgspec.Struct, frozen=True):
    """A deadline of a job: the time ``due`` (µs), and the code and message of missing it."""

    due: int
    code: str
    message: str


def deadlines_of(record: JobRecord) -> tuple[Deadline, ...]:
    """Return the current deadlines; the active deadline precedes the queue deadline."""
    return tuple(one for one in (_of_the_run(record), _of_the_wait(record)) if one is not None)


def _of_the_run(record: JobRecord) -> Deadline | None:
    seconds = record.job.run.active_deadline_s if record.job else None
    if seconds is None or not record.active_from:
        return None
    return Deadline(record.active_from + seconds * _US, "ActiveDeadline", f"ran longer than {seconds} s")


def _of_the_wait(record: JobRecord) -> Deadline | None:
    seconds = record.job.run.queue_deadline_s if record.job else None
    waits = record.attempt == 0 and record.phase is Phase.QUEUED and not awaits_build(record)
    if seconds is None or not waits:
        return None
    return Deadline(
        record.waiting_since + seconds * _US, "QueueDeadline", f"did not start within {seconds} s"
    )


START_TIMEOUT = "StartTimeout"
"""The reason code of a start timeout."""

_STARTING = (Phase.PLACED, Phase.LAUNCHING)
_FIRST_GENERATION = 1


def start_timeout_of(record: JobRecord, default_s: int) -> int:
    """Return the start timeout in seconds: the job's, else ``default_s``; 0 for none."""
    timeout = record.job.run.start_timeout_s if record.job else None
    return default_s if timeout is None else timeout


def start_due(record: JobRecord, default_s: int) -> int | None:
    """Return when (µs) the whole gang, or the first of the added replicas, must have started.

    None if all have started, or there is no timeout.
    """
    timeout_us = start_timeout_of(record, default_s) * _US
    if not timeout_us or record.cancel_requested:
        return None
    if record.phase in _STARTING and unstarted(record):
        return record.placed_at + timeout_us
    if record.phase is Phase.RUNNING:
        return min((_began(one) + timeout_us for one in _joining(record)), default=None)
    return None


def unstarted(record: JobRecord) -> tuple[ReplicaRecord, ...]:
    """Return the members that have not started in this attempt, except those that wait for others of the gang."""
    late = tuple(m for m in record.gang() if not m.ended and not m.running_at and not m.restart)
    return tuple(m for m in late if not start_order_reason(record, m)) or late


def late_additions(record: JobRecord, default_s: int, now: int) -> tuple[ReplicaRecord, ...]:
    """Return the added replicas of a running gang that missed their start timeout at ``now`` (µs)."""
    timeout_us = start_timeout_of(record, default_s) * _US
    if not timeout_us or record.phase is not Phase.RUNNING:
        return ()
    return tuple(one for one in _joining(record) if _began(one) + timeout_us <= now)


def _joining(record: JobRecord) -> list[ReplicaRecord]:
    return [
        member
        for member in record.gang()
        if member.generation > _FIRST_GENERATION and not member.ended and not member.running_at
    ]


def _began(joiner: ReplicaRecord) -> int:
    """Return from when (µs) the replica could start."""
    return max(joiner.placed_at, joiner.not_before)


_REJECTED_TTL_S = 3600
"""The submitter has seen the rejection; its record is kept for inspection only."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """The platform's retention: ``ttl_s`` seconds for jobs without a time to live, and at most ``most`` ended jobs.

    0 means unlimited.
    """

    ttl_s: int = 0
    most: int = 0


def expiry(record: JobRecord, retention: Retention | None = None) -> int | None:
    """Return when (µs) the time to live of an ended job is over, or None."""
    if not record.terminal:
        return None
    if record.phase is Phase.REJECTED:
        return record.finished_at + _REJECTED_TTL_S * _US
    own = record.job.run.ttl_s if record.job else None
    ttl = own if own is not None else (retention.ttl_s or None) if retention else None
    return None if ttl is None else record.finished_at + ttl * _US


def replicas_kept_until(record: JobRecord) -> int | None:
    """Return when (µs) replicas that outlived their job must stop, or None."""
    stays = any(not replica.ended and not replica.terminating for replica in record.replicas)
    return expiry(record) if stays else None


def replicas_outlived(record: JobRecord, now: int) -> bool:
    """Return whether replicas that outlived their job must stop at ``now`` (µs)."""
    end = replicas_kept_until(record)
    return end is not None and now >= end
