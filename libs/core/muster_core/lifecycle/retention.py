"""How long what is left of a finished job is kept: its record, and the replicas that its clean-up policy lets stay.

The job's own time to live decides, else the platform's; and where too many finished jobs are kept, those that ended first go first.
"""

from __future__ import annotations

import msgspec

from muster_core.models import JobRecord, Phase

_US = 1_000_000
_REJECTED_TTL_S = 3600
"""Whoever submitted a rejected document was told; its record is kept for a look, not for ever."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """What the platform keeps: jobs without a time to live for ``ttl_s`` seconds after their end, and at most ``most`` finished ones.

    0 is no bound.
    """

    ttl_s: int = 0
    most: int = 0


def ttl_end(record: JobRecord, retention: Retention | None = None) -> int | None:
    """The instant (µs) at which the time to live of a finished job is over; None where it has none."""
    if not record.terminal:
        return None
    if record.phase is Phase.REJECTED:
        return record.finished_at + _REJECTED_TTL_S * _US
    own = record.job.run.ttl_s if record.job else None
    ttl = own if own is not None else (retention.ttl_s or None) if retention else None
    return None if ttl is None else record.finished_at + ttl * _US


def stays_until(record: JobRecord) -> int | None:
    """The instant (µs) at which replicas that outlived their job have to go; None where none does, or nothing bounds it."""
    stays = any(not replica.ended and not replica.leaving for replica in record.replicas)
    return ttl_end(record) if stays else None


def outstays(record: JobRecord, now: int) -> bool:
    """Whether replicas that outlived their job have to go, as seen at ``now`` (µs)."""
    end = stays_until(record)
    return end is not None and now >= end
