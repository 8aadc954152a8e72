"""The history of a job: one bounded line of text for each event."""

from __future__ import annotations

from typing import assert_never

import msgspec

from muster_core import events
from muster_core.models import HistoryEntry, JobRecord, ReplicaState

_KEPT_FIRST = 20
_KEPT_LAST = 180
_NAMED = 4


def with_history(record: JobRecord, stored: events.StoredEvent) -> JobRecord:
    """Return the record with one more line; the first and the latest lines are kept.

    Progress reports add no line: they would fill the history.
    """
    if isinstance(stored.event, events.ProgressReported):
        return record
    code, message = _end_message(stored.event)
    entry = HistoryEntry(
        at=stored.at, event=type(stored.event).__name__, source=stored.source, reason=code, message=message
    )
    history = (*record.history, entry)
    if len(history) > _KEPT_FIRST + _KEPT_LAST:
        history = history[:_KEPT_FIRST] + history[-_KEPT_LAST:]
    return msgspec.structs.replace(record, history=history)


def _end_message(event: events.JobEvent) -> tuple[str, str]:
    match event:
        case events.JobSubmitted():
            return "Submitted", f"by {event.submitter}" if event.submitter else ""
        case events.JobValidated():
            roles = ", ".join(f"{role.replicas} {role.name}" for role in event.job.roles)
            return "Validated", f"{event.job.format}: {roles}"
        case events.JobRejected():
            return "Rejected", "; ".join(p.message for p in event.problems[:_NAMED])
        case events.JobPlaced():
            return "Placed", _placement(event)
        case events.JobResized() | events.JobAdopted():
            return event.reason.code, event.reason.message
        case events.JobWaiting() | events.JobEvicted() | events.JobRestarting() | events.JobFinished():
            return event.reason.code, event.reason.message
        case events.ScaleProposed():
            return event.policy, event.reason.message
        case events.ProgressReported():
            return "Progress", f"step {event.step}"
        case events.ReplicasChanged():
            return "ReplicasChanged", _changes(event)
        case events.CommandRequested():
            by = f"by {event.by}" if event.by else ""
            return event.command.value, " ".join(filter(None, (_object(event), by, event.message)))
        case _:
            assert_never(event)


def _placement(event: events.JobPlaced) -> str:
    nodes: dict[str, list[str]] = {}
    for assignment in event.replicas:
        nodes.setdefault(assignment.node, []).append(f"{assignment.role}-{assignment.index}")
    parts = [f"{node}: {_listed(names)}" for node, names in sorted(nodes.items())]
    return f"attempt {event.attempt}; " + _listed(parts, "; ")


def _object(event: events.CommandRequested) -> str:
    """Return the object of a command, if it is not the whole job."""
    if event.target is None:
        return ""
    return (
        f"{event.role} to {event.target}"
        if event.command is events.Command.SCALE
        else f"{event.role}-{event.target}"
    )


def _changes(event: events.ReplicasChanged) -> str:
    return _listed([_change(change) for change in event.changes])


def _change(change: events.ReplicaChange) -> str:
    text = f"{change.role}-{change.index} {change.state}"
    if change.state is ReplicaState.EXITED:
        text += f" by signal {change.signal}" if change.signal else f" with {change.exit_code}"
    return f"{text} ({change.reason})" if change.reason else text


def _listed(parts: list[str], separator: str = ", ") -> str:
    more = len(parts) - _NAMED
    return separator.join(parts[:_NAMED]) + (f" and {more} more" if more > 0 else "")
