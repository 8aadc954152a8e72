"""Retention of ended jobs: their records, and replicas that their clean-up policy keeps.

The job's own time to live decides, else the platform's; if too many ended jobs are kept, the oldest go first.
"""

from __future__ import annotations

import msgspec

from muster_core.models import JobRecord, Phase

_US = 1_000_000
_REJECTED_TTL_S = 3600
"""The submitter has seen the rejection; its record is kept for inspection only."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """The platform's retention: ``ttl_s`` seconds for jobs without a time to live, and at most ``most`` ended jobs.

    0 means unlimited.
    """

    ttl_s: int = 0
    most: int = 0


def ttl_end(record: JobRecord, retention: Retention | None = None) -> int | None:
    """Return when (µs) the time to live of an ended job is over, or None."""
    if not record.terminal:
        return None
    if record.phase is Phase.REJECTED:
        return record.finished_at + _REJECTED_TTL_S * _US
    own = record.job.run.ttl_s if record.job else None
    ttl = own if own is not None else (retention.ttl_s or None) if retention else None
    return None if ttl is None else record.finished_at + ttl * _US


def stays_until(record: JobRecord) -> int | None:
    """Return when (µs) replicas that outlived their job must stop, or None."""
    stays = any(not replica.ended and not replica.leaving for replica in record.replicas)
    return ttl_end(record) if stays else None


def outstays(record: JobRecord, now: int) -> bool:
    """Return whether replicas that outlived their job must stop at ``now`` (µs)."""
    end = stays_until(record)
    return end is not None and now >= end
