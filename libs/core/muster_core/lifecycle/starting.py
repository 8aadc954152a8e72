"""How long replicas may take from their placement until they have started: the gang as a whole, and later those who join it.

A gang that hangs half-started holds room and does nothing with it, and so does a growth that does not come up. Restarts of members that
have run once are another matter: those have their own back-off and limit.
"""

from __future__ import annotations

from muster_core.frameworks import held_back
from muster_core.models import JobRecord, Phase, ReplicaRecord

START_TIMEOUT = "StartTimeout"
"""The code of what is given up because it did not start in time."""

_US = 1_000_000
_STARTING = (Phase.PLACED, Phase.LAUNCHING)
_FIRST_GENERATION = 1


def start_timeout_of(record: JobRecord, default_s: int) -> int:
    """The seconds that its start may take: what the job says, else ``default_s``; 0 where there is no bound."""
    said = record.job.run.start_timeout_s if record.job else None
    return default_s if said is None else said


def start_due(record: JobRecord, default_s: int) -> int | None:
    """The instant (µs) by which the whole gang, or the first of those who joined it later, must have started.

    None where nothing of it is still to start, or nothing bounds it.
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
    """The members that have not started yet in this attempt, those left out that wait for others of the gang."""
    late = tuple(m for m in record.members() if not m.ended and not m.running_at and not m.restart)
    return tuple(m for m in late if not held_back(record, m)) or late


def late_joiners(record: JobRecord, default_s: int, now: int) -> tuple[ReplicaRecord, ...]:
    """Those who joined a running gang and had not started when their time was over, as seen at ``now`` (µs)."""
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
    """From when on (µs) it could start."""
    return max(joiner.placed_at, joiner.not_before)
