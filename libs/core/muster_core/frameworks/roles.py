"""Roles with a special part in a gang: those that compute, and those that start after others."""

from __future__ import annotations

from muster_core.frameworks import mpi
from muster_core.models import Job, JobRecord, Reason, ReplicaRecord

_OTHERS = frozenset({"ps", "server", "launcher", "scheduler", "evaluator"})
"""Roles that serve, start or watch the workers."""


def computes(role: str) -> bool:
    """Return whether replicas of this role share the training work."""
    return role.lower() not in _OTHERS


def starts_after(job: Job, role: str) -> tuple[str, ...]:
    """Return the roles whose members must all run before a replica of ``role`` starts; most start at once."""
    if job.framework in mpi.FRAMEWORKS and role == mpi.LAUNCHER:
        return tuple(other.name for other in job.roles if other.name != role)
    return ()


def start_order_reason(record: JobRecord, replica: ReplicaRecord) -> Reason | None:
    """Return why a placed replica must not start yet, or ``None``."""
    if record.job is None or replica.attempt != record.attempt:
        return None
    roles = starts_after(record.job, replica.role)
    if not roles:
        return None
    awaited = [member for member in record.gang() if member.role in roles]
    # A replica that ended after all had run does not delay others.
    running = sum(1 for member in awaited if member.running_at)
    if running == len(awaited):
        return None
    return Reason(
        code="StartsAfter",
        message=f"waits until every {' and '.join(roles)} runs: {running} of {len(awaited)} do",
        numbers={"running": running, "awaited": len(awaited)},
    )
