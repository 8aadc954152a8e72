"""Conditions in the Kubernetes manner, for tools that wait for one (``Succeeded`` is ``True``) and know nothing of phases.

They are derived, never stored: a phase and a condition that disagree cannot exist. A condition appears once it has been true, and is
``False`` afterwards.
"""

from __future__ import annotations

from muster_core.models import JobRecord, Phase
from muster_rpc.convert.instants import timestamp_to_proto
from muster_rpc.v1 import job_pb2

_HELD_ROOM = frozenset({Phase.PLACED, Phase.LAUNCHING, Phase.RUNNING})
_ENDINGS = {
    Phase.SUCCEEDED: "Succeeded",
    Phase.FAILED: "Failed",
    Phase.TIMED_OUT: "Failed",
    Phase.REJECTED: "Failed",
    Phase.CANCELLED: "Cancelled",
}
_PAUSES = {
    Phase.RESTARTING: ("Restarting", ("JobRestarting", "CommandRequested")),
    Phase.EVICTED: ("Evicted", ("JobEvicted",)),
    Phase.SUSPENDED: ("Suspended", ("CommandRequested",)),
}


def conditions_of(record: JobRecord) -> list[job_pb2.Condition]:
    """The conditions that the record implies, in the order of a job's life."""
    conditions = [_condition("Created", held=True, at=record.submitted_at, reason="JobSubmitted")]
    if record.placed_at:
        conditions.append(_placed(record))
    if record.running_at:
        conditions.append(_running(record))
    if record.phase in _PAUSES:
        kind, causes = _PAUSES[record.phase]
        conditions.append(_of_phase(kind, record, at=_last(record, *causes)))
    if record.phase in _ENDINGS:
        conditions.append(_of_phase(_ENDINGS[record.phase], record, at=record.finished_at or _last(record)))
    return conditions


def _placed(record: JobRecord) -> job_pb2.Condition:
    if record.phase in _HELD_ROOM:
        return _condition("Placed", held=True, at=record.placed_at, reason="GangPlaced")
    return _of_phase("Placed", record, at=_lost_at(record), held=False)


def _running(record: JobRecord) -> job_pb2.Condition:
    if record.phase is Phase.RUNNING:
        return _condition("Running", held=True, at=record.running_at, reason="GangRunning")
    return _of_phase("Running", record, at=_lost_at(record), held=False)


def _lost_at(record: JobRecord) -> int:
    return record.finished_at or _last(record, "JobRestarting", "JobEvicted", "CommandRequested")


def _last(record: JobRecord, *events: str) -> int:
    """When the last of these events (of any, when none is named) was said; 0 when the bounded history has lost it."""
    return max((entry.at for entry in record.history if not events or entry.event in events), default=0)


def _of_phase(kind: str, record: JobRecord, *, at: int, held: bool = True) -> job_pb2.Condition:
    reason = record.reason
    return _condition(
        kind,
        held=held,
        at=at,
        reason=reason.code if reason else record.phase.value,
        message=reason.message if reason else "",
    )


def _condition(kind: str, *, held: bool, at: int, reason: str, message: str = "") -> job_pb2.Condition:
    return job_pb2.Condition(
        type=kind,
        status="True" if held else "False",
        reason=reason,
        message=message,
        last_transition_at=timestamp_to_proto(at),
    )
