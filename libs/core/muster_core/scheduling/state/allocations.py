"""Allocations of jobs: what their replicas hold, what they release and when, and how far running gangs may shrink or grow.

Allocations are computed from job records and stored nowhere else, so that they cannot disagree with the events.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from muster_core.events import ReplicaRef
from muster_core.lifecycle import ACTIVE_PHASES, was_disrupted
from muster_core.models import JobKind, JobRecord, Phase, ReplicaRecord, ReplicaState, RestartPolicy
from muster_core.scheduling.placement import Allocation, AllocationKey, allocation_of, is_pinned

Allocations = tuple[tuple[AllocationKey, Allocation], ...]
"""Allocations with their keys."""

Name = tuple[str, str]
"""The namespace and the name of a job."""

_NOTHING: Mapping[AllocationKey, Allocation] = {}


def allocations_of(
    record: JobRecord, known: Mapping[AllocationKey, Allocation] = _NOTHING
) -> dict[AllocationKey, Allocation]:
    """Return what the replicas of ``record`` hold, terminating ones included; ``known`` allocations are used again."""
    if record.job is None:
        return {}
    allocations: dict[AllocationKey, Allocation] = {}
    for replica in record.replicas:
        role = record.job.role(replica.role)
        if role is not None and holds_allocation(record, replica):
            key = (record.job_id, replica.attempt, replica.role, replica.index)
            allocation = known.get(key)
            if allocation is None or allocation.node != replica.node or allocation.gpus != replica.gpus:
                allocation = allocation_of(record.job, role.name, replica.index, replica.node, replica.gpus)
            allocations[key] = allocation
    return allocations


def holds_allocation(record: JobRecord, replica: ReplicaRecord) -> bool:
    """Return whether ``replica`` keeps its allocation: until its end is confirmed, and while it may restart in place."""
    if not replica.ended:
        return True
    is_current = replica.attempt == record.attempt and not replica.terminating
    return is_current and record.phase in ACTIVE_PHASES and _may_restart(record, replica)


def _may_restart(record: JobRecord, replica: ReplicaRecord) -> bool:
    role = record.job.role(replica.role) if record.job else None
    if replica.restarting and not was_disrupted(replica):
        return True
    if record.job is None or role is None or role.restart_policy is RestartPolicy.NEVER:
        return False
    if replica.state is ReplicaState.EXITED:
        failed = bool(replica.exit_code) or bool(replica.signal)
        return failed or (record.job.kind is JobKind.SERVICE and role.restart_policy is RestartPolicy.ALWAYS)
    return replica.state is ReplicaState.LOST and not was_disrupted(replica)


class JobReleases(NamedTuple):
    """What a job will release: ``terminating`` soon, ``on_completion`` when it ends; it may hold more than both."""

    terminating: Allocations
    on_completion: Allocations
    placed_at: int
    has_deadline: bool
    name: Name


class ReleaseIndex:
    """The releases of all jobs, updated record by record, so that a starved gang need not read all running jobs."""

    def __init__(self) -> None:
        self._of: dict[str, JobReleases] = {}
        self._terminating: set[str] = set()
        #: The jobs with an active deadline that release something when they end.
        self.with_deadline: set[str] = set()
        #: The other jobs that release something when they end: their placement (µs) and id, sorted.
        self.by_age: list[tuple[int, str]] = []
        self._by_name: dict[Name, set[str]] = {}

    def __len__(self) -> int:
        """The number of jobs that release something when they end."""
        return len(self.with_deadline) + len(self.by_age)

    @property
    def terminating(self) -> Sequence[str]:
        """The jobs with terminating replicas, sorted."""
        return sorted(self._terminating)

    def named(self, names: Set[Name]) -> Iterator[str]:
        """Yield the jobs in ``by_age`` with one of these names."""
        for name in self._by_name.keys() & names:
            yield from self._by_name[name]

    def of(self, job_id: str) -> JobReleases:
        """Return the releases of a job; raises KeyError if it holds nothing."""
        return self._of[job_id]

    def put(self, record: JobRecord, allocations: Mapping[AllocationKey, Allocation]) -> bool:
        """Set the releases of a job that now holds ``allocations``; return whether they differ."""
        job_id = record.job_id
        before = self._of.get(job_id)
        after = _job_releases(record, allocations) if allocations else None
        if after == before:
            return False
        if before is not None:
            self._remove(job_id, before)
        if after is not None:
            self._add(job_id, after)
        return True

    def _add(self, job_id: str, releases: JobReleases) -> None:
        self._of[job_id] = releases
        if releases.terminating:
            self._terminating.add(job_id)
        if releases.on_completion and releases.has_deadline:
            self.with_deadline.add(job_id)
        elif releases.on_completion:
            insort(self.by_age, (releases.placed_at, job_id))
            self._by_name.setdefault(releases.name, set()).add(job_id)

    def _remove(self, job_id: str, releases: JobReleases) -> None:
        del self._of[job_id]
        self._terminating.discard(job_id)
        if releases.on_completion and releases.has_deadline:
            self.with_deadline.discard(job_id)
        elif releases.on_completion:
            del self.by_age[bisect_left(self.by_age, (releases.placed_at, job_id))]
            namesakes = self._by_name[releases.name]
            namesakes.discard(job_id)
            if not namesakes:
                del self._by_name[releases.name]


def _job_releases(record: JobRecord, allocations: Mapping[AllocationKey, Allocation]) -> JobReleases:
    terminating = {
        (record.job_id, r.attempt, r.role, r.index) for r in record.replicas if r.terminating and not r.ended
    }
    job = record.job
    ends = job is not None and job.kind is not JobKind.SERVICE and record.phase in ACTIVE_PHASES
    return JobReleases(
        terminating=tuple(one for one in allocations.items() if one[0] in terminating) if terminating else (),
        on_completion=tuple(one for one in allocations.items() if one[0] not in terminating) if ends else (),
        placed_at=record.placed_at,
        has_deadline=job is not None and job.run.active_deadline_s is not None,
        name=(job.namespace, job.name) if job else ("", record.name),
    )


def resizable(record: JobRecord) -> bool:
    """Return whether the size of the job may change now."""
    return record.job is not None and record.phase is Phase.RUNNING and not record.cancel_requested


def size_of(record: JobRecord, role: str) -> int:
    """Return how many replicas the role has in the present generation."""
    return sum(1 for member in record.gang() if member.role == role)


def reachable(record: JobRecord, role: str, target: int) -> int | None:
    """Return the size nearest to ``target`` that the role may have in this attempt, or None for an unknown role.

    The bounds are the minimum and the maximum of the role, index 0, the size of a pinned role, and ``min_available``.
    """
    known = record.job.role(role) if record.job else None
    if record.job is None or known is None:
        return None
    members = record.gang()
    spare = 0 if is_pinned(role) else max(len(members) - _minimum_available(record), 0)
    first = int(any(member.key == (role, 0) for member in members))
    return min(max(target, known.min, first, size_of(record, role) - spare), known.max)


def surplus(
    record: JobRecord, allocations: Mapping[AllocationKey, Allocation]
) -> Iterator[tuple[ReplicaRef, Allocations]]:
    """Yield the replicas above the minimum that may be removed one after the other, the newest first.

    ``allocations`` are those of the job. A job that is not resizable has no surplus.
    """
    if not resizable(record) or record.job is None:
        return
    members = record.gang()
    spare = len(members) - _minimum_available(record)
    sizes = {role.name: sum(1 for one in members if one.role == role.name) for role in record.job.roles}
    lowest = {name: reachable(record, name, 0) or 0 for name in sizes}
    for one in sorted(members, key=lambda one: (-one.generation, -one.index, one.role)):
        key = (record.job_id, one.attempt, one.role, one.index)
        allocation = allocations.get(key)
        if is_pinned(one.role) or not one.index or allocation is None or spare <= 0:
            continue
        if sizes[one.role] > lowest[one.role]:
            sizes[one.role] -= 1
            spare -= 1
            yield ReplicaRef(role=one.role, index=one.index), ((key, allocation),)


def _minimum_available(record: JobRecord) -> int:
    """Return how many replicas the job must keep in total."""
    return (
        min(record.job.min_available or 0, sum(role.replicas for role in record.job.roles))
        if record.job
        else 0
    )
