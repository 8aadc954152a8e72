"""Whose room will be free some day, kept up to date record by record, so that nobody has to go over all that runs.

A pool runs thousands of jobs, and what a starved gang waits for are a few of them: those that end first.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from muster_core.lifecycle.moves import ACTIVE_PHASES
from muster_core.models import JobKind, JobRecord
from muster_core.scheduling.placement import Allocation, AllocationKey

Allocations = tuple[tuple[AllocationKey, Allocation], ...]
Name = tuple[str, str]
"""A job's namespace and name."""


class Departure(NamedTuple):
    """What a job holds: ``leaving`` is on its way out, ``ending`` is given back when the job ends; nobody waits for the rest."""

    leaving: Allocations
    ending: Allocations
    placed_at: int
    has_deadline: bool
    name: Name


class Departures:
    """The departures of all jobs by id."""

    def __init__(self) -> None:
        self._of: dict[str, Departure] = {}
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

    def of(self, job_id: str) -> Departure:
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

    def _remember(self, job_id: str, departure: Departure) -> None:
        self._of[job_id] = departure
        if departure.leaving:
            self._leaving.add(job_id)
        if departure.ending and departure.has_deadline:
            self._bounded.add(job_id)
        elif departure.ending:
            insort(self._by_age, (departure.placed_at, job_id))
            self._by_name.setdefault(departure.name, set()).add(job_id)

    def _forget(self, job_id: str, departure: Departure) -> None:
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


def _departure(record: JobRecord, allocations: Mapping[AllocationKey, Allocation]) -> Departure:
    gone = {(record.job_id, r.attempt, r.role, r.index) for r in record.replicas if r.leaving and not r.ended}
    job = record.job
    ends = job is not None and job.kind is not JobKind.SERVICE and record.phase in ACTIVE_PHASES
    return Departure(
        leaving=_among(allocations.items(), gone) if gone else (),
        ending=tuple(one for one in allocations.items() if one[0] not in gone) if ends else (),
        placed_at=record.placed_at,
        has_deadline=job is not None and job.run.active_deadline_s is not None,
        name=(job.namespace, job.name) if job else ("", record.name),
    )


def _among(allocations: Iterable[tuple[AllocationKey, Allocation]], keys: Set[AllocationKey]) -> Allocations:
    return tuple(one for one in allocations if one[0] in keys)
