"""A partition of the status-tracker with a record store in memory that fails or blocks on demand."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from muster_core.events import (
    Command,
    CommandRequested,
    JobEvent,
    JobFinished,
    JobRestarting,
    JobSubmitted,
    JobValidated,
    Outcome,
    StoredEvent,
)
from muster_core.lifecycle import Retention
from muster_core.models import Job, JobRecord, Reason, Role, RunPolicy, Template
from muster_status_tracker.handlers import PartitionHandler
from muster_status_tracker.records import RecordCache

SECOND = 1_000_000
QUEUE_DEADLINE_S = 60
TTL_S = 600


class Bucket:
    """Stores records while ``open``, and deletes them while ``lets_go``.

    ``failures`` are raised by the next writes; ``exists`` is the result of successful ones.
    """

    def __init__(self) -> None:
        self.kept: dict[str, JobRecord] = {}
        self.written: list[JobRecord] = []
        self.failures: deque[Exception] = deque()
        self.exists = True
        self.open = asyncio.Event()
        self.open.set()
        self.lets_go = asyncio.Event()
        self.lets_go.set()

    async def write(self, record: JobRecord) -> bool:
        """Store a record."""
        self.written.append(record)
        await self.open.wait()
        if self.failures:
            raise self.failures.popleft()
        if self.exists:
            self.kept[record.job_id] = record
        return self.exists

    async def remove(self, job_id: str) -> None:
        """Delete a record."""
        await self.lets_go.wait()
        self.kept.pop(job_id, None)


class Life:
    """Remembers each decision with the stored record at its publication."""

    def __init__(self, store: Bucket) -> None:
        self._store = store
        self.published: list[tuple[JobRecord | None, JobFinished | JobRestarting]] = []

    async def publish(self, record: JobRecord, event: JobFinished | JobRestarting) -> None:
        """Remember a decision."""
        self.published.append((self._store.kept.get(record.job_id), event))


class IgnoringObserver:
    """An observer that ignores transitions."""

    def observe(self, before: JobRecord | None, after: JobRecord) -> None:
        """Ignore the transition."""


class Partition:
    """A handler with its dependencies; events are stored a second apart."""

    def __init__(self) -> None:
        self.now = 0
        self.sequence = 0
        self.store = Bucket()
        self.publisher = Life(self.store)
        self.cache = RecordCache()
        self.handler = PartitionHandler(
            cache=self.cache,
            store=self.store,
            publisher=self.publisher,
            observer=IgnoringObserver(),
            retention=Retention(ttl_s=TTL_S),
            clock=lambda: self.now,
            count_invalid=lambda: None,
        )

    async def hear(self, *events: JobEvent, job_id: str = "j-1") -> None:
        """Handle the events as one batch."""
        await self.handler.handle([self._stamped(event, job_id) for event in events], live=True)

    async def submit(self, job_id: str = "j-1") -> None:
        """Submit the job."""
        await self.hear(JobSubmitted(job_id=job_id, request_id=job_id), job_id=job_id)

    async def validate(self) -> None:
        """Validate the job, with a queue deadline of ``QUEUE_DEADLINE_S``."""
        run = RunPolicy(queue_deadline_s=QUEUE_DEADLINE_S)
        role = Role(name="worker", replicas=1, min=1, max=1, template=Template())
        await self.hear(JobValidated(job=Job(name="demo", roles=(role,), run=run)))

    async def ask(self, command: Command, job_id: str = "j-1") -> None:
        """Request a command."""
        asked = CommandRequested(command=command, request_id=f"{command}-{job_id}")
        await self.hear(asked, job_id=job_id)

    async def end(self) -> None:
        """Finish the job without remaining replicas."""
        why = Reason(code="Why", message="because")
        await self.hear(JobFinished(outcome=Outcome.CANCELLED, reason=why, attempt=0))

    def applied_sequence(self, job_id: str = "j-1") -> int:
        """Return the last sequence of the stored record; 0 if there is none."""
        kept = self.store.kept.get(job_id)
        return kept.applied_sequence if kept else 0

    def _stamped(self, event: JobEvent, job_id: str) -> StoredEvent:
        self.sequence += 1
        self.now += SECOND
        return StoredEvent(job_id=job_id, event=event, sequence=self.sequence, at=self.now)


@pytest.fixture
def partition() -> Partition:
    return Partition()
