"""What status-tracker decides on a job's record: whether it has ended, is to be restarted, or may be forgotten.

The answer depends on the record and the instant alone, so asking again after a crash gives the same answer, and the fact that comes
of it is the same fact.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from muster_core.facts import JobFinished, JobRestarting, Outcome, ReplicaRef
from muster_core.lifecycle.backoff import delay_ms, failures_at
from muster_core.lifecycle.builds import BUILD_FAILED, awaits_build, lost_its_build
from muster_core.lifecycle.moves import ACTIVE_PHASES
from muster_core.lifecycle.success import restart_scope_of, succeeded, success_of
from muster_core.models import (
    Job,
    JobKind,
    JobRecord,
    Phase,
    Reason,
    ReplicaRecord,
    ReplicaState,
    RestartPolicy,
    RestartScope,
)

_US = 1_000_000
_RETRYABLE_FROM = 128
_SHELL_WORDS = {
    126: "a command could not be run, see its log",
    127: "a command was not found, see its log",
}
"""What shells mean by these, where the runtime itself knows nothing better."""
_REJECTED_TTL_S = 3600
"""Whoever submitted a rejected document was told; its record is kept for a look, not for ever."""


class Finish(msgspec.Struct, frozen=True):
    """The job has ended."""

    fact: JobFinished


class Restart(msgspec.Struct, frozen=True):
    """Replicas are started again."""

    fact: JobRestarting


class Forget(msgspec.Struct, frozen=True):
    """The record may be removed: nothing of the job runs, and its user or its time to live says so."""

    job_id: str


LifeInstruction = Finish | Restart | Forget


def decide(record: JobRecord, now: int) -> list[LifeInstruction]:
    """What is to be done about the job at ``now`` (µs); at most one instruction, the rest follows from its fact."""
    if record.terminal:
        due = record.delete_requested or _passed(_ttl_end(record), now)
        return [Forget(record.job_id)] if due and record.settled else []
    if record.cancel_requested:
        return [_finish(record, Outcome.CANCELLED, "Cancelled", "its user asked for it")]
    job = record.job
    if job is None:
        return []
    if lost_its_build(record) and record.reason is not None:
        return [_finish(record, Outcome.FAILED, BUILD_FAILED, record.reason.message)]
    if _passed(_active_end(record, job), now):
        return [
            _finish(
                record, Outcome.TIMED_OUT, "ActiveDeadline", f"ran longer than {job.run.active_deadline_s} s"
            )
        ]
    if _passed(_queue_end(record, job), now):
        return [
            _finish(
                record,
                Outcome.TIMED_OUT,
                "QueueDeadline",
                f"did not start within {job.run.queue_deadline_s} s",
            )
        ]
    if record.phase not in ACTIVE_PHASES:
        return []
    why = None if _stays_up(job) else success_of(record, job)
    if why:
        return [_finish(record, Outcome.SUCCEEDED, "Succeeded", why)]
    return _after_failures(record, job)


def next_deadline(record: JobRecord) -> int | None:
    """The next instant (µs) at which ``decide`` may answer otherwise without a new fact."""
    if record.terminal:
        return _ttl_end(record) if record.settled else None
    if record.job is None:
        return None
    ends = (_active_end(record, record.job), _queue_end(record, record.job))
    return min((end for end in ends if end is not None), default=None)


def _passed(instant: int | None, now: int) -> bool:
    return instant is not None and now >= instant


def _ttl_end(record: JobRecord) -> int | None:
    if record.phase is Phase.REJECTED:
        return record.finished_at + _REJECTED_TTL_S * _US
    ttl = record.job.run.ttl_s if record.job else None
    return None if ttl is None else record.finished_at + ttl * _US


def _active_end(record: JobRecord, job: Job) -> int | None:
    deadline = job.run.active_deadline_s
    return record.started_at + deadline * _US if deadline is not None and record.started_at else None


def _queue_end(record: JobRecord, job: Job) -> int | None:
    deadline = job.run.queue_deadline_s
    waits = record.attempt == 0 and record.phase is Phase.QUEUED and not awaits_build(record)
    return record.waiting_since + deadline * _US if deadline is not None and waits else None


def _stays_up(job: Job) -> bool:
    return job.kind is JobKind.SERVICE and any(
        role.restart_policy is RestartPolicy.ALWAYS for role in job.roles
    )


def _after_failures(record: JobRecord, job: Job) -> list[LifeInstruction]:
    ended = [m for m in record.members() if _is_missed(m, job)]
    if not ended:
        return []
    # The first to fail is the one to name: its peers often fail only for the want of it.
    ended.sort(key=lambda m: (succeeded(m), m.ended_at, m.role, m.index))
    failed = [m for m in ended if not succeeded(m)]
    words, at = _words(ended[0]), ended[0].ended_at
    fatal = next((m for m in failed if not _retryable(m, job)), None)
    if fatal is not None:
        return [_finish(record, Outcome.FAILED, "ReplicaFailed", _words(fatal))]
    failures = failures_at(record, at)
    if failed and failures >= job.run.backoff_limit:
        message = f"{words}; it had been restarted {failures} times, which is its limit"
        return [_finish(record, Outcome.FAILED, "BackoffLimitExceeded", message)]
    scope = restart_scope_of(job) if failed else RestartScope.REPLICA
    return [Restart(_restart(record, job, ended, scope))]


def _restart(
    record: JobRecord, job: Job, ended: Sequence[ReplicaRecord], scope: RestartScope
) -> JobRestarting:
    is_gang = scope is RestartScope.GANG
    refs = () if is_gang else tuple(ReplicaRef(role=m.role, index=m.index) for m in ended)
    uncounted = 0 if is_gang else sum(1 for m in ended if succeeded(m))
    failed = 1 if is_gang else len(ended) - uncounted
    first = ended[0]
    delay = delay_ms(record, first.ended_at)
    several = f"{len(refs)} replicas" if uncounted else f"{len(refs)} failed replicas"
    whom = "gang is" if is_gang else "replica is" if len(refs) == 1 else f"{several} are"
    reason = Reason(
        code="ReplicaFailed" if failed else "ReplicaEnded",
        message=f"{_words(first)}; the {whom} started again in {delay / 1000:g} s",
        numbers={
            "failures": failures_at(record, first.ended_at) + failed,
            "limit": job.run.backoff_limit,
        },
    )
    return JobRestarting(
        scope=scope,
        attempt=record.attempt,
        reason=reason,
        delay_ms=delay,
        replicas=refs,
        uncounted=uncounted,
    )


def _is_missed(replica: ReplicaRecord, job: Job) -> bool:
    """Whether its end is one that something has to be done about."""
    if replica.state is ReplicaState.LOST:
        return True
    if replica.state is not ReplicaState.EXITED:
        return False
    role = job.role(replica.role)
    is_always = role is not None and role.restart_policy is RestartPolicy.ALWAYS
    return not succeeded(replica) or (is_always and job.kind is JobKind.SERVICE)


def _retryable(replica: ReplicaRecord, job: Job) -> bool:
    role = job.role(replica.role)
    policy = role.restart_policy if role else RestartPolicy.NEVER
    if policy is RestartPolicy.EXIT_CODE:
        code = 128 + replica.signal if replica.signal else (replica.exit_code or 0)
        return replica.state is ReplicaState.LOST or code >= _RETRYABLE_FROM
    return policy is not RestartPolicy.NEVER


def _words(replica: ReplicaRecord) -> str:
    name = f"{replica.role}-{replica.index}"
    if replica.state is ReplicaState.LOST:
        return f"{name} on {replica.node} was lost: {replica.reason or 'its end was not witnessed'}"
    how = f"was ended by signal {replica.signal}" if replica.signal else f"exited with {replica.exit_code}"
    why = replica.reason or ("" if replica.signal else _SHELL_WORDS.get(replica.exit_code or 0, ""))
    return f"{name} on {replica.node} {how}" + (f": {why}" if why else "")


def _finish(record: JobRecord, outcome: Outcome, code: str, message: str) -> Finish:
    return Finish(
        JobFinished(outcome=outcome, reason=Reason(code=code, message=message), attempt=record.attempt)
    )
