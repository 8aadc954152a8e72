"""Validates submissions: a document becomes jobs with the platform defaults applied, or every problem that it has."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

import msgspec

import muster_formats
from muster_core.events import JobRejected, JobSubmitted, JobValidated, StoredEvent
from muster_core.models import Job, JobKind, Problem
from muster_events.subjects import part_job_id
from muster_formats import MAX_JOB_BYTES, Code, Limits, Parsed, version_limits
from muster_formats.defaults import apply_defaults
from muster_formats.gpu_sharing import with_shared_gpus
from muster_service.logs import fields
from muster_spec_validator.defaults import Applied, Defaults

log = logging.getLogger(__name__)


class Publisher(Protocol):
    """Publishes the results of validations."""

    async def publish(self, submission: StoredEvent, jobs: Sequence[JobValidated]) -> bool:
        """Publish the jobs of a submission, all or none, once however often it is called; returns when they are durable.

        Returns False if the submission was validated before; that result stays.

        Raises:
            PartExists: A job of an earlier submission with the same request id still exists.
        """
        ...

    async def reject(self, submission: StoredEvent, rejected: JobRejected) -> bool:
        """Publish the rejection of a submission, once; returns False if the submission was validated before."""
        ...


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What the pool allows: the limits of jobs, and in how many parts its device plugin shares each GPU (1: in none)."""

    limits: Limits = version_limits
    gpu_shares: int = 1


_NO_RULES = Rules()


class PartExists(Exception):
    """The job ``job_id`` of an earlier submission with the same request id still exists."""

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self.job_id = job_id


class SubmissionHandler:
    """Validates each submission and publishes the result."""

    def __init__(self, *, publisher: Publisher, defaults: Defaults, rules: Rules) -> None:
        self._publisher = publisher
        self._defaults = defaults
        self._rules = rules

    async def handle(self, submission: StoredEvent) -> None:
        """Validate one submission."""
        event = submission.event
        if not isinstance(event, JobSubmitted):
            return
        result = validate(event, await self._defaults.current(), rules=self._rules, at=submission.at)
        if not isinstance(result, JobRejected):
            try:
                if await self._publisher.publish(submission, result):
                    for one in result:
                        job_id = part_job_id(event.job_id, one.part)
                        log.info(
                            "validated", extra=fields(job=one.job.name, job_id=job_id, format=one.job.format)
                        )
                return
            except PartExists as error:
                result = JobRejected(problems=(_part_exists(error.job_id),))
        if await self._publisher.reject(submission, result):
            log.info("rejected", extra=fields(job_id=submission.job_id, problems=len(result.problems)))


def validate(
    event: JobSubmitted, applied: Applied, *, rules: Rules = _NO_RULES, at: int = 0
) -> tuple[JobValidated, ...] | JobRejected:
    """Return the jobs of a submission at time ``at`` (µs), or its problems. Equal submissions, defaults and rules have equal results."""
    parsed = (
        read_spec(event.spec, applied, rules=rules)
        if event.spec
        else read_document(event.document or "", event.namespace, event.source_name, applied, rules=rules)
    )
    if not parsed.jobs:
        return JobRejected(problems=parsed.problems, name=event.spec.name if event.spec else "")
    validated = [
        JobValidated(
            job=job,
            defaults_version=applied.version,
            built_by=_build_of(job, parsed.jobs, event.job_id),
            part=part,
            parts=len(parsed.jobs),
        )
        for part, job in enumerate(parsed.jobs)
    ]
    # The first job has these from JobSubmitted.
    later = [
        msgspec.structs.replace(one, submission_id=event.job_id, submitter=event.submitter, submitted_at=at)
        for one in validated[1:]
    ]
    return (validated[0], *later)


def read_document(
    text: str, namespace: str, source_name: str, applied: Applied, *, rules: Rules = _NO_RULES
) -> Parsed:
    """Parse a document in any format and apply the defaults."""
    parsed = muster_formats.read_document(
        text, namespace=namespace, source_name=source_name, limits=rules.limits
    )
    return _with_defaults(parsed, applied, rules)


def read_spec(job: Job, applied: Applied, *, rules: Rules = _NO_RULES) -> Parsed:
    """Check a typed spec and apply the defaults."""
    return _with_defaults(muster_formats.read_spec(job, limits=rules.limits), applied, rules)


def _with_defaults(parsed: Parsed, applied: Applied, rules: Rules) -> Parsed:
    if not applied.version:
        return msgspec.structs.replace(
            parsed, jobs=tuple(with_shared_gpus(job, rules.gpu_shares) for job in parsed.jobs)
        )
    jobs = tuple(
        with_shared_gpus(apply_defaults(job, applied.defaults, applied.version), rules.gpu_shares)
        for job in parsed.jobs
    )
    sizes = [(job.name, len(msgspec.json.encode(job))) for job in jobs]
    too_large = tuple(_too_large(name, size) for name, size in sizes if size > MAX_JOB_BYTES)
    return Parsed(jobs=() if too_large else jobs, problems=too_large + parsed.problems)


def _build_of(job: Job, jobs: tuple[Job, ...], submission_id: str) -> str:
    """Return the id of the job that builds this one; empty if it is not built."""
    if not job.built_by:
        return ""
    wanted = (job.namespace, job.built_by, JobKind.BUILD)
    part = next(i for i, other in enumerate(jobs) if (other.namespace, other.name, other.kind) == wanted)
    return part_job_id(submission_id, part)


def _part_exists(job_id: str) -> Problem:
    return Problem(
        code=Code.CONFLICT,
        path="request_id",
        message=f"the request id was used before, and job {job_id} of that submission still exists",
        fix="submit with a new request id",
    )


def _too_large(name: str, size: int) -> Problem:
    return Problem(
        code=Code.TOO_LARGE,
        path="",
        message=f"with the platform defaults applied, the job {name} is too large",
        found=f"{size // 1024} KiB",
        allowed=f"at most {MAX_JOB_BYTES // 1024} KiB",
        fix="use fewer replicas with overrides",
    )
