"""The reducer: applies the events of a job to its record.

Every service applies the same events in the same order with this function, so no two can disagree about a job. An event
that arrives twice, late, or for a past attempt changes only the sequence: races between writers (a cancel against a
placement, a failure against a growth) are settled here, by stream order.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from muster_core import events
from muster_core.lifecycle.adoption import adopt, begin_adopted
from muster_core.lifecycle.backoff import failures_at, restarts_at, retry_at, with_failed_nodes
from muster_core.lifecycle.commands import (
    RESTART_REQUESTED,
    after_resize,
    apply_restart,
    apply_scale,
    apply_suspension,
    suspend,
    wants_suspension,
    without_membership,
)
from muster_core.lifecycle.history import with_history
from muster_core.lifecycle.job_kinds import NOT_EVALUATED, awaits_build
from muster_core.lifecycle.progress import with_progress
from muster_core.lifecycle.replicas import (
    change_replicas,
    place_replicas,
    resize_replicas,
    restart_replicas,
    terminate_all,
    terminate_idle,
)
from muster_core.lifecycle.transitions import VALID_PHASES
from muster_core.models import (
    CleanPodPolicy,
    JobRecord,
    Phase,
    Reason,
    ReplicaRecord,
    ReplicaState,
    RestartScope,
)

_US_PER_MS = 1000
_FINAL_PHASE = {
    events.Outcome.SUCCEEDED: Phase.SUCCEEDED,
    events.Outcome.FAILED: Phase.FAILED,
    events.Outcome.CANCELLED: Phase.CANCELLED,
    events.Outcome.TIMED_OUT: Phase.TIMED_OUT,
}
_MENDED_BY_STARTING = frozenset({"ReplicaFailed", "ReplicaEnded", "NodeLost", "Disrupted"})
"""Reason codes of restarting replicas, which are outdated when these run."""

_BEFORE_RUNNING = frozenset({ReplicaState.PLACED, ReplicaState.LAUNCHED})


class Transition(msgspec.Struct, frozen=True):
    """The record after an event; ``invalid`` is why the event was an invalid transition, or empty."""

    record: JobRecord | None
    invalid: str | None = None


def apply_event(record: JobRecord | None, stored: events.StoredEvent) -> Transition:
    """Apply one event to a job's record (``None``: the job is not known yet)."""
    if record is None:
        if isinstance(stored.event, events.JobSubmitted):
            return Transition(_submitted(stored, stored.event))
        if isinstance(stored.event, events.JobValidated) and stored.event.part:
            return Transition(_later_part(stored, stored.event))
        if isinstance(stored.event, events.JobAdopted):
            return _adopted_orphan(stored, stored.event)
        return Transition(None, f"{_name(stored.event)} of a job that was never submitted")
    if stored.sequence <= record.applied_sequence:
        return Transition(record)
    moved, invalid = _moved(record, stored)
    moved = msgspec.structs.replace(without_membership(moved), applied_sequence=stored.sequence)
    if invalid is None:
        moved = with_history(moved, stored)
    return Transition(moved, invalid)


def _name(event: events.JobEvent) -> str:
    return type(event).__name__


def _submitted(stored: events.StoredEvent, event: events.JobSubmitted) -> JobRecord:
    record = JobRecord(
        job_id=stored.job_id,
        applied_sequence=stored.sequence,
        name=event.spec.name if event.spec else "",
        submitter=event.submitter,
        trace=stored.traceparent,
        reason=Reason(code="Submitted", message="waits for validation"),
        submitted_at=stored.at,
    )
    return with_history(record, stored)


def _later_part(stored: events.StoredEvent, event: events.JobValidated) -> JobRecord:
    """The record of a job that is not the first of its document: it begins with its validation."""
    record = JobRecord(
        job_id=stored.job_id,
        applied_sequence=stored.sequence,
        submission_id=event.submission_id,
        submitter=event.submitter,
        trace=stored.traceparent,
        submitted_at=event.submitted_at,
    )
    return with_history(_validated(record, event, stored.at), stored)


def _adopted_orphan(stored: events.StoredEvent, event: events.JobAdopted) -> Transition:
    record = begin_adopted(
        stored.job_id, event, sequence=stored.sequence, trace=stored.traceparent, at=stored.at
    )
    if record is None:
        return Transition(None, "JobAdopted of a job that was never submitted")
    return Transition(with_history(record, stored))


def begins_record(event: events.JobEvent) -> bool:
    """Whether an event may be the first of its job."""
    match event:
        case events.JobSubmitted():
            return True
        case events.JobValidated():
            return event.part > 0
        case events.JobAdopted():
            return event.job is not None
        case _:
            return False


def _moved(record: JobRecord, stored: events.StoredEvent) -> tuple[JobRecord, str | None]:
    event = stored.event
    if record.phase not in VALID_PHASES[type(event)]:
        return record, f"{_name(event)} in phase {record.phase}"
    match event:
        case events.JobSubmitted():
            return record, "JobSubmitted of a known job"
        case events.JobValidated():
            return _validated(record, event, stored.at), None
        case events.JobRejected():
            return _rejected(record, event, stored.at), None
        case events.JobWaiting():
            return _waiting(record, event, stored.at), None
        case events.JobPlaced():
            return _placed(record, event, stored.at)
        case events.JobResized():
            return _resized(record, event, stored.at)
        case events.JobEvicted():
            return _evicted(record, event, stored.at)
        case events.ReplicasChanged():
            return _replicas_changed(record, event, stored.at), None
        case events.JobAdopted():
            return _adopted(record, event, stored.at)
        case events.JobRestarting():
            return _restarting(record, event, stored.at)
        case events.JobFinished():
            return _finished(record, event, stored.at), None
        case events.CommandRequested():
            commanded = msgspec.structs.replace(record, command_trace=stored.traceparent)
            return _commanded(commanded, event, stored.at), None
        case events.ScaleProposed():
            return record, None
        case events.ProgressReported():
            return with_progress(record, event, stored.at), None
        case _:
            assert_never(event)


def _validated(record: JobRecord, event: events.JobValidated, at: int) -> JobRecord:
    queued = msgspec.structs.replace(
        record,
        phase=Phase.QUEUED,
        name=event.job.name,
        job=event.job,
        format=event.job.format,
        built_by=event.built_by,
        reason=Reason(code=NOT_EVALUATED, message="waits for the scheduler's first evaluation"),
        validated_at=at,
        queued_at=at,
        waiting_since=at,
    )
    return suspend(queued, at) if wants_suspension(record, event.job.run.suspend) else queued


def _rejected(record: JobRecord, event: events.JobRejected, at: int) -> JobRecord:
    errors = sum(1 for p in event.problems if p.severity == "error")
    return msgspec.structs.replace(
        record,
        phase=Phase.REJECTED,
        name=event.name or record.name,
        problems=event.problems,
        reason=Reason(
            code="Rejected",
            message=f"the document has {errors} error{'s' if errors != 1 else ''}",
            numbers={"errors": errors},
        ),
        finished_at=at,
    )


def _waiting(record: JobRecord, event: events.JobWaiting, at: int) -> JobRecord:
    waiting = msgspec.structs.replace(record, phase=Phase.QUEUED, reason=event.reason)
    if awaits_build(record) and not awaits_build(waiting):
        # Its wait begins only now.
        return msgspec.structs.replace(waiting, waiting_since=at)
    return waiting


def _placed(record: JobRecord, event: events.JobPlaced, at: int) -> tuple[JobRecord, str | None]:
    if event.attempt != record.attempt + 1:
        return record, f"JobPlaced for attempt {event.attempt} after attempt {record.attempt}"
    nodes = len({assignment.node for assignment in event.replicas})
    reason = event.reason or Reason(
        code="Placed",
        message=f"{len(event.replicas)} replicas on {nodes} node{'s' if nodes != 1 else ''}",
        numbers={"replicas": len(event.replicas), "nodes": nodes},
    )
    return msgspec.structs.replace(
        record,
        phase=Phase.PLACED,
        attempt=event.attempt,
        generation=event.generation,
        replicas=place_replicas(record, event, at),
        reason=reason,
        placed_at=at,
        resized_by="",
        not_before=0,
    ), None


def _resized(record: JobRecord, event: events.JobResized, at: int) -> tuple[JobRecord, str | None]:
    if (event.attempt, event.generation) != (record.attempt, record.generation + 1):
        return record, (
            f"JobResized to generation {event.generation} of attempt {event.attempt} "
            f"at generation {record.generation} of attempt {record.attempt}"
        )
    missed = with_failed_nodes(record, event.avoid, at) if event.avoid else record
    replicas = resize_replicas(record, event, at, retry_at(missed) if event.avoid else 0)
    if replicas is None:
        return record, "JobResized adds a replica that still exists"
    resized = msgspec.structs.replace(
        missed,
        generation=event.generation,
        replicas=replicas,
        resized_at=at,
        # A size set by hand remains when nodes lose members of it.
        resized_by=event.policy or record.resized_by,
        reason=event.reason,
    )
    return after_resize(resized, event), None


def _evicted(record: JobRecord, event: events.JobEvicted, at: int) -> tuple[JobRecord, str | None]:
    if event.attempt != record.attempt:
        return record, f"JobEvicted for attempt {event.attempt} at attempt {record.attempt}"
    missed = with_failed_nodes(record, event.avoid, at) if event.avoid else record
    return msgspec.structs.replace(
        missed,
        phase=Phase.EVICTED,
        replicas=terminate_all(record),
        evictions=record.evictions + 1,
        reason=event.reason,
        waiting_since=at,
        not_before=retry_at(missed) if event.avoid else 0,
    ), None


def _replicas_changed(record: JobRecord, event: events.ReplicasChanged, at: int) -> JobRecord:
    record = msgspec.structs.replace(record, replicas=change_replicas(record, event, at))
    members = record.gang()
    seen = [r for r in members if r.state is not ReplicaState.PLACED]
    ran = [r for r in members if r.running_at]
    if ran and not record.started_at:
        record = msgspec.structs.replace(record, started_at=min(r.running_at for r in ran))
    if ran and not record.active_from:
        record = msgspec.structs.replace(record, active_from=min(r.running_at for r in ran))
    if record.phase is Phase.PLACED and seen:
        record = msgspec.structs.replace(
            record,
            phase=Phase.LAUNCHING,
            reason=Reason(code="Launching", message="its replicas are starting"),
        )
    if record.phase is Phase.RUNNING and _is_whole_again(record):
        return msgspec.structs.replace(record, reason=_runs_again(record))
    if record.phase is Phase.LAUNCHING and len(ran) == len(members):
        record = msgspec.structs.replace(
            record,
            phase=Phase.RUNNING,
            running_at=at,
            reason=Reason(
                code="Running", message=_started_message(len(members)), numbers={"replicas": len(members)}
            ),
        )
    return record


def _is_whole_again(record: JobRecord) -> bool:
    """Return whether the restart that the job's reason announces has happened."""
    was_mended = record.reason is not None and (
        record.reason.code in _MENDED_BY_STARTING
        or (record.reason.code == RESTART_REQUESTED and not any(m.restarting for m in record.gang()))
    )
    pending = any(m.state in _BEFORE_RUNNING or not m.running_at for m in record.gang())
    return was_mended and not pending and not any(_is_bad_end(m) for m in record.gang())


def _is_bad_end(replica: ReplicaRecord) -> bool:
    return replica.ended and not (replica.state is ReplicaState.EXITED and replica.exit_code == 0)


def _runs_again(record: JobRecord) -> Reason:
    number = len(record.gang())
    text = "its replica runs again" if number == 1 else f"all {number} replicas run again"
    return Reason(code="Running", message=text, numbers={"replicas": number})


def _started_message(members: int) -> str:
    # That they have started stays true while they end one after another.
    return "its replica has started" if members == 1 else f"all {members} replicas have started"


def _adopted(record: JobRecord, event: events.JobAdopted, at: int) -> tuple[JobRecord, str | None]:
    adopted = adopt(record, event, at)
    if adopted is None:
        return record, (
            f"JobAdopted for generation {event.generation} of attempt {event.attempt} "
            f"at generation {record.generation} of attempt {record.attempt}"
        )
    return adopted, None


def _restarting(record: JobRecord, event: events.JobRestarting, at: int) -> tuple[JobRecord, str | None]:
    if event.attempt != record.attempt:
        return record, f"JobRestarting for attempt {event.attempt} at attempt {record.attempt}"
    not_before = at + event.delay_ms * _US_PER_MS
    is_gang = event.scope is RestartScope.GANG
    replicas = terminate_all(record) if is_gang else restart_replicas(record, event, not_before)
    if replicas is None:
        return record, "JobRestarting of a replica that has not ended"
    failed = 1 if is_gang else len(event.replicas)
    restarted = msgspec.structs.replace(record, replicas=replicas, reason=event.reason)
    if event.reason.code != RESTART_REQUESTED:
        restarted = msgspec.structs.replace(
            restarted,
            failures=failures_at(record, at) + failed - event.uncounted,
            restarts=restarts_at(record, at) + 1,
            restarted_at=not_before,
        )
    if not is_gang:
        return restarted, None
    return msgspec.structs.replace(
        restarted, phase=Phase.RESTARTING, not_before=not_before, waiting_since=at
    ), None


def _finished(record: JobRecord, event: events.JobFinished, at: int) -> JobRecord:
    keeps = record.job is not None and record.job.run.clean_pod_policy is CleanPodPolicy.NONE
    by_itself = event.outcome in (events.Outcome.SUCCEEDED, events.Outcome.FAILED)
    replicas = terminate_idle(record) if keeps and by_itself else terminate_all(record)
    return msgspec.structs.replace(
        record, phase=_FINAL_PHASE[event.outcome], reason=event.reason, replicas=replicas, finished_at=at
    )


def _commanded(record: JobRecord, event: events.CommandRequested, at: int) -> JobRecord:
    match event.command:
        case events.Command.CANCEL:
            text = record.cancelled or _requester_message(event)
            return msgspec.structs.replace(record, cancel_requested=True, cancelled=text)
        case events.Command.DELETE:
            replicas = terminate_all(record) if record.terminal else record.replicas
            return msgspec.structs.replace(
                record,
                cancel_requested=True,
                delete_requested=True,
                cancelled=record.cancelled or _requester_message(event),
                replicas=replicas,
            )
        case events.Command.SUSPEND | events.Command.RESUME:
            return apply_suspension(record, event, at)
        case events.Command.RESTART:
            return apply_restart(record, event, at)
        case events.Command.SCALE:
            return apply_scale(record, event)
        case _:
            assert_never(event.command)


def _requester_message(event: events.CommandRequested) -> str:
    if not event.by:
        return event.message or "requested by its user"
    return f"requested by {event.by}" + (f": {event.message}" if event.message else "")
