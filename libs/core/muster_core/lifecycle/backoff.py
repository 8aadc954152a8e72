"""Counting and forgiving restarts.

Ten minutes without a restart reset the delay of every job. They also reset the failures of a service: it stays up for
months, and the limit should end what never comes up, not what fails once a week.
"""

from __future__ import annotations

from muster_core.models import JobKind, JobRecord

QUIET_US = 600_000_000
_FIRST_DELAY_MS = 1000
_LONGEST_DELAY_MS = 300_000
_MOST_DOUBLINGS = 9


def delay_ms(record: JobRecord, at: int) -> int:
    """Return the delay of the next restart after an end at ``at`` (µs): 1 s, doubled at every restart in a row, up to 5 min."""
    return min(_FIRST_DELAY_MS << min(restarts_at(record, at), _MOST_DOUBLINGS), _LONGEST_DELAY_MS)


def restarts_at(record: JobRecord, at: int) -> int:
    """Return the restarts in a row before ``at`` (µs)."""
    return 0 if _was_quiet(record, at) else record.restarts


def failures_at(record: JobRecord, at: int) -> int:
    """Return the failures before ``at`` (µs) that count against the back-off limit."""
    is_service = record.job is not None and record.job.kind is JobKind.SERVICE
    return 0 if is_service and _was_quiet(record, at) else record.failures


def _was_quiet(record: JobRecord, at: int) -> bool:
    return at - record.restarted_at >= QUIET_US
