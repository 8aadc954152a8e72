"""How long a gang may take from its placement until all of it has started.

A gang that hangs half-started holds room and does nothing with it. Restarts of members that have run once are another matter: those have
their own back-off and limit.
"""

from __future__ import annotations

from muster_core.frameworks import held_back
from muster_core.models import JobRecord, Phase, ReplicaRecord

_US = 1_000_000
_STARTING = (Phase.PLACED, Phase.LAUNCHING)


def start_timeout_of(record: JobRecord, default_s: int) -> int:
    """The seconds that its start may take: what the job says, else ``default_s``; 0 where there is no bound."""
    said = record.job.run.start_timeout_s if record.job else None
    return default_s if said is None else said


def start_due(record: JobRecord, default_s: int) -> int | None:
    """The instant (µs) by which the whole gang must have started; None where nothing of it is still to start, or nothing bounds it."""
    timeout_s = start_timeout_of(record, default_s)
    if not timeout_s or record.phase not in _STARTING or record.cancel_requested or not unstarted(record):
        return None
    return record.placed_at + timeout_s * _US


def unstarted(record: JobRecord) -> tuple[ReplicaRecord, ...]:
    """The members that have not started yet in this attempt, those left out that wait for others of the gang."""
    late = tuple(m for m in record.members() if not m.ended and not m.running_at and not m.restart)
    return tuple(m for m in late if not held_back(record, m)) or late
