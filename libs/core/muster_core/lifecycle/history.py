"""A job's story in words: one line a fact, bounded."""

from __future__ import annotations

from typing import assert_never

import msgspec

from muster_core import events
from muster_core.models import HistoryEntry, JobRecord, ReplicaState

_KEPT_FIRST = 20
_KEPT_LAST = 180
_NAMED = 4


def with_history(record: JobRecord, stamped: events.Stamped) -> JobRecord:
    """The record with one more line; the first lines and the latest ones are kept.

    Progress is no line: it would soon be the whole story.
    """
    if isinstance(stamped.fact, events.ProgressReported):
        return record
    code, message = _words(stamped.fact)
    entry = HistoryEntry(
        at=stamped.at, fact=type(stamped.fact).__name__, source=stamped.source, reason=code, message=message
    )
    history = (*record.history, entry)
    if len(history) > _KEPT_FIRST + _KEPT_LAST:
        history = history[:_KEPT_FIRST] + history[-_KEPT_LAST:]
    return msgspec.structs.replace(record, history=history)


def _words(fact: events.JobFact) -> tuple[str, str]:
    match fact:
        case events.JobSubmitted():
            return "Submitted", f"by {fact.submitter}" if fact.submitter else ""
        case events.JobValidated():
            roles = ", ".join(f"{role.replicas} {role.name}" for role in fact.job.roles)
            return "Validated", f"{fact.job.dialect}: {roles}"
        case events.JobRejected():
            return "Rejected", "; ".join(p.message for p in fact.problems[:_NAMED])
        case events.JobPlaced():
            return "Placed", _placement(fact)
        case events.JobResized():
            return fact.reason.code, fact.reason.message
        case events.JobWaiting() | events.JobEvicted() | events.JobRestarting() | events.JobFinished():
            return fact.reason.code, fact.reason.message
        case events.ScaleProposed():
            return fact.policy, fact.reason.message
        case events.ProgressReported():
            return "Progress", f"step {fact.step}"
        case events.ReplicasChanged():
            return "ReplicasChanged", _changes(fact)
        case events.CommandRequested():
            by = f"by {fact.by}" if fact.by else ""
            return fact.command.value, " ".join(filter(None, (_object(fact), by, fact.message)))
        case _:
            assert_never(fact)


def _placement(fact: events.JobPlaced) -> str:
    nodes: dict[str, list[str]] = {}
    for assignment in fact.replicas:
        nodes.setdefault(assignment.node, []).append(f"{assignment.role}-{assignment.index}")
    parts = [f"{node}: {_listed(names)}" for node, names in sorted(nodes.items())]
    return f"attempt {fact.attempt}; " + _listed(parts, "; ")


def _object(fact: events.CommandRequested) -> str:
    """What a command is about, where it is not the whole job."""
    if fact.target is None:
        return ""
    return (
        f"{fact.role} to {fact.target}"
        if fact.command is events.Command.SCALE
        else f"{fact.role}-{fact.target}"
    )


def _changes(fact: events.ReplicasChanged) -> str:
    return _listed([_change(change) for change in fact.changes])


def _change(change: events.ReplicaChange) -> str:
    words = f"{change.role}-{change.index} {change.state}"
    if change.state is ReplicaState.EXITED:
        words += f" by signal {change.signal}" if change.signal else f" with {change.exit_code}"
    return f"{words} ({change.reason})" if change.reason else words


def _listed(parts: list[str], separator: str = ", ") -> str:
    more = len(parts) - _NAMED
    return separator.join(parts[:_NAMED]) + (f" and {more} more" if more > 0 else "")
