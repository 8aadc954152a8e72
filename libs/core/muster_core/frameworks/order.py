"""Who waits for whom: a launcher that starts before its workers finds nobody."""

from __future__ import annotations

from muster_core.frameworks import mpi
from muster_core.models import Job, JobRecord, Reason, ReplicaRecord


def starts_after(job: Job, role: str) -> tuple[str, ...]:
    """The roles of which every member runs before a replica of ``role`` is started; most start at once."""
    if job.framework in mpi.FRAMEWORKS and role == mpi.LAUNCHER:
        return tuple(other.name for other in job.roles if other.name != role)
    return ()


def held_back(record: JobRecord, replica: ReplicaRecord) -> Reason | None:
    """Why a replica that is placed must not be started yet; ``None`` where nothing holds it back."""
    if record.job is None or replica.attempt != record.attempt:
        return None
    roles = starts_after(record.job, replica.role)
    if not roles:
        return None
    awaited = [member for member in record.members() if member.role in roles]
    # What has ended after all had run is no reason to wait: its end is judged by itself.
    running = sum(1 for member in awaited if member.running_at)
    if running == len(awaited):
        return None
    return Reason(
        code="StartsAfter",
        message=f"waits until every {' and '.join(roles)} runs: {running} of {len(awaited)} do",
        numbers={"running": running, "awaited": len(awaited)},
    )
