"""The life cycle of jobs: events change records, and records lead to decisions.

A record is durable before a decision based on it takes effect, and both are before the event is acknowledged. Observers do
not wait for that: the job's events are durable already.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from muster_bus import BusUnavailable, StreamFull, until_answered
from muster_core.events import StoredEvent
from muster_core.lifecycle import (
    DeleteRecord,
    Finish,
    Restart,
    Retention,
    apply_event,
    begins_record,
    decide,
    next_deadline,
)
from muster_core.models import JobRecord
from muster_events.history import EndedJobSummary
from muster_service.logs import fields
from muster_status_tracker.deadlines import DeadlineQueue
from muster_status_tracker.ports import LifecycleEvents, RecordWriter, SpanRecorder, TransitionObserver
from muster_status_tracker.records import RecordCache

log = logging.getLogger(__name__)

Clock = Callable[[], int]
"""The current time in microseconds."""

_MAX_ATTEMPTS = 5
"""How often a record is written before the partition continues without it."""


class PartitionHandler:
    """The life cycle of the jobs of one partition, in the order of their events; ``deadlines`` are those of its jobs."""

    def __init__(
        self,
        *,
        cache: RecordCache,
        store: RecordWriter,
        publisher: LifecycleEvents,
        observer: TransitionObserver,
        recorder: SpanRecorder,
        retention: Retention,
        clock: Clock,
        count_invalid: Callable[[], None],
        partition: int,
    ) -> None:
        self._partition = partition
        self._cache = cache
        self._store = store
        self._publisher = publisher
        self._observer = observer
        self._recorder = recorder
        self._retention = retention
        self._clock = clock
        self._count_invalid = count_invalid
        self.deadlines = DeadlineQueue()
        self._records: dict[str, JobRecord] = {}
        self._due: set[str] = set()
        self._unsaved: dict[str, int] = {}
        self._write_lock = asyncio.Lock()

    def load(self, records: Iterable[JobRecord]) -> None:
        """Start from the stored records; every job is evaluated again when the events behind them are applied."""
        self._records = {record.job_id: record for record in records}
        self._due = set(self._records)
        for record in self._records.values():
            self._cache.put(record)
            self.deadlines.set(record.job_id, next_deadline(record, self._retention))
            if record.settled:
                # The previous owner did not come to move it to the ended jobs.
                self._unsaved[record.job_id] = 0

    def job_ids(self) -> Collection[str]:
        """Return the jobs of the partition."""
        return self._records.keys()

    async def handle(self, batch: Sequence[StoredEvent], *, live: bool) -> None:
        """Apply a batch of events and, when caught up, decide. Records are stored by ``flush``, or before a decision takes effect."""
        recalls = await asyncio.gather(*map(self._recall, batch), return_exceptions=True)
        # Raise only when none is in flight: it would take an old record back later.
        for failure in recalls:
            if failure is not None:
                raise failure
        steps: dict[str, tuple[JobRecord | None, JobRecord]] = {}
        for stored in batch:
            self._apply_event(stored, steps)
        for job_id, (_, after) in steps.items():
            self._records[job_id] = after
            self._unsaved.setdefault(job_id, 0)
            self._cache.put(after)
            self.deadlines.set(job_id, next_deadline(after, self._retention))
        self._due |= steps.keys()
        if live:
            for before, after in steps.values():
                self._observer.observe(before, after)
            await self.decide_due()

    async def flush(self) -> None:
        """Store every record that has changed; raises the first failure."""
        await self._save_records(list(self._unsaved))

    async def decide_due(self) -> None:
        """Decide about every job that changed or whose deadline may have passed."""
        due, self._due = self._due, set()
        try:
            publishing = {job_id for job_id in due if self._publishes(job_id)}
            await self._save_records([job_id for job_id in publishing if job_id in self._unsaved])
            await asyncio.gather(
                *(self._decide(job_id) for job_id in publishing), self._delete_due(due - publishing)
            )
        except BaseException:
            self._due |= due
            raise

    async def _delete_due(self, job_ids: Collection[str]) -> None:
        """Decide about jobs whose records are at most deleted, while no record is being stored."""
        async with self._write_lock:
            await asyncio.gather(*(self._decide(job_id) for job_id in job_ids))

    async def expire(self, now: int) -> None:
        """Decide about the jobs whose deadline passed before ``now`` (µs), and those of failed decisions."""
        self._due |= self.deadlines.take_due(now)
        if self._due:
            await self.decide_due()
        await self._delete_ended(self._cache.ended.expired(self._partition, now), "its time to live is over")

    async def enforce_retention(self) -> None:
        """Delete the oldest ended jobs of this partition beyond the limit of retained jobs."""
        if self._retention.most:
            beyond = self._cache.ended.beyond(self._partition, self._retention.most)
            await self._delete_ended(beyond, "the limit of retained jobs is exceeded")

    async def _delete_ended(self, job_ids: Sequence[str], cause: str) -> None:
        await asyncio.gather(*(self._delete(job_id, "", cause) for job_id in job_ids))

    async def _recall(self, stored: StoredEvent) -> None:
        """Take the record of an ended job back for an event that it does not include."""
        job_id = stored.job_id
        if job_id in self._records:
            return
        ended = self._cache.ended.applied_sequence(job_id)
        if stored.sequence <= ended or (not ended and begins_record(stored.event)):
            return
        record = await self._store.ended(job_id)
        if record is not None and job_id not in self._records:
            self._records[job_id] = record

    def _apply_event(self, stored: StoredEvent, steps: dict[str, tuple[JobRecord | None, JobRecord]]) -> None:
        known = self._records.get(stored.job_id)
        if known is None and stored.sequence <= self._cache.ended.applied_sequence(stored.job_id):
            return
        before, current = steps.get(stored.job_id, (known, known))
        transition = apply_event(current, stored)
        if transition.invalid and current is not None:
            self._count_invalid()
            log.warning(
                "invalid transition: %s",
                transition.invalid,
                extra=fields(job_id=stored.job_id, sequence=stored.sequence),
            )
        if transition.record is not None and transition.record is not current:
            steps[stored.job_id] = (before, transition.record)
            if not transition.invalid:
                self._recorder.observe(current, transition.record, stored)

    async def _save_records(self, job_ids: Sequence[str]) -> None:
        if not job_ids:
            return
        async with self._write_lock:
            jobs = [job_id for job_id in job_ids if job_id in self._unsaved]
            failures = [e for e in await asyncio.gather(*map(self._save_record, jobs)) if e is not None]
        if failures:
            raise failures[0]

    async def _save_record(self, job_id: str) -> Exception | None:
        """Store the current record; returns the failure, unless it has failed too often."""
        record = self._records.get(job_id)
        if record is None:
            return None
        try:
            # The spans are recorded by the instance that has stored the record.
            revision = await until_answered(self._write(record))
        except Exception as error:
            if self._records.get(job_id) is not record:
                return error
            attempts = self._unsaved.get(job_id, 0) + 1
            # There may be space later.
            if attempts < _MAX_ATTEMPTS or isinstance(error, BusUnavailable | StreamFull):
                self._unsaved[job_id] = attempts
                return error
            self._unsaved.pop(job_id, None)
            log.exception("a record cannot be stored", extra=fields(job=record.name, job_id=job_id))
            return None
        if revision is None:
            self._drop(job_id)
        elif self._records.get(job_id) is record:
            self._unsaved.pop(job_id, None)
            if revision and not self._instructions(job_id):
                self._forget(job_id)
                self._cache.archive(EndedJobSummary.of(record), revision, is_news=False)
        return None

    async def _write(self, record: JobRecord) -> int | None:
        """Return the revision of the record of a settled job, 0 for others, None if the job was deleted."""
        if record.settled:
            revision = await self._store.archive(record)
        else:
            revision = 0 if await self._store.write(record) else None
        self._recorder.stored(record.job_id, record.applied_sequence)
        return revision

    def _instructions(self, job_id: str) -> Sequence[Finish | Restart | DeleteRecord]:
        record = self._records.get(job_id)
        return decide(record, self._clock(), self._retention) if record is not None else ()

    def _publishes(self, job_id: str) -> bool:
        """Return whether a decision takes effect elsewhere; what only deletes the record needs no record."""
        return any(not isinstance(each, DeleteRecord) for each in self._instructions(job_id))

    async def _decide(self, job_id: str) -> None:
        record = self._records.get(job_id)
        if record is None:
            return
        instructions = self._instructions(job_id)
        if not instructions:
            # A deadline is taken once, and the clock may have been set back since.
            self.deadlines.set(job_id, next_deadline(record, self._retention))
        elif job_id in self._unsaved and self._publishes(job_id):
            # The record has changed since it was stored: the job stays due.
            self._due.add(job_id)
            return
        for instruction in instructions:
            match instruction:
                case Finish(event=event):
                    await self._publisher.publish(record, event)
                    log.info(
                        "finished: %s",
                        event.reason.message,
                        extra=fields(job=record.name, job_id=job_id, outcome=event.outcome),
                    )
                case Restart(event=event):
                    await self._publisher.publish(record, event)
                    log.info(
                        "restarting: %s", event.reason.message, extra=fields(job=record.name, job_id=job_id)
                    )
                case DeleteRecord():
                    await self._delete_record(
                        record, "deleted" if record.delete_requested else "its time to live is over"
                    )

    async def _delete_record(self, record: JobRecord, cause: str) -> None:
        await self._delete(record.job_id, record.name, cause)

    async def _delete(self, job_id: str, name: str, cause: str) -> None:
        revision = await self._store.remove(job_id)
        if (record := self._records.get(job_id)) is not None:
            self._recorder.stored(job_id, record.applied_sequence)
        self._drop(job_id, revision)
        log.info("record deleted: %s", cause, extra=fields(job=name or None, job_id=job_id))

    def _drop(self, job_id: str, revision: int = 0) -> None:
        self._forget(job_id)
        self._cache.drop(job_id, revision)

    def _forget(self, job_id: str) -> None:
        self._records.pop(job_id, None)
        self._unsaved.pop(job_id, None)
        self._due.discard(job_id)
        self.deadlines.set(job_id, None)
