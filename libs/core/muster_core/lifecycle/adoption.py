"""Adoption: a job's record continues from the replicas that a runtime has, after an older store was restored.

A job without a record is an orphan: it is kept for a grace period, until a user adopts or removes it. A job whose record is behind its
replicas is adopted at once: the runtime cannot be ahead of the record in any other way.
"""

from __future__ import annotations

import msgspec

from muster_core.events import JobAdopted
from muster_core.lifecycle.replicas import supersedes
from muster_core.lifecycle.transitions import ACTIVE_PHASES
from muster_core.models import Job, JobRecord, Phase, Reason, ReplicaRecord, ReplicaState

ADOPTED = "Adopted"
"""The reason code of an adopted job."""

_MISSING = "the runtime had no replica of it when the job was adopted"

RunKey = tuple[int, str, int, int]


class RetainedJob(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What a runtime retains of a job, so that its record can be created again."""

    job: Job
    submission_id: str = ""
    submitter: str = ""
    trace: str = ""
    built_by: str = ""
    submitted_at: int = 0


class RetainedMembership(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The membership file of a job: ``members`` maps each role to its indices and their addresses."""

    attempt: int
    generation: int
    members: dict[str, dict[str, str]] = {}

    @property
    def keys(self) -> frozenset[tuple[str, int]]:
        """Role and index of each member."""
        return frozenset((role, int(index)) for role, indices in self.members.items() for index in indices)


class OrphanMark(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Marks a job as an orphan since ``found_at`` (µs); ``removal_requested``: a user asked for its removal."""

    found_at: int
    removal_requested: bool = False

    def removal_at(self, grace_us: int) -> int:
        """Return when (µs) the orphan is to be removed; 0 for at once."""
        return 0 if self.removal_requested else self.found_at + grace_us


class HeldJob(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Everything that a runtime holds of a job.

    Attributes:
        job_id: The job.
        runs: Every run, with its node, its GPUs and its observed state.
        retained: What recreates the record; None if it was not retained.
        membership: The membership file; None if there is none.
        mark: Marks the job as an orphan; None if it is not one.
    """

    job_id: str
    runs: tuple[ReplicaRecord, ...] = ()
    retained: RetainedJob | None = None
    membership: RetainedMembership | None = None
    mark: OrphanMark | None = None

    @property
    def attempt(self) -> int:
        """The latest attempt of its runs; 0 without any."""
        return max((run.attempt for run in self.runs), default=0)

    @property
    def generation(self) -> int:
        """The latest generation of that attempt."""
        known = [run.generation for run in self.runs if run.attempt == self.attempt]
        if self.membership is not None and self.membership.attempt == self.attempt:
            known.append(self.membership.generation)
        return max(known, default=0)

    @property
    def gang(self) -> tuple[ReplicaRecord, ...]:
        """The latest run of each member, by role and index; a member without a run is missing."""
        latest = self._latest()
        return tuple(run for key, run in sorted(latest.items()) if key in self._members(latest))

    def replicas(self) -> tuple[ReplicaRecord, ...]:
        """Return its replicas for a record: the members, also missing ones, and what leaves the gang and has not ended."""
        latest = self._latest()
        members = self._members(latest)
        replicas = [run if key in members else leaving(run) for key, run in sorted(latest.items())]
        replicas += [
            _missing(role, index, self.attempt, self.generation)
            for role, index in sorted(members - latest.keys())
        ]
        replicas += [leaving(run) for run in self.runs if run.attempt < self.attempt]
        return tuple(one for one in replicas if not (one.terminating and one.ended))

    def _latest(self) -> dict[tuple[str, int], ReplicaRecord]:
        current = [run for run in self.runs if run.attempt == self.attempt]
        return {run.key: run for run in sorted(current, key=lambda run: run.restart)}

    def _members(self, latest: dict[tuple[str, int], ReplicaRecord]) -> frozenset[tuple[str, int]]:
        if self.membership is not None and self.membership.attempt == self.attempt:
            return self.membership.keys
        return frozenset(latest)


def retained_job(record: JobRecord) -> RetainedJob | None:
    """Return what a runtime retains of a job; None before its validation."""
    if record.job is None:
        return None
    return RetainedJob(
        job=record.job,
        submission_id=record.submission_id,
        submitter=record.submitter,
        trace=record.trace,
        built_by=record.built_by,
        submitted_at=record.submitted_at,
    )


def is_behind(record: JobRecord, held: HeldJob) -> bool:
    """Return whether the runtime has newer replicas than the record: a later attempt, generation or restart, or another node.

    The record of an ended job is never behind: its replicas are to end.
    """
    if record.terminal:
        return False
    if (held.attempt, held.generation) > (record.attempt, record.generation):
        return True
    known = {(r.attempt, *r.key): r for r in record.replicas}
    return any(_is_ahead(run, known.get((run.attempt, *run.key))) for run in held.runs)


def _is_ahead(run: ReplicaRecord, known: ReplicaRecord | None) -> bool:
    if known is None or run.restart < known.restart:
        return False
    moved = run.node != known.node or (bool(run.gpus) and run.gpus != known.gpus)
    return run.restart > known.restart or (moved and not run.ended and not known.ended)


def adoption_of(held: HeldJob, *, reason: Reason, has_record: bool) -> JobAdopted | None:
    """Return the event by which a record continues from what a runtime holds.

    Args:
        held: What the runtime holds of the job.
        reason: Why it is adopted.
        has_record: The job has a record, which keeps what the runtime has retained of it.

    Returns:
        The event, or None if there is no run, or nothing that recreates a missing record.
    """
    if not held.runs or (held.retained is None and not has_record):
        return None
    event = JobAdopted(
        attempt=held.attempt, generation=held.generation, replicas=held.replicas(), reason=reason
    )
    if held.retained is None or has_record:
        return event
    return msgspec.structs.replace(
        event,
        job=held.retained.job,
        submission_id=held.retained.submission_id,
        submitter=held.retained.submitter,
        built_by=held.retained.built_by,
        submitted_at=held.retained.submitted_at,
    )


def leaving(run: ReplicaRecord) -> ReplicaRecord:
    """Return a replica that has left its gang; it keeps its allocation until its end is confirmed."""
    return msgspec.structs.replace(run, terminating=True)


def _missing(role: str, index: int, attempt: int, generation: int) -> ReplicaRecord:
    return ReplicaRecord(
        role=role,
        index=index,
        attempt=attempt,
        generation=generation,
        node="",
        state=ReplicaState.LOST,
        reason=_MISSING,
        node_lost=True,
    )


def begin_adopted(job_id: str, event: JobAdopted, *, sequence: int, trace: str, at: int) -> JobRecord | None:
    """Return the record of an adopted orphan; None if the event has no job."""
    if event.job is None:
        return None
    submitted_at = event.submitted_at or at
    record = JobRecord(
        job_id=job_id,
        applied_sequence=sequence,
        submission_id=event.submission_id,
        name=event.job.name,
        job=event.job,
        submitter=event.submitter,
        format=event.job.format,
        trace=trace,
        built_by=event.built_by,
        submitted_at=submitted_at,
        validated_at=submitted_at,
        queued_at=submitted_at,
        waiting_since=submitted_at,
    )
    return adopt(record, event, at)


def adopt(record: JobRecord, event: JobAdopted, at: int) -> JobRecord | None:
    """Return the record after an adoption at ``at`` (µs); None if the record is ahead of the event."""
    membership = (event.attempt, event.generation)
    is_newer = membership > (record.attempt, record.generation)
    if not is_newer and (
        membership < (record.attempt, record.generation) or record.phase not in ACTIVE_PHASES
    ):
        return None
    known = {_run_key(replica): replica for replica in record.replicas}
    # Of the same membership, the record may know more than the runtime: a replica that has not started yet.
    latest = {(one.attempt, *one.key): one.restart for one in record.replicas}
    found = [
        one
        for one in event.replicas
        if is_newer or (one.node and one.restart >= latest.get((one.attempt, *one.key), 0))
    ]
    adopted = [_merged(known.get(_run_key(one)), one, at) for one in found]
    replaced = {(one.attempt, *one.key) for one in adopted}
    rest = [one for one in record.replicas if (one.attempt, *one.key) not in replaced]
    if is_newer:
        rest = [leaving(one) for one in rest if not one.ended]
    moved = msgspec.structs.replace(
        record,
        attempt=event.attempt,
        generation=event.generation,
        replicas=(*rest, *adopted),
        reason=event.reason,
        placed_at=at if is_newer else record.placed_at,
        suspended=None if is_newer else record.suspended,
        not_before=0,
        resized_by="" if event.attempt > record.attempt else record.resized_by,
    )
    return _with_phase(moved, at) if moved.gang() else None


def _run_key(replica: ReplicaRecord) -> RunKey:
    return (replica.attempt, replica.role, replica.index, replica.restart)


def _merged(known: ReplicaRecord | None, found: ReplicaRecord, at: int) -> ReplicaRecord:
    """Return a replica where the runtime has it, in the later of both states."""
    if found.ended and not found.ended_at:
        found = msgspec.structs.replace(found, ended_at=at)
    if known is None:
        return msgspec.structs.replace(found, placed_at=found.placed_at or at)
    gpus = found.gpus or (known.gpus if known.node == found.node else ())
    later = found if supersedes(found.state, known.state) else known
    return msgspec.structs.replace(
        later,
        node=found.node,
        gpus=gpus,
        generation=max(known.generation, found.generation),
        terminating=known.terminating or found.terminating,
        placed_at=known.placed_at or at,
    )


def _with_phase(record: JobRecord, at: int) -> JobRecord:
    members = record.gang()
    began = min((one.running_at for one in members if one.running_at), default=0)
    runs = all(one.running_at or one.ended for one in members)
    return msgspec.structs.replace(
        record,
        phase=Phase.RUNNING if runs else Phase.LAUNCHING,
        started_at=record.started_at or began,
        active_from=record.active_from or began,
        running_at=(record.running_at or at) if runs else record.running_at,
    )
