"""Commands of users: requested sizes, restarts and suspension.

A command itself changes the record, so that stream order settles it against a placement, a failure, an eviction or an end.
"""

from __future__ import annotations

import msgspec

from muster_core.events import MANUAL_POLICY, Command, CommandRequested, JobResized
from muster_core.lifecycle.deadlines import START_TIMEOUT
from muster_core.lifecycle.job_kinds import NOT_EVALUATED, awaits_build
from muster_core.lifecycle.replicas import terminate_all
from muster_core.lifecycle.transitions import ACTIVE_PHASES
from muster_core.models import JobRecord, Phase, Reason, ReplicaState


def apply_scale(record: JobRecord, event: CommandRequested) -> JobRecord:
    """Return the record with a requested size; a job without a membership starts with the size in its document."""
    if record.phase not in ACTIVE_PHASES or event.target is None:
        return record
    return msgspec.structs.replace(
        record, requested_sizes={**record.requested_sizes, event.role: event.target}
    )


def after_resize(record: JobRecord, event: JobResized) -> JobRecord:
    """Return the record after a resize: a requested size is dropped when it is reached or overridden.

    A policy overrides it, and so does a start timeout of the added replicas.
    """
    if not record.requested_sizes:
        return record
    changed = {one.role for one in (*event.added, *event.removed)}
    by_others = event.policy not in ("", MANUAL_POLICY) or event.reason.code == START_TIMEOUT
    overruled = changed if by_others else set[str]()
    sizes = {role: sum(1 for one in record.gang() if one.role == role) for role in record.requested_sizes}
    kept = {
        role: target
        for role, target in record.requested_sizes.items()
        if role not in overruled and not (role in changed and sizes[role] == target)
    }
    return msgspec.structs.replace(record, requested_sizes=kept)


def without_membership(record: JobRecord) -> JobRecord:
    """Return the record of a job that may have lost its membership: requested sizes are dropped."""
    if record.requested_sizes and record.phase not in ACTIVE_PHASES:
        return msgspec.structs.replace(record, requested_sizes={})
    return record


RESTART_REQUESTED = "RestartRequested"
"""The reason code of a requested restart."""


def apply_restart(record: JobRecord, event: CommandRequested, at: int) -> JobRecord:
    """Return the record after a restart command; a job that does not run, or is about to end, ignores it."""
    if record.phase not in ACTIVE_PHASES or record.cancel_requested:
        return record
    return _restart_replica(record, event) if event.role else _restart_gang(record, event, at)


def _restart_gang(record: JobRecord, event: CommandRequested, at: int) -> JobRecord:
    return msgspec.structs.replace(
        record,
        phase=Phase.RESTARTING,
        replicas=terminate_all(record),
        reason=Reason(code=RESTART_REQUESTED, message=f"restart requested by {event.by or 'its user'}"),
        waiting_since=at,
        not_before=0,
    )


def _restart_replica(record: JobRecord, event: CommandRequested) -> JobRecord:
    """Return the record with the replica terminating; the runtime reports its end, and the restart follows from that."""
    key = (event.role, event.target)
    named = [m for m in record.gang() if m.key == key and _runs(m.state)]
    if not named:
        return record
    text = f"restart of {event.role}-{event.target} requested by {event.by or 'its user'}"
    return msgspec.structs.replace(
        record,
        replicas=tuple(
            msgspec.structs.replace(one, restarting=True) if one in named else one for one in record.replicas
        ),
        reason=Reason(code=RESTART_REQUESTED, message=text),
    )


def _runs(state: ReplicaState) -> bool:
    return state in (ReplicaState.LAUNCHED, ReplicaState.RUNNING)


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
        replicas=terminate_all(record),
        suspended_at=at,
        active_from=0,
        not_before=0,
    )


def resume(record: JobRecord, at: int) -> JobRecord:
    """Return the job in its queue, at its former position."""
    code = NOT_EVALUATED if record.awaited_build else RESUMED
    return msgspec.structs.replace(
        record,
        phase=Phase.QUEUED,
        suspended=False,
        reason=Reason(code=code, message="is resumed, and waits for the scheduler"),
        waiting_since=at,
    )


def apply_suspension(record: JobRecord, event: CommandRequested, at: int) -> JobRecord:
    """Return the record after a suspend or resume command; a job that has ended, or is about to, ignores it."""
    if record.terminal or record.cancel_requested:
        return record
    hold = event.command is Command.SUSPEND
    if record.phase is Phase.SUBMITTED:
        return msgspec.structs.replace(record, suspended=hold)
    if hold is (record.phase is Phase.SUSPENDED):
        return record
    return suspend(record, at, event.by) if hold else resume(record, at)
