"""Suspension: a job gives up its allocations, keeps its queue position, and waits to be resumed.

The command itself changes the phase, so that stream order settles it against a placement, a restart or an end.
"""

from __future__ import annotations

import msgspec

from muster_core.events import Command, CommandRequested
from muster_core.lifecycle.builds import NOT_LOOKED_AT, awaits_build
from muster_core.lifecycle.members import send_away
from muster_core.models import JobRecord, Phase, Reason

SUSPENDED = "Suspended"
"""The reason code of a suspended job."""

RESUMED = "Resumed"
"""The reason code of a resumed job that the scheduler has not evaluated yet."""


def wants_suspension(record: JobRecord, from_the_start: bool) -> bool:
    """Return whether a newly validated job is suspended: by the last command, else by its document."""
    return from_the_start if record.suspended is None else record.suspended


def suspend(record: JobRecord, at: int, by: str = "") -> JobRecord:
    """Return the job without its membership. Its active deadline restarts when it runs again, as in a Kubernetes Job."""
    whose = f"{by} has" if by else "it is"
    return msgspec.structs.replace(
        record,
        phase=Phase.SUSPENDED,
        suspended=True,
        awaited_build=awaits_build(record),
        reason=Reason(
            code=SUSPENDED, message=f"{whose} suspended{' it' if by else ''}: resume it to let it start"
        ),
        replicas=send_away(record),
        suspended_at=at,
        active_from=0,
        not_before=0,
    )


def resume(record: JobRecord, at: int) -> JobRecord:
    """Return the job in its queue, at its former position."""
    code = NOT_LOOKED_AT if record.awaited_build else RESUMED
    return msgspec.structs.replace(
        record,
        phase=Phase.QUEUED,
        suspended=False,
        reason=Reason(code=code, message="is resumed, and waits for the scheduler"),
        waiting_since=at,
    )


def suspension_commanded(record: JobRecord, event: CommandRequested, at: int) -> JobRecord:
    """Return the record after a suspend or resume command; a job that has ended, or is about to, ignores it."""
    if record.terminal or record.cancel_requested:
        return record
    hold = event.command is Command.SUSPEND
    if record.phase is Phase.SUBMITTED:
        return msgspec.structs.replace(record, suspended=hold)
    if hold is (record.phase is Phase.SUSPENDED):
        return record
    return suspend(record, at, event.by) if hold else resume(record, at)
