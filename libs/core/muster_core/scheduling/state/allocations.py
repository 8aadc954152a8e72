"""What the replicas of a record hold of the pool.

Allocations are kept nowhere else: they are the fold of the events, so that they cannot disagree with them.

Whose room will be free some day, kept up to date record by record, so that nobody has to go over all that runs.

A pool runs thousands of jobs, and what a starved gang waits for are a few of them: those that end first.

What running jobs have above their minimum, replica by replica: what can be taken of them while they go on.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from muster_core.events import ReplicaRef
from muster_core.lifecycle.misses import was_taken
from muster_core.lifecycle.moves import ACTIVE_PHASES
from muster_core.models import JobKind, JobRecord, Phase, ReplicaRecord, ReplicaState, RestartPolicy
from muster_core.scheduling.placement import Allocation, AllocationKey, allocation_of
from muster_core.scheduling.placement.roles import is_pinned

_NOTHING: Mapping[AllocationKey, Allocation] = {}


def allocations_of(
    record: JobRecord, known: Mapping[AllocationKey, Allocation] = _NOTHING
) -> dict[AllocationKey, Allocation]:
    """What each replica of ``record`` holds, those on their way out included.

    ``known`` are holds of the same job as it is, which need not be worked out again.
    """
    if record.job is None:
        return {}
    allocations: dict[AllocationKey, Allocation] = {}
    for replica in record.replicas:
        role = record.job.role(replica.role)
        if role is not None and holds_room(record, replica):
            key = (record.job_id, replica.attempt, replica.role, replica.index)
            hold = known.get(key)
            if hold is None or hold.node != replica.node or hold.gpus != replica.gpus:
                hold = allocation_of(record.job, role.name, replica.index, replica.node, replica.gpus)
            allocations[key] = hold
    return allocations


def holds_room(record: JobRecord, replica: ReplicaRecord) -> bool:
    """Whether ``replica`` keeps its room: until its end is confirmed, and while it may yet be restarted where it was."""
    if not replica.ended:
        return True
    is_member = replica.attempt == record.attempt and not replica.leaving
    return is_member and record.phase in ACTIVE_PHASES and _may_restart(record, replica)


def _may_restart(record: JobRecord, replica: ReplicaRecord) -> bool:
    role = record.job.role(replica.role) if record.job else None
    if replica.restarting and not was_taken(replica):
        return True
    if record.job is None or role is None or role.restart_policy is RestartPolicy.NEVER:
        return False
    if replica.state is ReplicaState.EXITED:
        failed = bool(replica.exit_code) or bool(replica.signal)
        return failed or (record.job.kind is JobKind.SERVICE and role.restart_policy is RestartPolicy.ALWAYS)
    return replica.state is ReplicaState.LOST and not was_taken(replica)


Allocations = tuple[tuple[AllocationKey, Allocation], ...]
Name = tuple[str, str]
"""A job's namespace and name."""


class JobReleases(NamedTuple):
    """What a job holds: ``leaving`` is on its way out, ``ending`` is given back when the job ends; nobody waits for the rest."""

    leaving: Allocations
    ending: Allocations
    placed_at: int
    has_deadline: bool
    name: Name


class ReleaseIndex:
    """The departures of all jobs by id."""

    def __init__(self) -> None:
        self._of: dict[str, JobReleases] = {}
        self._leaving: set[str] = set()
        self._bounded: set[str] = set()
        self._by_age: list[tuple[int, str]] = []
        self._by_name: dict[Name, set[str]] = {}

    def __len__(self) -> int:
        """How many jobs give something back when they end."""
        return len(self._bounded) + len(self._by_age)

    @property
    def leaving(self) -> Sequence[str]:
        """The jobs of which something is on its way out, sorted."""
        return sorted(self._leaving)

    @property
    def bounded(self) -> Set[str]:
        """The jobs with a deadline that give something back when they end."""
        return self._bounded

    @property
    def by_age(self) -> Sequence[tuple[int, str]]:
        """The others: when each was placed (µs), and its id; sorted."""
        return self._by_age

    def called(self, names: Set[Name]) -> Iterator[str]:
        """Those of the others that have one of these names."""
        for name in self._by_name.keys() & names:
            yield from self._by_name[name]

    def of(self, job_id: str) -> JobReleases:
        """The departure of a job; raises KeyError where it holds nothing."""
        return self._of[job_id]

    def put(self, record: JobRecord, allocations: Mapping[AllocationKey, Allocation]) -> bool:
        """Take in what a job holds now; answers whether its departure is another than before."""
        job_id = record.job_id
        before = self._of.get(job_id)
        departure = _departure(record, allocations) if allocations else None
        if departure == before:
            return False
        if before is not None:
            self._forget(job_id, before)
        if departure is not None:
            self._remember(job_id, departure)
        return True

    def _remember(self, job_id: str, departure: JobReleases) -> None:
        self._of[job_id] = departure
        if departure.leaving:
            self._leaving.add(job_id)
        if departure.ending and departure.has_deadline:
            self._bounded.add(job_id)
        elif departure.ending:
            insort(self._by_age, (departure.placed_at, job_id))
            self._by_name.setdefault(departure.name, set()).add(job_id)

    def _forget(self, job_id: str, departure: JobReleases) -> None:
        del self._of[job_id]
        self._leaving.discard(job_id)
        if departure.ending and departure.has_deadline:
            self._bounded.discard(job_id)
        elif departure.ending:
            del self._by_age[bisect_left(self._by_age, (departure.placed_at, job_id))]
            namesakes = self._by_name[departure.name]
            namesakes.discard(job_id)
            if not namesakes:
                del self._by_name[departure.name]


def _departure(record: JobRecord, allocations: Mapping[AllocationKey, Allocation]) -> JobReleases:
    gone = {(record.job_id, r.attempt, r.role, r.index) for r in record.replicas if r.leaving and not r.ended}
    job = record.job
    ends = job is not None and job.kind is not JobKind.SERVICE and record.phase in ACTIVE_PHASES
    return JobReleases(
        leaving=_among(allocations.items(), gone) if gone else (),
        ending=tuple(one for one in allocations.items() if one[0] not in gone) if ends else (),
        placed_at=record.placed_at,
        has_deadline=job is not None and job.run.active_deadline_s is not None,
        name=(job.namespace, job.name) if job else ("", record.name),
    )


def _among(allocations: Iterable[tuple[AllocationKey, Allocation]], keys: Set[AllocationKey]) -> Allocations:
    return tuple(one for one in allocations if one[0] in keys)


def surplus(
    record: JobRecord, held: Mapping[AllocationKey, Allocation]
) -> Iterator[tuple[ReplicaRef, Allocations]]:
    """The members above the job's minimum that may leave one by one, the newest first; ``held`` is what the job holds."""
    if not resizable(record) or record.job is None:
        return
    members = record.members()
    floor = min(record.job.min_available or 0, sum(role.replicas for role in record.job.roles))
    spare = len(members) - floor
    sizes = {role.name: sum(1 for one in members if one.role == role.name) for role in record.job.roles}
    lowest = {name: reachable(record, name, 0) or 0 for name in sizes}
    for one in sorted(members, key=lambda one: (-one.generation, -one.index, one.role)):
        key = (record.job_id, one.attempt, one.role, one.index)
        hold = held.get(key)
        if is_pinned(one.role) or not one.index or hold is None or spare <= 0:
            continue
        if sizes[one.role] > lowest[one.role]:
            sizes[one.role] -= 1
            spare -= 1
            yield ReplicaRef(role=one.role, index=one.index), ((key, hold),)


def resizable(record: JobRecord) -> bool:
    """Whether the membership of this job may change now."""
    return record.job is not None and record.phase is Phase.RUNNING and not record.cancel_requested


def size_of(record: JobRecord, role: str) -> int:
    """How many members the role has."""
    return sum(1 for member in record.members() if member.role == role)


def reachable(record: JobRecord, role: str, target: int) -> int | None:
    """The size nearest to ``target`` that the role may have in this attempt, or None where the job has no such role.

    Bounds are the role's minimum and maximum, index 0, the size of a pinned role, and the job's ``min_available``.
    """
    known = record.job.role(role) if record.job else None
    if record.job is None or known is None:
        return None
    size = size_of(record, role)
    members = record.members()
    floor = min(record.job.min_available or 0, sum(one.replicas for one in record.job.roles))
    spare = 0 if is_pinned(role) else max(len(members) - floor, 0)
    stays = int(any(member.key == (role, 0) for member in members))
    return min(max(target, known.min, stays, size - spare), known.max)
