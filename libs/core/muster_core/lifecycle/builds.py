"""Jobs that need a build: waiting for it, and its outcome.

The answer is in the job's own record: any reason of the scheduler other than these two means that the build has
succeeded, so the build may be deleted without making the job wait again.
"""

from __future__ import annotations

from muster_core.models import JobKind, JobRecord, Phase

WAITING_FOR_BUILD = "WaitingForBuild"
"""The code of a job whose build has not ended."""

BUILD_FAILED = "BuildFailed"
"""The code of a job whose build ended without success, or no longer exists."""

NOT_LOOKED_AT = "Queued"
"""The code of a job that the scheduler has not evaluated yet."""

_BEFORE_ITS_BUILD = frozenset({NOT_LOOKED_AT, WAITING_FOR_BUILD, BUILD_FAILED})


def awaits_build(record: JobRecord) -> bool:
    """Return whether the job must wait for its build, according to its own record."""
    said = record.reason.code if record.reason else NOT_LOOKED_AT
    return bool(record.built_by) and not record.attempt and said in _BEFORE_ITS_BUILD


def is_build(record: JobRecord) -> bool:
    """Return whether other jobs may wait for this one."""
    return record.job is not None and record.job.kind is JobKind.BUILD


def lost_its_build(record: JobRecord) -> bool:
    """Return whether the scheduler has reported that the job's build will not succeed."""
    waits = record.phase is Phase.QUEUED and awaits_build(record)
    return waits and record.reason is not None and record.reason.code == BUILD_FAILED
