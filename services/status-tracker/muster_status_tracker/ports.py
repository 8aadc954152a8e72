"""What the handlers need."""

from __future__ import annotations

from typing import Protocol

from muster_core.events import JobFinished, JobRestarting
from muster_core.models import JobRecord


class RecordBucket(Protocol):
    """Where records are kept. Every write is a compare-and-set on the revision that this copy last saw."""

    async def write(self, record: JobRecord) -> bool:
        """Keep a record; returns when it is durable. A newer one in the bucket wins and stays.

        Answers False where the job was forgotten meanwhile, by a copy that had the partition: then nothing is kept.
        """
        ...

    async def remove(self, job_id: str) -> None:
        """Forget a record."""
        ...


class LifeEvents(Protocol):
    """Where decisions about a job's life go."""

    async def publish(self, record: JobRecord, event: JobFinished | JobRestarting) -> None:
        """Publish it, once however often it is asked; returns when it is durable."""
        ...


class Story(Protocol):
    """Where the spans of a job's life go."""

    def tell(self, before: JobRecord | None, after: JobRecord) -> None:
        """Record the spans that the step from ``before`` to ``after`` has ended."""
        ...


class Progress(Protocol):
    """How far the events have been read."""

    async def reached(self, sequence: int, wait_s: float) -> bool:
        """Whether everything up to a sequence is folded, waiting for it if need be."""
        ...

    async def last_of(self, job_id: str) -> int:
        """The sequence of a job's last event; 0 where it has none."""
        ...

    async def forgotten(self, job_id: str) -> bool:
        """Whether the job was there and has been forgotten."""
        ...
