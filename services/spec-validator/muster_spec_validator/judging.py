"""What a submission means under the platform's defaults, or everything that is wrong with it."""

from __future__ import annotations

import msgspec

from muster_core.events import JobRejected, JobSubmitted, JobValidated
from muster_core.models import Job, JobKind, Problem
from muster_events.subjects import job_id_of
from muster_formats import Code, Parsed, reading
from muster_formats.capabilities import Limits, limits_of
from muster_formats.defaults import PlatformDefaults, apply_defaults
from muster_formats.rules import MAX_JOB_BYTES


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """The platform's defaults as they were applied; ``version`` 0: none were yet. ``applied_at`` is in microseconds."""

    version: int = 0
    defaults: PlatformDefaults = PlatformDefaults()
    applied_by: str = ""
    applied_at: int = 0


NONE_APPLIED = Applied()
"""What is in force before anyone applied anything."""


def judge(event: JobSubmitted, applied: Applied, *, limits: Limits = limits_of) -> JobValidated | JobRejected:
    """The verdict on one part of a submission. The same submission under the same defaults and limits gets the same one."""
    name = event.spec.name if event.spec else ""
    parsed = (
        read_spec(event.spec, applied, limits=limits)
        if event.spec
        else read_document(event.document or "", event.namespace, event.source_name, applied, limits=limits)
    )
    if parsed.jobs and event.parts not in (0, len(parsed.jobs)):
        return JobRejected(problems=(_miscounted(event.parts, len(parsed.jobs)),), name=name)
    if event.part >= len(parsed.jobs):
        return JobRejected(problems=parsed.problems, name=name)
    job = parsed.jobs[event.part]
    return JobValidated(
        job=job, defaults_version=applied.version, built_by=_build_of(job, parsed.jobs, event.request_id)
    )


def read_document(
    text: str, namespace: str, source_name: str, applied: Applied, *, limits: Limits = limits_of
) -> Parsed:
    """What a document in any format means, the defaults filled in."""
    parsed = reading.read_document(text, namespace=namespace, source_name=source_name, limits=limits)
    return _completed(parsed, applied)


def read_spec(job: Job, applied: Applied, *, limits: Limits = limits_of) -> Parsed:
    """The same for a job that came as data."""
    return _completed(reading.read_spec(job, limits=limits), applied)


def _completed(parsed: Parsed, applied: Applied) -> Parsed:
    if not applied.version:
        return parsed
    jobs = tuple(apply_defaults(job, applied.defaults, applied.version) for job in parsed.jobs)
    sizes = [(job.name, len(msgspec.json.encode(job))) for job in jobs]
    too_large = tuple(_too_large(name, size) for name, size in sizes if size > MAX_JOB_BYTES)
    return Parsed(jobs=() if too_large else jobs, problems=too_large + parsed.problems)


def _build_of(job: Job, jobs: tuple[Job, ...], request_id: str) -> str:
    """The id of the job that builds this one; empty where it is not built."""
    if not job.built_by:
        return ""
    wanted = (job.namespace, job.built_by, JobKind.BUILD)
    part = next(i for i, other in enumerate(jobs) if (other.namespace, other.name, other.kind) == wanted)
    return job_id_of(request_id, part)


def _miscounted(asked: int, found: int) -> Problem:
    return Problem(
        code=Code.CONFLICT,
        path="",
        message=f"the document holds {found} jobs, but was submitted as {asked}",
        found=str(found),
        allowed=str(asked),
        fix="divide it into parts, with a line --- between them, or submit its jobs one by one",
    )


def _too_large(name: str, size: int) -> Problem:
    return Problem(
        code=Code.TOO_LARGE,
        path="",
        message=f"with the platform's defaults filled in, the job {name} is too large",
        found=f"{size // 1024} KiB",
        allowed=f"at most {MAX_JOB_BYTES // 1024} KiB",
        fix="have fewer replicas with overrides of their own",
    )
