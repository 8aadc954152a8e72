"""A partition of status-tracker with a bucket in memory that fails, and waits, where a test says so."""

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
from muster_status_tracker.shelf import Shelf

SECOND = 1_000_000
QUEUE_DEADLINE_S = 60
TTL_S = 600


class Bucket:
    """Keeps what it is given once it is ``open``, and forgets it once it ``lets_go``.

    ``failures`` are raised by the next writes; ``stands`` is what those that succeed answer.
    """

    def __init__(self) -> None:
        self.kept: dict[str, JobRecord] = {}
        self.written: list[JobRecord] = []
        self.failures: deque[Exception] = deque()
        self.stands = True
        self.open = asyncio.Event()
        self.open.set()
        self.lets_go = asyncio.Event()
        self.lets_go.set()

    async def write(self, record: JobRecord) -> bool:
        """See ``RecordBucket``."""
        self.written.append(record)
        await self.open.wait()
        if self.failures:
            raise self.failures.popleft()
        if self.stands:
            self.kept[record.job_id] = record
        return self.stands

    async def remove(self, job_id: str) -> None:
        """See ``RecordBucket``."""
        await self.lets_go.wait()
        self.kept.pop(job_id, None)


class Life:
    """Remembers each decision with the record that the bucket held when it was published."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self.published: list[tuple[JobRecord | None, JobFinished | JobRestarting]] = []

    async def publish(self, record: JobRecord, event: JobFinished | JobRestarting) -> None:
        """See ``LifeEvents``."""
        self.published.append((self._bucket.kept.get(record.job_id), event))


class Untold:
    """A story that nobody hears."""

    def tell(self, before: JobRecord | None, after: JobRecord) -> None:
        """See ``Story``."""


class Partition:
    """A handler with its surroundings; ``events`` are stamped one after another, a second apart."""

    def __init__(self) -> None:
        self.now = 0
        self.sequence = 0
        self.bucket = Bucket()
        self.life = Life(self.bucket)
        self.shelf = Shelf()
        self.handler = PartitionHandler(
            shelf=self.shelf,
            bucket=self.bucket,
            life=self.life,
            story=Untold(),
            retention=Retention(ttl_s=TTL_S),
            clock=lambda: self.now,
            count_invalid=lambda: None,
        )

    async def hear(self, *events: JobEvent, job_id: str = "j-1") -> None:
        """The handler is given the events as one batch."""
        await self.handler.handle([self._stamped(event, job_id) for event in events], live=True)

    async def submit(self, job_id: str = "j-1") -> None:
        """A job is submitted."""
        await self.hear(JobSubmitted(job_id=job_id, request_id=job_id), job_id=job_id)

    async def validate(self) -> None:
        """The job is to be placed within ``QUEUE_DEADLINE_S``."""
        run = RunPolicy(queue_deadline_s=QUEUE_DEADLINE_S)
        role = Role(name="worker", replicas=1, min=1, max=1, template=Template())
        await self.hear(JobValidated(job=Job(name="demo", roles=(role,), run=run)))

    async def ask(self, command: Command, job_id: str = "j-1") -> None:
        """The job's user asks for something."""
        asked = CommandRequested(command=command, request_id=f"{command}-{job_id}")
        await self.hear(asked, job_id=job_id)

    async def end(self) -> None:
        """The job has ended, and nothing of it is left."""
        why = Reason(code="Why", message="because")
        await self.hear(JobFinished(outcome=Outcome.CANCELLED, reason=why, attempt=0))

    def applied_sequence(self, job_id: str = "j-1") -> int:
        """The last sequence that the job's record in the bucket knows; 0 where there is none."""
        kept = self.bucket.kept.get(job_id)
        return kept.applied_sequence if kept else 0

    def _stamped(self, event: JobEvent, job_id: str) -> StoredEvent:
        self.sequence += 1
        self.now += SECOND
        return StoredEvent(job_id=job_id, event=event, sequence=self.sequence, at=self.now)


@pytest.fixture
def partition() -> Partition:
    return Partition()
