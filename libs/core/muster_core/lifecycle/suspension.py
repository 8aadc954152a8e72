"""A job that its user holds back: it gives up its room, keeps its place in the queue, and waits to be resumed.

The command itself moves the job, so that it is settled by its order in the stream against a placement, a restart or an end.
"""

from __future__ import annotations

import msgspec

from muster_core.events import Command, CommandRequested
from muster_core.lifecycle.builds import NOT_LOOKED_AT, awaits_build
from muster_core.lifecycle.members import send_away
from muster_core.models import JobRecord, Phase, Reason

SUSPENDED = "Suspended"
"""The code of a job that waits to be resumed."""

RESUMED = "Resumed"
"""The code of a job that was resumed, and at which the scheduler has not looked again."""


def wants_suspension(record: JobRecord, from_the_start: bool) -> bool:
    """Whether a job that has just been validated is to be held: as its user said last, else as its document says."""
    return from_the_start if record.suspended is None else record.suspended


def suspend(record: JobRecord, at: int, by: str = "") -> JobRecord:
    """The job without its membership. The clock of its active deadline starts anew when it runs again, as that of a Kubernetes Job does."""
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
    """The job back in its queue, with the place that it had."""
    code = NOT_LOOKED_AT if record.awaited_build else RESUMED
    return msgspec.structs.replace(
        record,
        phase=Phase.QUEUED,
        suspended=False,
        reason=Reason(code=code, message="is resumed, and waits for the scheduler to look at it"),
        waiting_since=at,
    )


def suspension_commanded(record: JobRecord, event: CommandRequested, at: int) -> JobRecord:
    """What becomes of a job that is told to be held or to go on; one that has ended, or is about to, takes no notice."""
    if record.terminal or record.cancel_requested:
        return record
    hold = event.command is Command.SUSPEND
    if record.phase is Phase.SUBMITTED:
        return msgspec.structs.replace(record, suspended=hold)
    if hold is (record.phase is Phase.SUSPENDED):
        return record
    return suspend(record, at, event.by) if hold else resume(record, at)
