"""Interfaces of the handlers."""

from __future__ import annotations

from typing import Protocol

from muster_core.events import JobFinished, JobRestarting
from muster_core.models import JobRecord


class RecordWriter(Protocol):
    """Stores records by compare-and-set on the last known revision."""

    async def ended(self, job_id: str) -> JobRecord | None:
        """Return the stored record of a settled job, or None."""
        ...

    async def write(self, record: JobRecord) -> bool:
        """Store the record of a job that is not settled; returns when it is durable. A newer stored one wins.

        Returns False if another owner of the partition has deleted the job: then nothing is stored.
        """
        ...

    async def archive(self, record: JobRecord) -> int | None:
        """Store the record of a settled job among the ended ones; returns its revision when it is durable.

        Returns 0 if a newer record is stored, None if another owner of the partition has deleted the job.
        """
        ...

    async def remove(self, job_id: str) -> int:
        """Delete a record; returns the revision of the removal."""
        ...


class LifecycleEvents(Protocol):
    """Publishes decisions about a job's life cycle."""

    async def publish(self, record: JobRecord, event: JobFinished | JobRestarting) -> None:
        """Publish an event idempotently; returns when it is durable."""
        ...


class TransitionObserver(Protocol):
    """Observes the transitions of jobs."""

    def observe(self, before: JobRecord | None, after: JobRecord) -> None:
        """Handle the transition from ``before`` to ``after``."""
        ...


class ReadProgress(Protocol):
    """How far events have been applied."""

    def is_complete(self) -> bool:
        """Return whether the records are those of now; not after the instance was paused, until it has read them again."""
        ...

    async def wait_complete(self, within_s: float) -> bool:
        """Return whether ``is_complete``, after waiting at most ``within_s`` seconds."""
        ...

    def is_own(self, job_id: str) -> bool:
        """Return whether this instance applies the events of the job itself."""
        ...

    async def reached(self, sequence: int, wait_s: float) -> bool:
        """Return whether everything up to a sequence is applied, after waiting at most ``wait_s`` seconds."""
        ...

    async def last_of(self, job_id: str) -> int:
        """Return the sequence of a job's last event, 0 if it has none."""
        ...

    async def handled(self, job_id: str, sequence: int) -> bool:
        """Return whether the job's events up to a sequence are handled: those that can be read are in its record."""
        ...

    async def deleted(self, job_id: str) -> bool:
        """Return whether the job existed and was deleted."""
        ...
