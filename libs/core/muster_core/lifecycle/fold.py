"""How the facts of a job add up to its record.

Every service folds the same facts in the same order with this function, so two of them can never disagree about a job. A fact
that arrives twice, late, or for a past attempt changes nothing but the sequence: races between writers (a cancel against a
placement, a failure against a growth) are settled here, by their order in the stream, and nowhere else.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from muster_core import events
from muster_core.lifecycle.asking import after_resize, with_size_asked, without_membership
from muster_core.lifecycle.backoff import failures_at, restarts_at
from muster_core.lifecycle.builds import NOT_LOOKED_AT, awaits_build
from muster_core.lifecycle.history import with_history
from muster_core.lifecycle.members import (
    change_replicas,
    place_members,
    resize_members,
    restart_members,
    send_away,
    send_idle_away,
)
from muster_core.lifecycle.misses import comes_back_at, with_miss
from muster_core.lifecycle.moves import LEGAL_PHASES
from muster_core.lifecycle.progress import with_progress
from muster_core.lifecycle.restarting import RESTART_REQUESTED, restart_commanded
from muster_core.lifecycle.suspension import suspend, suspension_commanded, wants_suspension
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
"""Codes of reasons that tell of replicas which are being started again, and are out of date when those run."""

_BEFORE_RUNNING = frozenset({ReplicaState.PLACED, ReplicaState.LAUNCHED})


class Folded(msgspec.Struct, frozen=True):
    """The record after a fact; ``illegal`` says why the fact moved nothing, where it should not have been."""

    record: JobRecord | None
    illegal: str | None = None


def fold(record: JobRecord | None, stamped: events.Stamped) -> Folded:
    """Add one fact to a job's record (``None``: the job is not known yet)."""
    if record is None:
        if isinstance(stamped.fact, events.JobSubmitted):
            return Folded(_submitted(stamped, stamped.fact))
        return Folded(None, f"{_name(stamped.fact)} of a job that was never submitted")
    if stamped.sequence <= record.folded:
        return Folded(record)
    moved, illegal = _moved(record, stamped)
    moved = msgspec.structs.replace(without_membership(moved), folded=stamped.sequence)
    if illegal is None:
        moved = with_history(moved, stamped)
    return Folded(moved, illegal)


def _name(fact: events.JobFact) -> str:
    return type(fact).__name__


def _submitted(stamped: events.Stamped, fact: events.JobSubmitted) -> JobRecord:
    record = JobRecord(
        job_id=stamped.job_id,
        folded=stamped.sequence,
        name=fact.spec.name if fact.spec else "",
        submitter=fact.submitter,
        trace=stamped.traceparent,
        reason=Reason(code="Submitted", message="waits to be validated"),
        submitted_at=stamped.at,
    )
    return with_history(record, stamped)


def _moved(record: JobRecord, stamped: events.Stamped) -> tuple[JobRecord, str | None]:
    fact = stamped.fact
    if record.phase not in LEGAL_PHASES[type(fact)]:
        return record, f"{_name(fact)} in phase {record.phase}"
    match fact:
        case events.JobSubmitted():
            return record, "JobSubmitted of a job that is known"
        case events.JobValidated():
            return _validated(record, fact, stamped.at), None
        case events.JobRejected():
            return _rejected(record, fact, stamped.at), None
        case events.JobWaiting():
            return _waiting(record, fact, stamped.at), None
        case events.JobPlaced():
            return _placed(record, fact, stamped.at)
        case events.JobResized():
            return _resized(record, fact, stamped.at)
        case events.JobEvicted():
            return _evicted(record, fact, stamped.at)
        case events.ReplicasChanged():
            return _replicas_changed(record, fact, stamped.at), None
        case events.JobRestarting():
            return _restarting(record, fact, stamped.at)
        case events.JobFinished():
            return _finished(record, fact, stamped.at), None
        case events.CommandRequested():
            return _commanded(record, fact, stamped.at), None
        case events.ScaleProposed():
            return record, None
        case events.ProgressReported():
            return with_progress(record, fact, stamped.at), None
        case _:
            assert_never(fact)


def _validated(record: JobRecord, fact: events.JobValidated, at: int) -> JobRecord:
    queued = msgspec.structs.replace(
        record,
        phase=Phase.QUEUED,
        name=fact.job.name,
        job=fact.job,
        dialect=fact.job.dialect,
        built_by=fact.built_by,
        reason=Reason(code=NOT_LOOKED_AT, message="waits for the scheduler's first look"),
        validated_at=at,
        queued_at=at,
        waiting_since=at,
    )
    return suspend(queued, at) if wants_suspension(record, fact.job.run.suspend) else queued


def _rejected(record: JobRecord, fact: events.JobRejected, at: int) -> JobRecord:
    errors = sum(1 for p in fact.problems if p.severity == "error")
    return msgspec.structs.replace(
        record,
        phase=Phase.REJECTED,
        name=fact.name or record.name,
        problems=fact.problems,
        reason=Reason(
            code="Rejected",
            message=f"the document has {errors} error{'s' if errors != 1 else ''}",
            numbers={"errors": errors},
        ),
        finished_at=at,
    )


def _waiting(record: JobRecord, fact: events.JobWaiting, at: int) -> JobRecord:
    waiting = msgspec.structs.replace(record, phase=Phase.QUEUED, reason=fact.reason)
    if awaits_build(record) and not awaits_build(waiting):
        # Only now does it wait for room.
        return msgspec.structs.replace(waiting, waiting_since=at)
    return waiting


def _placed(record: JobRecord, fact: events.JobPlaced, at: int) -> tuple[JobRecord, str | None]:
    if fact.attempt != record.attempt + 1:
        return record, f"JobPlaced for attempt {fact.attempt} after attempt {record.attempt}"
    nodes = len({assignment.node for assignment in fact.replicas})
    reason = fact.reason or Reason(
        code="Placed",
        message=f"{len(fact.replicas)} replicas on {nodes} node{'s' if nodes != 1 else ''}",
        numbers={"replicas": len(fact.replicas), "nodes": nodes},
    )
    return msgspec.structs.replace(
        record,
        phase=Phase.PLACED,
        attempt=fact.attempt,
        generation=fact.generation,
        replicas=place_members(record, fact, at),
        reason=reason,
        placed_at=at,
        resized_by="",
        not_before=0,
    ), None


def _resized(record: JobRecord, fact: events.JobResized, at: int) -> tuple[JobRecord, str | None]:
    if (fact.attempt, fact.generation) != (record.attempt, record.generation + 1):
        return record, (
            f"JobResized to generation {fact.generation} of attempt {fact.attempt} "
            f"at generation {record.generation} of attempt {record.attempt}"
        )
    missed = with_miss(record, fact.avoid, at) if fact.avoid else record
    replicas = resize_members(record, fact, at, comes_back_at(missed) if fact.avoid else 0)
    if replicas is None:
        return record, "JobResized adds a replica that is still there"
    resized = msgspec.structs.replace(
        missed,
        generation=fact.generation,
        replicas=replicas,
        resized_at=at,
        # A size set by hand stays so when nodes take members of it.
        resized_by=fact.policy or record.resized_by,
        reason=fact.reason,
    )
    return after_resize(resized, fact), None


def _evicted(record: JobRecord, fact: events.JobEvicted, at: int) -> tuple[JobRecord, str | None]:
    if fact.attempt != record.attempt:
        return record, f"JobEvicted for attempt {fact.attempt} at attempt {record.attempt}"
    missed = with_miss(record, fact.avoid, at) if fact.avoid else record
    return msgspec.structs.replace(
        missed,
        phase=Phase.EVICTED,
        replicas=send_away(record),
        evictions=record.evictions + 1,
        reason=fact.reason,
        waiting_since=at,
        not_before=comes_back_at(missed) if fact.avoid else 0,
    ), None


def _replicas_changed(record: JobRecord, fact: events.ReplicasChanged, at: int) -> JobRecord:
    record = msgspec.structs.replace(record, replicas=change_replicas(record, fact, at))
    members = record.members()
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
            reason=Reason(code="Launching", message="its replicas are being started"),
        )
    if record.phase is Phase.RUNNING and _is_whole_again(record):
        return msgspec.structs.replace(record, reason=_runs_again(record))
    if record.phase is Phase.LAUNCHING and len(ran) == len(members):
        record = msgspec.structs.replace(
            record,
            phase=Phase.RUNNING,
            running_at=at,
            reason=Reason(
                code="Running", message=_started_words(len(members)), numbers={"replicas": len(members)}
            ),
        )
    return record


def _is_whole_again(record: JobRecord) -> bool:
    """Whether what the job's reason says of replicas that are started again has come true."""
    was_mended = record.reason is not None and (
        record.reason.code in _MENDED_BY_STARTING
        or (record.reason.code == RESTART_REQUESTED and not any(m.restarting for m in record.members()))
    )
    pending = any(m.state in _BEFORE_RUNNING or not m.running_at for m in record.members())
    return was_mended and not pending and not any(_is_bad_end(m) for m in record.members())


def _is_bad_end(replica: ReplicaRecord) -> bool:
    return replica.ended and not (replica.state is ReplicaState.EXITED and replica.exit_code == 0)


def _runs_again(record: JobRecord) -> Reason:
    number = len(record.members())
    words = "its replica runs again" if number == 1 else f"all {number} replicas run again"
    return Reason(code="Running", message=words, numbers={"replicas": number})


def _started_words(members: int) -> str:
    # That they have started stays true while they end one after another.
    return "its replica has started" if members == 1 else f"all {members} replicas have started"


def _restarting(record: JobRecord, fact: events.JobRestarting, at: int) -> tuple[JobRecord, str | None]:
    if fact.attempt != record.attempt:
        return record, f"JobRestarting for attempt {fact.attempt} at attempt {record.attempt}"
    not_before = at + fact.delay_ms * _US_PER_MS
    is_gang = fact.scope is RestartScope.GANG
    replicas = send_away(record) if is_gang else restart_members(record, fact, not_before)
    if replicas is None:
        return record, "JobRestarting of a replica that has not ended"
    failed = 1 if is_gang else len(fact.replicas)
    restarted = msgspec.structs.replace(record, replicas=replicas, reason=fact.reason)
    if fact.reason.code != RESTART_REQUESTED:
        restarted = msgspec.structs.replace(
            restarted,
            failures=failures_at(record, at) + failed - fact.uncounted,
            restarts=restarts_at(record, at) + 1,
            restarted_at=not_before,
        )
    if not is_gang:
        return restarted, None
    return msgspec.structs.replace(
        restarted, phase=Phase.RESTARTING, not_before=not_before, waiting_since=at
    ), None


def _finished(record: JobRecord, fact: events.JobFinished, at: int) -> JobRecord:
    keeps = record.job is not None and record.job.run.clean_pod_policy is CleanPodPolicy.NONE
    by_itself = fact.outcome in (events.Outcome.SUCCEEDED, events.Outcome.FAILED)
    replicas = send_idle_away(record) if keeps and by_itself else send_away(record)
    return msgspec.structs.replace(
        record, phase=_FINAL_PHASE[fact.outcome], reason=fact.reason, replicas=replicas, finished_at=at
    )


def _commanded(record: JobRecord, fact: events.CommandRequested, at: int) -> JobRecord:
    match fact.command:
        case events.Command.CANCEL:
            words = record.cancelled or _who_asked(fact)
            return msgspec.structs.replace(record, cancel_requested=True, cancelled=words)
        case events.Command.DELETE:
            replicas = send_away(record) if record.terminal else record.replicas
            return msgspec.structs.replace(
                record,
                cancel_requested=True,
                delete_requested=True,
                cancelled=record.cancelled or _who_asked(fact),
                replicas=replicas,
            )
        case events.Command.SUSPEND | events.Command.RESUME:
            return suspension_commanded(record, fact, at)
        case events.Command.RESTART:
            return restart_commanded(record, fact, at)
        case events.Command.SCALE:
            return with_size_asked(record, fact)
        case _:
            assert_never(fact.command)


def _who_asked(fact: events.CommandRequested) -> str:
    if not fact.by:
        return fact.message or "its user asked for it"
    return f"{fact.by} asked for it" + (f": {fact.message}" if fact.message else "")
