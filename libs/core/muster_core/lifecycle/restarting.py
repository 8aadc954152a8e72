"""Restarts on request: of the whole gang, or of one replica. They are not failures and have no back-off.

The command itself changes the phase, so that stream order settles it against a failure, an eviction or an end.
"""

from __future__ import annotations

import msgspec

from muster_core.events import CommandRequested
from muster_core.lifecycle.members import send_away
from muster_core.lifecycle.moves import ACTIVE_PHASES
from muster_core.models import JobRecord, Phase, Reason, ReplicaState

RESTART_REQUESTED = "RestartRequested"
"""The reason code of a requested restart."""


def restart_commanded(record: JobRecord, event: CommandRequested, at: int) -> JobRecord:
    """Return the record after a restart command; a job that does not run, or is about to end, ignores it."""
    if record.phase not in ACTIVE_PHASES or record.cancel_requested:
        return record
    return _restart_replica(record, event) if event.role else _restart_gang(record, event, at)


def _restart_gang(record: JobRecord, event: CommandRequested, at: int) -> JobRecord:
    return msgspec.structs.replace(
        record,
        phase=Phase.RESTARTING,
        replicas=send_away(record),
        reason=Reason(code=RESTART_REQUESTED, message=f"restart requested by {event.by or 'its user'}"),
        waiting_since=at,
        not_before=0,
    )


def _restart_replica(record: JobRecord, event: CommandRequested) -> JobRecord:
    """Return the record with the replica terminating; the runtime reports its end, and the restart follows from that."""
    key = (event.role, event.target)
    named = [m for m in record.members() if m.key == key and _runs(m.state)]
    if not named:
        return record
    words = f"restart of {event.role}-{event.target} requested by {event.by or 'its user'}"
    return msgspec.structs.replace(
        record,
        replicas=tuple(
            msgspec.structs.replace(one, restarting=True) if one in named else one for one in record.replicas
        ),
        reason=Reason(code=RESTART_REQUESTED, message=words),
    )


def _runs(state: ReplicaState) -> bool:
    return state in (ReplicaState.LAUNCHED, ReplicaState.RUNNING)
