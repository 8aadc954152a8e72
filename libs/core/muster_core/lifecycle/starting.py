"""Start timeouts: of the whole gang, and of replicas that join it later.

A gang that hangs half-started holds capacity without using it, and so does a growth that does not come up. Restarts of
members that have run once have their own back-off and limit.
"""

from __future__ import annotations

from muster_core.frameworks import held_back
from muster_core.models import JobRecord, Phase, ReplicaRecord

START_TIMEOUT = "StartTimeout"
"""The reason code of a start timeout."""

_US = 1_000_000
_STARTING = (Phase.PLACED, Phase.LAUNCHING)
_FIRST_GENERATION = 1


def start_timeout_of(record: JobRecord, default_s: int) -> int:
    """Return the start timeout in seconds: the job's, else ``default_s``; 0 for none."""
    said = record.job.run.start_timeout_s if record.job else None
    return default_s if said is None else said


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
    late = tuple(m for m in record.members() if not m.ended and not m.running_at and not m.restart)
    return tuple(m for m in late if not held_back(record, m)) or late


def late_joiners(record: JobRecord, default_s: int, now: int) -> tuple[ReplicaRecord, ...]:
    """Return the added replicas of a running gang that missed their start timeout at ``now`` (µs)."""
    timeout_us = start_timeout_of(record, default_s) * _US
    if not timeout_us or record.phase is not Phase.RUNNING:
        return ()
    return tuple(one for one in _joining(record) if _began(one) + timeout_us <= now)


def _joining(record: JobRecord) -> list[ReplicaRecord]:
    return [
        member
        for member in record.members()
        if member.generation > _FIRST_GENERATION and not member.ended and not member.running_at
    ]


def _began(joiner: ReplicaRecord) -> int:
    """Return from when (µs) the replica could start."""
    return max(joiner.placed_at, joiner.not_before)
