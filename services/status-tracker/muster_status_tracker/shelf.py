"""The records that this copy can answer from, with an index by name and a signal for those who watch."""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager

from muster_core.models import JobRecord, Phase

Watcher = asyncio.Queue[tuple[str, JobRecord | None]]


class Shelf:
    """Job id -> record, newest submission last. ``None`` in a watcher's queue says that the job is gone."""

    def __init__(self) -> None:
        self.revision = 0
        """The newest sequence that a record here was applied to."""
        self._records: dict[str, JobRecord] = {}
        self._by_name: dict[tuple[str, str], list[tuple[int, str]]] = {}
        self._order: list[tuple[int, str]] = []
        self._finished: list[tuple[int, str]] = []
        self._watchers: set[Watcher] = set()
        self._advanced = asyncio.Event()

    def __len__(self) -> int:
        return len(self._records)

    def get(self, job_id: str) -> JobRecord | None:
        """The record of a job."""
        return self._records.get(job_id)

    def named(self, namespace: str, name: str) -> JobRecord | None:
        """The newest job of that name."""
        ids = self._by_name.get((namespace, name))
        return self._records[ids[-1][1]] if ids else None

    def put(self, record: JobRecord) -> None:
        """Keep a record unless a newer one is here."""
        known = self._records.get(record.job_id)
        if known is not None and known.applied_sequence >= record.applied_sequence:
            return
        self._records[record.job_id] = record
        self.revision = max(self.revision, record.applied_sequence)
        place = (record.submitted_at, record.job_id)
        if known is None:
            bisect.insort(self._order, place)
        if known is not None and known.terminal:
            self._finished.remove((known.finished_at, known.job_id))
        if record.terminal:
            bisect.insort(self._finished, (record.finished_at, record.job_id))
        if known is None or _called(known) != _called(record):
            # A spec names its job before the validation says in which namespace.
            self._unname(known)
            if record.name:
                bisect.insort(self._by_name.setdefault(_called(record), []), place)
        self._signal(record.job_id, record)

    def drop(self, job_id: str) -> None:
        """Forget a record."""
        record = self._records.pop(job_id, None)
        if record is None:
            return
        self._order.remove((record.submitted_at, job_id))
        if record.terminal:
            self._finished.remove((record.finished_at, job_id))
        self._unname(record)
        self._signal(job_id, None)

    def newest_first(self, before: tuple[int, str] | None = None) -> Iterator[JobRecord]:
        """Records from the newest on, or from behind ``before`` (submission instant and id)."""
        end = len(self._order) if before is None else bisect.bisect_left(self._order, before)
        for position in range(end - 1, -1, -1):
            yield self._records[self._order[position][1]]

    def finished_beyond(self, most: int) -> list[str]:
        """The ids of the finished jobs that are too many where ``most`` of them are kept: those that ended first, in that order."""
        return [job_id for _, job_id in self._finished[: max(len(self._finished) - most, 0)]]

    def count(self, phase: Phase) -> int:
        """How many jobs are in a phase."""
        return sum(1 for record in self._records.values() if record.phase is phase)

    async def advanced(self) -> None:
        """Return at the next change of any record."""
        await self._advanced.wait()

    @contextmanager
    def watcher(self) -> Generator[Watcher]:
        """A queue of everything that changes from now on."""
        queue: Watcher = asyncio.Queue()
        self._watchers.add(queue)
        try:
            yield queue
        finally:
            self._watchers.discard(queue)

    async def changes(self) -> AsyncIterator[tuple[str, JobRecord | None]]:
        """Everything that changes from now on."""
        with self.watcher() as queue:
            while True:
                yield await queue.get()

    def _unname(self, record: JobRecord | None) -> None:
        if record is None or not record.name:
            return
        ids = self._by_name[_called(record)]
        ids.remove((record.submitted_at, record.job_id))
        if not ids:
            del self._by_name[_called(record)]

    def _signal(self, job_id: str, record: JobRecord | None) -> None:
        for watcher in self._watchers:
            watcher.put_nowait((job_id, record))
        self._advanced.set()
        self._advanced = asyncio.Event()


def namespace_of(record: JobRecord) -> str:
    """A record's namespace; ``default`` until it is validated."""
    return record.job.namespace if record.job else "default"


def _called(record: JobRecord) -> tuple[str, str]:
    return (namespace_of(record), record.name)
