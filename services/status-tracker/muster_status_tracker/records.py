"""The job records of this instance: written to the key-value store by compare-and-set, and served from memory."""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from muster_bus import BusUnavailable, KeyValueStore, WrongSequence
from muster_bus.key_value import Entry
from muster_core.models import JobRecord, Phase
from muster_events.codec import decode_record, encode_record
from muster_events.subjects import record_key
from muster_events.view import restore

_PAUSE_S = 0.1
_NS_PER_US = 1000


class RecordStore:
    """Writes the records of owned partitions. An instance that lost its partition unknowingly fails here: the new owner's
    write changed the revision.
    """

    def __init__(self, records: KeyValueStore) -> None:
        self._records = records
        self._revisions: dict[str, int] = {}

    def load(self, entries: list[Entry]) -> list[JobRecord]:
        """Load a partition: return its records and remember their revisions."""
        self._revisions |= {entry.key: entry.revision for entry in entries}
        return restore(entries)

    async def write(self, record: JobRecord) -> bool:
        """Store a record unless a newer one is stored."""
        key, value = record_key(record.job_id), encode_record(record)
        while True:
            try:
                self._revisions[key] = await self._records.put(
                    key, value, expected=self._revisions.get(key, 0), revive=False
                )
                return True
            except WrongSequence:
                if await self._has_newer_record(key, record):
                    return True
                if await self._was_deleted(key, record):
                    return False
            except BusUnavailable:
                # The outcome is unknown; the next comparison shows it.
                await asyncio.sleep(_PAUSE_S)

    async def remove(self, job_id: str) -> None:
        """Delete a record."""
        key = record_key(job_id)
        await self._records.delete(key)
        self._revisions.pop(key, None)

    async def _has_newer_record(self, key: str, record: JobRecord) -> bool:
        entry = await self._records.get(key)
        self._revisions[key] = entry.revision if entry else 0
        return entry is not None and decode_record(entry.value).applied_sequence >= record.applied_sequence

    async def _was_deleted(self, key: str, record: JobRecord) -> bool:
        """Return whether the record was deleted after this submission of the job; only a later submission may overwrite that."""
        removal = await self._records.removal(key)
        if removal is None:
            return False
        self._revisions[key] = removal.revision
        return removal.timestamp_ns >= record.submitted_at * _NS_PER_US


RecordChanges = asyncio.Queue[tuple[str, JobRecord | None]]
"""Job ids and their records; None means that the job was deleted."""


class RecordCache:
    """Records by job id, in the order of submission."""

    def __init__(self) -> None:
        self.revision = 0
        """The newest sequence that was applied to a record."""
        self._records: dict[str, JobRecord] = {}
        self._by_name: dict[tuple[str, str], list[tuple[int, str]]] = {}
        self._order: list[tuple[int, str]] = []
        self._finished: list[tuple[int, str]] = []
        self._watchers: set[RecordChanges] = set()
        self._advanced = asyncio.Event()

    def __len__(self) -> int:
        return len(self._records)

    def get(self, job_id: str) -> JobRecord | None:
        """Return the record of a job, or None."""
        return self._records.get(job_id)

    def named(self, namespace: str, name: str) -> JobRecord | None:
        """Return the newest job of that name, or None."""
        ids = self._by_name.get((namespace, name))
        return self._records[ids[-1][1]] if ids else None

    def put(self, record: JobRecord) -> None:
        """Store a record unless a newer one is known."""
        known = self._records.get(record.job_id)
        if known is not None and known.applied_sequence >= record.applied_sequence:
            return
        self._records[record.job_id] = record
        self.revision = max(self.revision, record.applied_sequence)
        position = (record.submitted_at, record.job_id)
        if known is None:
            bisect.insort(self._order, position)
        if known is not None and known.terminal:
            self._finished.remove((known.finished_at, known.job_id))
        if record.terminal:
            bisect.insort(self._finished, (record.finished_at, record.job_id))
        if known is None or _qualified_name(known) != _qualified_name(record):
            # A spec has a name before its validation sets the namespace.
            self._remove_name(known)
            if record.name:
                bisect.insort(self._by_name.setdefault(_qualified_name(record), []), position)
        self._signal(record.job_id, record)

    def drop(self, job_id: str) -> None:
        """Remove a record."""
        record = self._records.pop(job_id, None)
        if record is None:
            return
        self._order.remove((record.submitted_at, job_id))
        if record.terminal:
            self._finished.remove((record.finished_at, job_id))
        self._remove_name(record)
        self._signal(job_id, None)

    def newest_first(self, before: tuple[int, str] | None = None) -> Iterator[JobRecord]:
        """Yield records, newest first, starting after ``before`` (submission time and id)."""
        end = len(self._order) if before is None else bisect.bisect_left(self._order, before)
        for position in range(end - 1, -1, -1):
            yield self._records[self._order[position][1]]

    def finished_beyond(self, most: int) -> list[str]:
        """Return the ids of the ended jobs beyond the newest ``most``, oldest first."""
        return [job_id for _, job_id in self._finished[: max(len(self._finished) - most, 0)]]

    def count(self, phase: Phase) -> int:
        """Return the number of jobs in a phase."""
        return sum(1 for record in self._records.values() if record.phase is phase)

    async def advanced(self) -> None:
        """Return at the next change of any record."""
        await self._advanced.wait()

    @contextmanager
    def watcher(self) -> Generator[RecordChanges]:
        """Return a queue of all changes from now on."""
        queue: RecordChanges = asyncio.Queue()
        self._watchers.add(queue)
        try:
            yield queue
        finally:
            self._watchers.discard(queue)

    def _remove_name(self, record: JobRecord | None) -> None:
        if record is None or not record.name:
            return
        ids = self._by_name[_qualified_name(record)]
        ids.remove((record.submitted_at, record.job_id))
        if not ids:
            del self._by_name[_qualified_name(record)]

    def _signal(self, job_id: str, record: JobRecord | None) -> None:
        for watcher in self._watchers:
            watcher.put_nowait((job_id, record))
        self._advanced.set()
        self._advanced = asyncio.Event()


def namespace_of(record: JobRecord) -> str:
    """Return the namespace of a record; ``default`` until it is validated."""
    return record.job.namespace if record.job else "default"


def _qualified_name(record: JobRecord) -> tuple[str, str]:
    return (namespace_of(record), record.name)
