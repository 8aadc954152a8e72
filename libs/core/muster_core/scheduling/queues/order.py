"""The order of a queue, and when a job in it may start.

First in, first out with skip: priority, then time of arrival; a job that does not fit does not block those behind it.
"""

from __future__ import annotations

from muster_core.models import JobRecord

QueueKey = tuple[int, int, str]
"""Sorts jobs as they are tried: priority descending, then arrival (µs), then job id."""


def queue_key(record: JobRecord) -> QueueKey:
    """The place of a validated job among those that wait."""
    return (-record.job.priority if record.job else 0, record.queued_at, record.job_id)


def drained(record: JobRecord) -> bool:
    """Whether every replica of earlier attempts has ended, so that none can be in two places."""
    return all(replica.ended for replica in record.replicas)


def ready_at(record: JobRecord) -> int:
    """The instant (µs) from which a drained job may start: 0 for at once."""
    return record.not_before
