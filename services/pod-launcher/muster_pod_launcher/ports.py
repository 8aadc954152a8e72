"""Interfaces of the reconciler, besides the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from muster_core.events import JobAdopted, ReplicaChange, ReplicasChanged
from muster_core.models import JobRecord, ReplicaRecord
from muster_events.history import Absence
from muster_runtimes import ReplicaId


class EventPublisher(Protocol):
    """Publishes observations of the runtime."""

    async def publish(self, record: JobRecord, event: ReplicasChanged) -> bool:
        """Publish an event idempotently; returns when it is durable, whether this instance was the first to publish it."""
        ...


class JobStore(Protocol):
    """The events and records of jobs; every method raises ``BusUnavailable``."""

    async def read_to_end(self, job_id: str) -> None:
        """Return when every event of the job that is stored now is applied to the view of records."""
        ...

    async def absence(self, job_id: str) -> Absence | None:
        """Read to the end, and return why there is no record of the job; None if there is one now."""
        ...

    async def adopt(self, job_id: str, event: JobAdopted, *, trace: str) -> None:
        """Publish the adoption of a job that has a record; returns when it is applied to the view."""
        ...


Run = tuple[int, str, int, int]
"""One run of a replica within its job: attempt, role, index, restart."""


def run_of(replica: ReplicaRecord | ReplicaChange | ReplicaId) -> Run:
    """Return the run that a replica or its change belongs to."""
    return (replica.attempt, replica.role, replica.index, replica.restart)


class ReplicaChangeObserver(Protocol):
    """Observes changes of replicas."""

    def traceparent(self, record: JobRecord, replica: ReplicaRecord) -> str:
        """Return the traceparent that a replica continues, before it starts; empty if the job has no trace."""
        ...

    def observe(self, record: JobRecord, event: ReplicasChanged, began: Mapping[Run, int]) -> None:
        """Handle changes that this instance published first.

        ``began`` is the start of each run (µs since the epoch, 0 if unknown), which the record may not have yet.
        """
        ...
