"""Rules of two kinds of jobs: builds, which other jobs wait for, and services, which have an address.

Whether a job still waits for its build is in its own record: any reason of the scheduler other than the two below means that
the build has succeeded, so the build may be deleted without making the job wait again.
"""

from __future__ import annotations

from muster_core.models import JobKind, JobRecord, Phase, ReplicaState

WAITING_FOR_BUILD = "WaitingForBuild"
"""The code of a job whose build has not ended."""

BUILD_FAILED = "BuildFailed"
"""The code of a job whose build ended without success, or no longer exists."""

NOT_EVALUATED = "Queued"
"""The code of a job that the scheduler has not evaluated yet."""

_AWAITS_BUILD = frozenset({NOT_EVALUATED, WAITING_FOR_BUILD, BUILD_FAILED})


def awaits_build(record: JobRecord) -> bool:
    """Return whether the job must wait for its build, according to its own record."""
    code = record.reason.code if record.reason else NOT_EVALUATED
    return bool(record.built_by) and not record.attempt and code in _AWAITS_BUILD


def is_build(record: JobRecord) -> bool:
    """Return whether other jobs may wait for this one."""
    return record.job is not None and record.job.kind is JobKind.BUILD


def lost_its_build(record: JobRecord) -> bool:
    """Return whether the scheduler has reported that the job's build will not succeed."""
    waits = record.phase is Phase.QUEUED and awaits_build(record)
    return waits and record.reason is not None and record.reason.code == BUILD_FAILED


_SCHEMES = ("http", "https")


def address_of(record: JobRecord) -> str:
    """Return the address of the first running replica of a service, as a URL if its template has a port named http or
    https.

    Empty while none runs, and for other jobs.
    """
    job = record.job
    if job is None or job.kind is not JobKind.SERVICE or record.terminal:
        return ""
    running = {
        member.key: member.address
        for member in record.gang()
        if member.state is ReplicaState.RUNNING and member.address
    }
    for role in job.roles:
        indices = sorted(index for name, index in running if name == role.name)
        if indices:
            ports = [port.name for port in role.template_of(indices[0]).ports]
            scheme = next((f"{name}://" for name in ports if name in _SCHEMES), "")
            return scheme + running[role.name, indices[0]]
    return ""
