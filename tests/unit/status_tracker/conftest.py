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
from muster_events.subjects import partition_of
from muster_status_tracker.ended_jobs import EndedJobs
from muster_status_tracker.handlers import PartitionHandler
from muster_status_tracker.records import RecordCache

SECOND = 1_000_000
QUEUE_DEADLINE_S = 60
TTL_S = 600


class MemoryStore:
    """Stores records while ``writable``, and deletes them while ``deletable``; ``archived`` has the ids of ended jobs.

    ``failures`` are raised by the next writes; ``exists`` is the result of successful ones.
    """

    def __init__(self) -> None:
        self.stored: dict[str, JobRecord] = {}
        self.written: list[JobRecord] = []
        self.archived: set[str] = set()
        self._revision = 0
        self.failures: deque[Exception] = deque()
        self.exists = True
        self.writable = asyncio.Event()
        self.writable.set()
        self.deletable = asyncio.Event()
        self.deletable.set()

    async def write(self, record: JobRecord) -> bool:
        """Store a record."""
        self.written.append(record)
        await self.writable.wait()
        if self.failures:
            raise self.failures.popleft()
        if self.exists:
            self.stored[record.job_id] = record
        return self.exists

    async def ended(self, job_id: str) -> JobRecord | None:
        """Return the record of an ended job."""
        return self.stored[job_id] if job_id in self.archived else None

    async def archive(self, record: JobRecord) -> int | None:
        """Store a record among the ended ones."""
        if not await self.write(record):
            return None
        self.archived.add(record.job_id)
        return self._next_revision()

    async def remove(self, job_id: str) -> int:
        """Delete a record."""
        await self.deletable.wait()
        self.stored.pop(job_id, None)
        self.archived.discard(job_id)
        return self._next_revision()

    def _next_revision(self) -> int:
        self._revision += 1
        return self._revision


class RecordingPublisher:
    """Records each published decision with the job record that is stored at that time."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.published: list[tuple[JobRecord | None, JobFinished | JobRestarting]] = []

    async def publish(self, record: JobRecord, event: JobFinished | JobRestarting) -> None:
        """Record a decision."""
        self.published.append((self._store.stored.get(record.job_id), event))


class IgnoringObserver:
    """An observer that ignores transitions."""

    def observe(self, before: JobRecord | None, after: JobRecord) -> None:
        """Ignore the transition."""


class IgnoringRecorder:
    """A recorder that ignores events; ``told`` has the last stored sequence of each job."""

    def __init__(self) -> None:
        self.told: dict[str, int] = {}

    def observe(self, before: JobRecord | None, after: JobRecord, stored: StoredEvent) -> None:
        """Ignore the event."""

    def stored(self, job_id: str, sequence: int) -> None:
        """Note the sequence."""
        self.told[job_id] = sequence


class Partition:
    """A handler with its dependencies; events are stored a second apart."""

    def __init__(self) -> None:
        self.now = 0
        self.sequence = 0
        self.store = MemoryStore()
        self.publisher = RecordingPublisher(self.store)
        self.recorder = IgnoringRecorder()
        self.cache = RecordCache(ended=EndedJobs(Retention(ttl_s=TTL_S)))
        self.handler = PartitionHandler(
            cache=self.cache,
            store=self.store,
            publisher=self.publisher,
            observer=IgnoringObserver(),
            recorder=self.recorder,
            retention=Retention(ttl_s=TTL_S),
            clock=lambda: self.now,
            count_invalid=lambda: None,
            partition=partition_of("j-1"),
        )

    async def handle(self, *events: JobEvent, job_id: str = "j-1") -> None:
        """Handle the events as one batch."""
        await self.handler.handle([self._stored(event, job_id) for event in events], live=True)

    async def submit(self, job_id: str = "j-1") -> None:
        """Submit the job."""
        await self.handle(JobSubmitted(job_id=job_id, request_id=job_id), job_id=job_id)

    async def validate(self) -> None:
        """Validate the job, with a queue deadline of ``QUEUE_DEADLINE_S``."""
        run = RunPolicy(queue_deadline_s=QUEUE_DEADLINE_S)
        role = Role(name="worker", replicas=1, min=1, max=1, template=Template())
        await self.handle(JobValidated(job=Job(name="demo", roles=(role,), run=run)))

    async def request(self, command: Command, job_id: str = "j-1") -> None:
        """Request a command."""
        event = CommandRequested(command=command, request_id=f"{command}-{job_id}")
        await self.handle(event, job_id=job_id)

    async def end(self) -> None:
        """Finish the job without remaining replicas."""
        reason = Reason(code="Cancelled", message="cancelled")
        await self.handle(JobFinished(outcome=Outcome.CANCELLED, reason=reason, attempt=0))

    def applied_sequence(self, job_id: str = "j-1") -> int:
        """Return the last sequence of the stored record; 0 if there is none."""
        stored = self.store.stored.get(job_id)
        return stored.applied_sequence if stored else 0

    def _stored(self, event: JobEvent, job_id: str) -> StoredEvent:
        self.sequence += 1
        self.now += SECOND
        return StoredEvent(job_id=job_id, event=event, sequence=self.sequence, at=self.now)


async def run_other_tasks() -> None:
    """Let every task run until it waits for the store or a lock."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def partition() -> Partition:
    return Partition()
