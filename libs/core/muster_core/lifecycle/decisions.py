"""The status-tracker's decision about a job: end, restart, or delete its record.

It depends on the record and the time alone, so repeating it after a crash gives the same event.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from muster_core.events import JobFinished, JobRestarting, Outcome, ReplicaRef
from muster_core.lifecycle.backoff import delay_ms, failures_at, was_disrupted
from muster_core.lifecycle.commands import RESTART_REQUESTED
from muster_core.lifecycle.deadlines import Retention, deadlines_of, expiry
from muster_core.lifecycle.job_kinds import BUILD_FAILED, lost_its_build
from muster_core.lifecycle.success import restart_scope_of, succeeded, success_of
from muster_core.lifecycle.transitions import ACTIVE_PHASES
from muster_core.models import (
    Job,
    JobKind,
    JobRecord,
    Reason,
    ReplicaRecord,
    ReplicaState,
    RestartPolicy,
    RestartScope,
)

_RETRYABLE_FROM = 128
_SHELL_EXIT_CODES = {
    126: "the command could not be run, see its log",
    127: "the command was not found, see its log",
}
"""The shell's meaning of these exit codes, used if the runtime gives no reason."""


class Finish(msgspec.Struct, frozen=True):
    """The job has ended."""

    event: JobFinished


class Restart(msgspec.Struct, frozen=True):
    """Replicas restart."""

    event: JobRestarting


class DeleteRecord(msgspec.Struct, frozen=True):
    """The record may be removed: no replica runs, and a user or the time to live allows it."""

    job_id: str


LifecycleInstruction = Finish | Restart | DeleteRecord


def decide(record: JobRecord, now: int, retention: Retention | None = None) -> list[LifecycleInstruction]:
    """Return what to do about the job at ``now`` (µs); at most one instruction, the rest follows from its event.

    Without ``retention`` an ended job without its own time to live is kept for ever.
    """
    if record.terminal:
        due = record.delete_requested or _passed(expiry(record, retention), now)
        return [DeleteRecord(record.job_id)] if due and record.settled else []
    if record.cancel_requested:
        return [_finish(record, Outcome.CANCELLED, "Cancelled", record.cancelled or "requested by its user")]
    job = record.job
    if job is None:
        return []
    if lost_its_build(record) and record.reason is not None:
        return [_finish(record, Outcome.FAILED, BUILD_FAILED, record.reason.message)]
    overrun = next((one for one in deadlines_of(record) if _passed(one.due, now)), None)
    if overrun is not None:
        return [_finish(record, Outcome.TIMED_OUT, overrun.code, overrun.message)]
    if record.phase not in ACTIVE_PHASES:
        return []
    why = None if _stays_up(job) else success_of(record, job)
    if why:
        return [_finish(record, Outcome.SUCCEEDED, "Succeeded", why)]
    return _after_ends(record, job)


def next_deadline(record: JobRecord, retention: Retention | None = None) -> int | None:
    """Return the next time (µs) at which ``decide`` may answer differently without a new event."""
    if record.terminal:
        return expiry(record, retention) if record.settled else None
    return min((one.due for one in deadlines_of(record)), default=None)


def _passed(instant: int | None, now: int) -> bool:
    return instant is not None and now >= instant


def _stays_up(job: Job) -> bool:
    return job.kind is JobKind.SERVICE and any(
        role.restart_policy is RestartPolicy.ALWAYS for role in job.roles
    )


def _after_ends(record: JobRecord, job: Job) -> list[LifecycleInstruction]:
    ended = [m for m in record.gang() if _is_missed(m, job)]
    if not ended:
        return []
    # Report the first failure: the others often fail because of it.
    ended.sort(key=lambda m: (not _has_failed(m), m.ended_at, m.role, m.index))
    failed = [m for m in ended if _has_failed(m)]
    text, at = _end_message(ended[0]), ended[0].ended_at
    fatal = next((m for m in failed if not _retryable(m, job)), None)
    if fatal is not None:
        return [_finish(record, Outcome.FAILED, "ReplicaFailed", _end_message(fatal))]
    failures = failures_at(record, at)
    if failed and failures >= job.run.backoff_limit:
        message = f"{text}; the back-off limit of {failures} is used up"
        return [_finish(record, Outcome.FAILED, "BackoffLimitExceeded", message)]
    scope = restart_scope_of(job) if failed else RestartScope.REPLICA
    return [Restart(_restart(record, job, ended, scope))]


def _restart(
    record: JobRecord, job: Job, ended: Sequence[ReplicaRecord], scope: RestartScope
) -> JobRestarting:
    is_gang = scope is RestartScope.GANG
    refs = () if is_gang else tuple(ReplicaRef(role=m.role, index=m.index) for m in ended)
    uncounted = 0 if is_gang else sum(1 for m in ended if not _has_failed(m))
    delay = 0 if all(m.restarting for m in ended) else delay_ms(record, ended[0].ended_at)
    return JobRestarting(
        scope=scope,
        attempt=record.attempt,
        reason=_why_again(record, job, ended, delay, is_gang=is_gang),
        delay_ms=delay,
        replicas=refs,
        uncounted=uncounted,
    )


def _why_again(
    record: JobRecord, job: Job, ended: Sequence[ReplicaRecord], delay: int, *, is_gang: bool
) -> Reason:
    first = ended[0]
    if first.restarting:
        again = "is" if len(ended) == 1 else f"and {len(ended) - 1} more are"
        message = f"{first.role}-{first.index} {again} restarted, as requested"
        return Reason(code=RESTART_REQUESTED, message=message)
    failed = 1 if is_gang else sum(1 for m in ended if _has_failed(m))
    several = f"{len(ended)} {'failed ' if failed == len(ended) else ''}replicas"
    subject = "gang is" if is_gang else "replica is" if len(ended) == 1 else f"{several} are"
    return Reason(
        code="ReplicaFailed" if failed else "ReplicaEnded",
        message=f"{_end_message(first)}; the {subject} restarted in {delay / 1000:g} s",
        numbers={"failures": failures_at(record, first.ended_at) + failed, "limit": job.run.backoff_limit},
    )


def _is_missed(replica: ReplicaRecord, job: Job) -> bool:
    """Return whether an end needs a decision here; disruptions are placed again by the scheduler."""
    if was_disrupted(replica):
        return False
    if replica.state is ReplicaState.LOST or (replica.restarting and replica.ended):
        return True
    if replica.state is not ReplicaState.EXITED:
        return False
    role = job.role(replica.role)
    is_always = role is not None and role.restart_policy is RestartPolicy.ALWAYS
    return not succeeded(replica) or (is_always and job.kind is JobKind.SERVICE)


def _has_failed(replica: ReplicaRecord) -> bool:
    """Return whether an end counts as a failure: neither a requested end nor exit code 0 does."""
    return not replica.restarting and not succeeded(replica)


def _retryable(replica: ReplicaRecord, job: Job) -> bool:
    role = job.role(replica.role)
    policy = role.restart_policy if role else RestartPolicy.NEVER
    if policy is RestartPolicy.EXIT_CODE:
        code = 128 + replica.signal if replica.signal else (replica.exit_code or 0)
        return replica.state is ReplicaState.LOST or code >= _RETRYABLE_FROM
    return policy is not RestartPolicy.NEVER


def _end_message(replica: ReplicaRecord) -> str:
    name = f"{replica.role}-{replica.index}"
    if replica.state is ReplicaState.LOST:
        return f"{name} on {replica.node} was lost: {replica.reason or 'its end was not observed'}"
    how = f"was ended by signal {replica.signal}" if replica.signal else f"exited with {replica.exit_code}"
    why = replica.reason or ("" if replica.signal else _SHELL_EXIT_CODES.get(replica.exit_code or 0, ""))
    return f"{name} on {replica.node} {how}" + (f": {why}" if why else "")


def _finish(record: JobRecord, outcome: Outcome, code: str, message: str) -> Finish:
    return Finish(
        JobFinished(outcome=outcome, reason=Reason(code=code, message=message), attempt=record.attempt)
    )
