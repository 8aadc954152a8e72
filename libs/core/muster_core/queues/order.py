"""The order of a queue, and when a job in it may start.

First in, first out with skip: priority, then time of arrival; a job that does not fit does not block those behind it.
"""

from __future__ import annotations

from muster_core.models import JobRecord, ReplicaState

QueueKey = tuple[int, int, str]
"""Sorts jobs as they are tried: priority descending, then arrival (µs), then job id."""

_US = 1_000_000
_LONGEST_BACKOFF_S = 60


def queue_key(record: JobRecord) -> QueueKey:
    """The place of a validated job among those that wait."""
    return (-record.job.priority if record.job else 0, record.queued_at, record.job_id)


def drained(record: JobRecord) -> bool:
    """Whether every replica of earlier attempts has ended, so that none can be in two places."""
    return all(replica.ended for replica in record.replicas)


def ready_at(record: JobRecord) -> int:
    """The instant (µs) from which a drained job may start: 0 for at once.

    A job whose replicas nodes keep rejecting comes back after 1, 2, 4, ... 60 s, from its second eviction on: placing it again at once
    would only repeat the rejection.
    """
    rejected = [
        r for r in record.replicas if r.attempt == record.attempt and r.state is ReplicaState.REJECTED
    ]
    if not rejected or record.evictions < 2:
        return record.not_before
    backoff = min(1 << min(record.evictions - 2, 16), _LONGEST_BACKOFF_S) * _US
    return max(record.not_before, max(replica.ended_at for replica in rejected) + backoff)
