"""Restarts that a user asks for: of the whole gang, or of one replica. Neither is a failure, and neither is held back.

The command itself moves the job, so that it is settled by its order in the stream against a failure, an eviction or an end.
"""

from __future__ import annotations

import msgspec

from muster_core.events import CommandRequested
from muster_core.lifecycle.members import send_away
from muster_core.lifecycle.moves import ACTIVE_PHASES
from muster_core.models import JobRecord, Phase, Reason, ReplicaState

RESTART_REQUESTED = "RestartRequested"
"""The code of what is started again because its user wants it so."""


def restart_commanded(record: JobRecord, event: CommandRequested, at: int) -> JobRecord:
    """What becomes of a job that is told to start again; one that does not run, or is about to end, takes no notice."""
    if record.phase not in ACTIVE_PHASES or record.cancel_requested:
        return record
    return _restart_replica(record, event) if event.role else _restart_gang(record, event, at)


def _restart_gang(record: JobRecord, event: CommandRequested, at: int) -> JobRecord:
    return msgspec.structs.replace(
        record,
        phase=Phase.RESTARTING,
        replicas=send_away(record),
        reason=Reason(code=RESTART_REQUESTED, message=f"{event.by or 'its user'} has it started again"),
        waiting_since=at,
        not_before=0,
    )


def _restart_replica(record: JobRecord, event: CommandRequested) -> JobRecord:
    """The replica is asked to end; that it has ended is told by the runtime, and starting it again follows from that."""
    key = (event.role, event.target)
    named = [m for m in record.members() if m.key == key and _runs(m.state)]
    if not named:
        return record
    words = f"{event.by or 'its user'} has {event.role}-{event.target} started again"
    return msgspec.structs.replace(
        record,
        replicas=tuple(
            msgspec.structs.replace(one, restarting=True) if one in named else one for one in record.replicas
        ),
        reason=Reason(code=RESTART_REQUESTED, message=words),
    )


def _runs(state: ReplicaState) -> bool:
    return state in (ReplicaState.LAUNCHED, ReplicaState.RUNNING)
