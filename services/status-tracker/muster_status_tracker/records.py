"""The job records of this instance: written to the key-value store by compare-and-set, and served from memory."""

from __future__ import annotations

import asyncio
import bisect
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice

from muster_bus import BusUnavailable, KeyValueStore, WrongSequence
from muster_bus.key_value import Entry
from muster_core.models import JobRecord, Phase
from muster_events.codec import decode_record, encode_record
from muster_events.history import EndedJobSummary, ended_record
from muster_events.subjects import ended_record_key, job_id_in_key, live_record_key, record_keys
from muster_events.view import restore
from muster_status_tracker.ended_jobs import EndedJobs

_PAUSE_S = 0.1
_NS_PER_US = 1000
_LIVE_MARKER_S = 60
"""How long (s) watchers of live records can read that one was removed."""

_DELETED_MARKER_S = 86_400
"""How long (s) other services can read that a job was deleted."""


class RecordStore:
    """Writes the records of owned partitions: a job's record has one key until the job is settled, and another one then.

    An instance that lost its partition unknowingly fails here: the new owner's write, to either key, changed the revision.
    ``on_superseded`` is called with the job and the sequence of a record that is not stored, because another instance has
    stored the same or a newer one.
    """

    def __init__(
        self,
        records: KeyValueStore,
        *,
        on_superseded: Callable[[str, int], None] = lambda job_id, sequence: None,
    ) -> None:
        self._records = records
        self._on_superseded = on_superseded
        self._revisions: dict[str, int] = {}
        self._live: set[str] = set()

    async def load(self, entries: list[Entry]) -> list[JobRecord]:
        """Load a partition: return its live records and remember their revisions."""
        self._revisions |= {job_id_in_key(entry.key): entry.revision for entry in entries}
        self._live |= {job_id_in_key(entry.key) for entry in entries}
        return await restore(self._records, entries)

    async def ended(self, job_id: str) -> JobRecord | None:
        """Return the stored record of a settled job, or None."""
        return await ended_record(self._records, job_id)

    async def write(self, record: JobRecord) -> bool:
        """Store the record of a job that is not settled, unless a newer one is stored; returns False if the job was deleted."""
        revision = await self._put(record, live_record_key(record.job_id), {})
        if revision:
            self._live.add(record.job_id)
        return revision is not None

    async def archive(self, record: JobRecord) -> int | None:
        """Store the record of a settled job as ended; returns its revision, 0 if a newer record is stored, None if the job was
        deleted.
        """
        job_id = record.job_id
        revision = await self._put(record, ended_record_key(job_id), EndedJobSummary.of(record).headers())
        if revision:
            await self._remove_live(job_id)
        return revision

    async def remove(self, job_id: str) -> int:
        """Delete a record; returns the revision of the removal."""
        revision = await self._records.delete(ended_record_key(job_id), ttl_s=_DELETED_MARKER_S)
        await self._remove_live(job_id)
        return revision

    async def _put(self, record: JobRecord, key: str, headers: Mapping[str, str]) -> int | None:
        """Store the record under ``key``; returns as ``archive``."""
        job_id, value = record.job_id, encode_record(record)
        expected = self._revisions.get(job_id, 0)
        is_known = True
        while True:
            try:
                revision = await self._records.put(
                    key,
                    value,
                    expected=expected,
                    compared=record_keys(job_id),
                    revive=False,
                    headers=headers,
                )
            except WrongSequence:
                expected = await self._records.last_revision(record_keys(job_id))
                stored = [
                    entry
                    for each in (ended_record_key(job_id), live_record_key(job_id))
                    if (entry := await self._records.get(each)) is not None
                ]
                for entry in stored:
                    known = await self._records.read(entry, decode_record)
                    if known is None:
                        # What cannot be read is replaced.
                        continue
                    newer_by = known.applied_sequence - record.applied_sequence
                    if newer_by > 0 or (newer_by == 0 and is_known):
                        self._on_superseded(job_id, record.applied_sequence)
                    # After a newer record the known revision stays: the next write must be compared, too.
                    if newer_by == 0:
                        self._revisions[job_id] = expected
                    if entry.key == key and newer_by >= 0:
                        return entry.revision
                    if newer_by > 0 or (newer_by == 0 and not record.settled):
                        return 0
                if not stored and await self._was_deleted(record):
                    return None
            except BusUnavailable:
                # The next comparison shows the outcome.
                is_known = False
                await asyncio.sleep(_PAUSE_S)
            else:
                self._revisions[job_id] = revision
                return revision

    async def _remove_live(self, job_id: str) -> None:
        # Last, so that one of the two keys has the record at any time.
        if job_id in self._live:
            await self._records.delete(live_record_key(job_id), ttl_s=_LIVE_MARKER_S)
            self._live.discard(job_id)
        self._revisions.pop(job_id, None)

    async def _was_deleted(self, record: JobRecord) -> bool:
        """Return whether the record was deleted after this submission of the job; only a later submission may overwrite that."""
        removal = await self._records.removal(ended_record_key(record.job_id))
        return removal is not None and removal.timestamp_ns >= record.submitted_at * _NS_PER_US


_KEPT_CHANGES = 16_384
_CHANGES_AT_ONCE = 256


class MissedChanges(Exception):
    """A watcher has read too late: changes that it has not seen are no longer known."""


class RecordChanges:
    """The jobs whose records changed, since this watcher began.

    All watchers share one list of the latest changes, and each has a position in it. So one that does not read costs nothing.
    """

    def __init__(self, cache: RecordCache) -> None:
        self._cache = cache
        self._position = cache.changes

    async def take(self) -> dict[str, str | None]:
        """Return the next ids, each once with its namespace if the job was deleted; waits for a change.

        Raises ``MissedChanges`` if there are too many to know all.
        """
        while self._position == self._cache.changes:
            await self._cache.advanced()
        found = self._cache.changed_after(self._position, _CHANGES_AT_ONCE)
        self._position += len(found)
        return dict(found)


class RecordCache:
    """The records of live jobs, by id and in the order of submission, and the index of the ended ones.

    For watchers it keeps the ids of the last ``kept_changes`` changes.
    """

    def __init__(self, *, ended: EndedJobs | None = None, kept_changes: int = _KEPT_CHANGES) -> None:
        self.ended = ended or EndedJobs()
        """The ended jobs, whose records are read on demand."""
        self.revision = 0
        """The newest sequence that was applied to a record."""
        self._records: dict[str, JobRecord] = {}
        self._by_name: dict[tuple[str, str], list[tuple[int, str]]] = {}
        self._order: list[tuple[int, str]] = []
        self.changes = 0
        """How many changes there were."""
        self._changed: deque[tuple[str, str | None]] = deque(maxlen=kept_changes)
        self._watched: dict[str, set[asyncio.Event]] = {}
        self._advanced = asyncio.Event()

    def __len__(self) -> int:
        return len(self._records)

    def job_ids(self) -> list[str]:
        """Return the ids of the live jobs."""
        return list(self._records)

    def get(self, job_id: str) -> JobRecord | None:
        """Return the record of a live job, or None."""
        return self._records.get(job_id)

    def applied_sequence(self, job_id: str) -> int:
        """Return the sequence that the job's record was applied to, 0 if the job is not known."""
        record = self._records.get(job_id)
        return record.applied_sequence if record is not None else self.ended.applied_sequence(job_id)

    def named(self, namespace: str, name: str) -> str | None:
        """Return the id of the newest job of that name, or None."""
        positions = self._by_name.get((namespace, name), [])[-1:]
        if (ended := self.ended.named(namespace, name)) is not None:
            positions.append(ended)
        return max(positions)[1] if positions else None

    def put(self, record: JobRecord) -> None:
        """Store a record unless a newer one is known."""
        known = self._records.get(record.job_id)
        if self.applied_sequence(record.job_id) >= record.applied_sequence:
            return
        if known is None:
            # An event has changed the record of an ended job; it is archived again.
            self.ended.take(record.job_id)
        self._records[record.job_id] = record
        self.revision = max(self.revision, record.applied_sequence)
        position = (record.submitted_at, record.job_id)
        if known is None:
            bisect.insort(self._order, position)
        if known is None or _qualified_name(known) != _qualified_name(record):
            # A spec has a name before its validation sets the namespace.
            self._remove_name(known)
            if record.name:
                bisect.insort(self._by_name.setdefault(_qualified_name(record), []), position)
        self._signal(record.job_id)

    def archive(self, summary: EndedJobSummary, revision: int, *, is_news: bool) -> None:
        """Move a job to the ended ones, whose record has that ``revision``; watchers hear of it if it ``is_news`` to them.

        A record that is newer than the summary stays.
        """
        live = self._records.get(summary.job_id)
        if live is not None and live.applied_sequence > summary.applied_sequence:
            return
        if not self.ended.add(summary, revision):
            return
        self._remove_live(summary.job_id)
        self.revision = max(self.revision, summary.applied_sequence)
        if is_news:
            self._signal(summary.job_id)

    def drop(self, job_id: str, revision: int = 0, *, is_confirmed: bool = False) -> None:
        """Remove a deleted job; ``revision`` is that of the removal of its record, ``is_confirmed`` if the watch reports it."""
        live = self._remove_live(job_id)
        remove = self.ended.confirm_removal if is_confirmed else self.ended.remove
        namespace = remove(job_id, revision) if revision else None
        if live is not None or namespace is not None:
            self._signal(job_id, deleted_in=namespace_of(live) if live is not None else namespace)

    def drop_missing(self, present: Collection[str], selects: Callable[[str], bool]) -> None:
        """Drop the selected live records whose job ids are not ``present``: these jobs were deleted."""
        for job_id in self.job_ids():
            if job_id not in present and selects(job_id):
                self.drop(job_id)

    def _remove_live(self, job_id: str) -> JobRecord | None:
        record = self._records.pop(job_id, None)
        if record is not None:
            del self._order[bisect.bisect_left(self._order, (record.submitted_at, job_id))]
            self._remove_name(record)
        return record

    def newest_first(self, before: tuple[int, str] | None = None) -> Iterator[JobRecord]:
        """Yield records, newest first, starting after ``before`` (submission time and id)."""
        end = len(self._order) if before is None else bisect.bisect_left(self._order, before)
        for position in range(end - 1, -1, -1):
            yield self._records[self._order[position][1]]

    def count(self, phase: Phase) -> int:
        """Return the number of jobs in a phase."""
        live = sum(1 for record in self._records.values() if record.phase is phase)
        return live + self.ended.in_phase(phase)

    async def advanced(self) -> None:
        """Return at the next change of any record."""
        await self._advanced.wait()

    def changed_after(self, position: int, most: int) -> list[tuple[str, str | None]]:
        """Return the ids of up to ``most`` changes after the first ``position``, each with its namespace if the job was deleted.

        Raises ``MissedChanges``.
        """
        first = position - self.changes + len(self._changed)
        if first < 0:
            raise MissedChanges(f"{-first} changes were missed")
        return list(islice(self._changed, first, first + most))

    @contextmanager
    def watch(self, job_id: str) -> Generator[asyncio.Event]:
        """Return an event that is set at each change of the job's record; the watcher clears it."""
        changed = asyncio.Event()
        watchers = self._watched.setdefault(job_id, set())
        watchers.add(changed)
        try:
            yield changed
        finally:
            watchers.discard(changed)
            if not watchers:
                self._watched.pop(job_id, None)

    def _remove_name(self, record: JobRecord | None) -> None:
        if record is None or not record.name:
            return
        ids = self._by_name[_qualified_name(record)]
        ids.remove((record.submitted_at, record.job_id))
        if not ids:
            del self._by_name[_qualified_name(record)]

    def _signal(self, job_id: str, deleted_in: str | None = None) -> None:
        self.changes += 1
        self._changed.append((job_id, deleted_in))
        for changed in self._watched.get(job_id, ()):
            changed.set()
        self._advanced.set()
        self._advanced = asyncio.Event()


def namespace_of(record: JobRecord) -> str:
    """Return the namespace of a record; ``default`` until it is validated."""
    return record.job.namespace if record.job else "default"


def _qualified_name(record: JobRecord) -> tuple[str, str]:
    return (namespace_of(record), record.name)
