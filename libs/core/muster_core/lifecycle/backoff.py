"""How restarts in a row are counted, and when they are forgiven.

Ten quiet minutes forgive the delay of every job. They forgive a service its failures too: it is meant to stay up for months, and a limit
on failures is there to end what does not come up at all, not what breaks once a week.
"""

from __future__ import annotations

from muster_core.models import JobKind, JobRecord

QUIET_US = 600_000_000
_FIRST_DELAY_MS = 1000
_LONGEST_DELAY_MS = 300_000
_MOST_DOUBLINGS = 9


def delay_ms(record: JobRecord, at: int) -> int:
    """How long the next restart is held back, for what ended at ``at`` (µs): 1 s, doubled at every restart in a row, up to 5 min."""
    return min(_FIRST_DELAY_MS << min(restarts_at(record, at), _MOST_DOUBLINGS), _LONGEST_DELAY_MS)


def restarts_at(record: JobRecord, at: int) -> int:
    """The restarts in a row before ``at`` (µs)."""
    return 0 if _was_quiet(record, at) else record.restarts


def failures_at(record: JobRecord, at: int) -> int:
    """The failures before ``at`` (µs) that count against the job's limit."""
    is_service = record.job is not None and record.job.kind is JobKind.SERVICE
    return 0 if is_service and _was_quiet(record, at) else record.failures


def _was_quiet(record: JobRecord, at: int) -> bool:
    return at - record.restarted_at >= QUIET_US
