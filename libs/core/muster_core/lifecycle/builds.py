"""A job that is built first: how long it waits for its build, and what the end of that build means to it.

The answer stands in the job's own record. Once the scheduler has said anything of it but these two reasons, its build has succeeded, and
may be forgotten without the job having to wait again.
"""

from __future__ import annotations

from muster_core.models import JobKind, JobRecord, Phase

WAITING_FOR_BUILD = "WaitingForBuild"
"""The code of a job whose build has not ended yet."""

BUILD_FAILED = "BuildFailed"
"""The code of a job whose build ended without success, or is not there any more."""

NOT_LOOKED_AT = "Queued"
"""The code of a job of which the scheduler has said nothing yet."""

_BEFORE_ITS_BUILD = frozenset({NOT_LOOKED_AT, WAITING_FOR_BUILD, BUILD_FAILED})


def awaits_build(record: JobRecord) -> bool:
    """Whether the job cannot start before its build has succeeded, as far as its own record tells."""
    said = record.reason.code if record.reason else NOT_LOOKED_AT
    return bool(record.built_by) and not record.attempt and said in _BEFORE_ITS_BUILD


def is_build(record: JobRecord) -> bool:
    """Whether other jobs may wait for this one."""
    return record.job is not None and record.job.kind is JobKind.BUILD


def lost_its_build(record: JobRecord) -> bool:
    """Whether the scheduler has found that the job's build will never succeed."""
    waits = record.phase is Phase.QUEUED and awaits_build(record)
    return waits and record.reason is not None and record.reason.code == BUILD_FAILED
