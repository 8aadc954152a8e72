"""Events -> record -> decision. The record is durable before anything is done that was decided on it, and both before the event is
acknowledged. What is told of a job does not wait for that: its events are durable already.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from muster_bus import BusUnavailable, StreamFull
from muster_core.events import StoredEvent
from muster_core.lifecycle import DeleteRecord, Finish, Restart, Retention, apply_event, decide, next_deadline
from muster_core.models import JobRecord
from muster_service.logs import fields
from muster_status_tracker.alarms import Alarms
from muster_status_tracker.ports import LifeEvents, RecordBucket, Story
from muster_status_tracker.shelf import Shelf

log = logging.getLogger(__name__)

Clock = Callable[[], int]
"""The instant now, in microseconds."""

_TRIES = 5
"""How often it is tried to keep a record before the others of its partition go on without it."""


class PartitionHandler:
    """The life of the jobs of one partition, in the order of their events. ``alarms`` say when jobs are due without any."""

    def __init__(
        self,
        *,
        shelf: Shelf,
        bucket: RecordBucket,
        life: LifeEvents,
        story: Story,
        retention: Retention,
        clock: Clock,
        count_invalid: Callable[[], None],
    ) -> None:
        self._shelf = shelf
        self._bucket = bucket
        self._life = life
        self._story = story
        self._retention = retention
        self._clock = clock
        self._count_invalid = count_invalid
        self.alarms = Alarms()
        self._records: dict[str, JobRecord] = {}
        self._due: set[str] = set()
        self._unkept: dict[str, int] = {}
        self._keeping = asyncio.Lock()

    def load(self, records: Iterable[JobRecord]) -> None:
        """Start from what the bucket holds; every one of them is looked at again once the events behind are read."""
        self._records = {record.job_id: record for record in records}
        self._due = set(self._records)
        for record in self._records.values():
            self._shelf.put(record)
            self.alarms.set(record.job_id, next_deadline(record, self._retention))

    async def handle(self, batch: Sequence[StoredEvent], *, live: bool) -> None:
        """Fold a batch, and (once the past is read) decide. The records are kept by ``settle``, or before they lead to anything."""
        steps: dict[str, tuple[JobRecord | None, JobRecord]] = {}
        for stored in batch:
            self._fold(stored, steps)
        for job_id, (_, after) in steps.items():
            self._records[job_id] = after
            self._unkept.setdefault(job_id, 0)
            self._shelf.put(after)
            self.alarms.set(job_id, next_deadline(after, self._retention))
        self._due |= steps.keys()
        if live:
            for before, after in steps.values():
                self._story.tell(before, after)
            await self.decide_due()

    async def settle(self) -> None:
        """Keep every record that has changed since it was last kept; raises what keeps one from it."""
        await self._keep(list(self._unkept))

    async def decide_due(self) -> None:
        """Decide on every job that changed or whose deadline may have passed."""
        due, self._due = self._due, set()
        try:
            await self._keep([job_id for job_id in due if job_id in self._unkept and self._decided(job_id)])
            await asyncio.gather(*(self._decide(job_id) for job_id in due))
        except BaseException:
            self._due |= due
            raise

    async def expire(self, now: int) -> None:
        """Decide on the jobs that are due at ``now`` (µs), and on what could not be decided before."""
        self._due |= self.alarms.ring(now)
        if self._due:
            await self.decide_due()

    async def thin_out(self) -> None:
        """Forget the finished jobs of this partition that are too many among all that there are."""
        if not self._retention.most:
            return
        for job_id in self._shelf.finished_beyond(self._retention.most):
            record = self._records.get(job_id)
            if record is not None and record.settled:
                await self._forget(record, "others have ended since, and no more are kept")

    def _fold(self, stored: StoredEvent, steps: dict[str, tuple[JobRecord | None, JobRecord]]) -> None:
        known = self._records.get(stored.job_id)
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

    async def _keep(self, job_ids: Sequence[str]) -> None:
        if not job_ids:
            return
        async with self._keeping:
            jobs = [job_id for job_id in job_ids if job_id in self._unkept]
            failures = [e for e in await asyncio.gather(*map(self._keep_one, jobs)) if e is not None]
        if failures:
            raise failures[0]

    async def _keep_one(self, job_id: str) -> Exception | None:
        """Have the record in the bucket as it stands now; what went wrong, unless it has too often."""
        record = self._records.get(job_id)
        if record is None:
            return None
        try:
            stands = await self._bucket.write(record)
        except Exception as error:
            if self._records.get(job_id) is not record:
                return error
            tries = self._unkept.get(job_id, 0) + 1
            # Where there is no room now, there may be some later.
            if tries < _TRIES or isinstance(error, BusUnavailable | StreamFull):
                self._unkept[job_id] = tries
                return error
            self._unkept.pop(job_id, None)
            log.exception("a record is not kept", extra=fields(job=record.name, job_id=job_id))
            return None
        if not stands:
            self._drop(job_id)
        elif self._records.get(job_id) is record:
            self._unkept.pop(job_id, None)
        return None

    def _decided(self, job_id: str) -> Sequence[Finish | Restart | DeleteRecord]:
        record = self._records.get(job_id)
        return decide(record, self._clock(), self._retention) if record is not None else ()

    async def _decide(self, job_id: str) -> None:
        record = self._records.get(job_id)
        if record is None:
            return
        instructions = self._decided(job_id)
        if not instructions:
            # An alarm rings once, and the clock may have been set back since.
            self.alarms.set(job_id, next_deadline(record, self._retention))
        elif job_id in self._unkept:
            # It has moved on since it was kept, or was not: it stays due.
            self._due.add(job_id)
            return
        for instruction in instructions:
            match instruction:
                case Finish(event=event):
                    await self._life.publish(record, event)
                    log.info(
                        "finished: %s",
                        event.reason.message,
                        extra=fields(job=record.name, job_id=job_id, outcome=event.outcome),
                    )
                case Restart(event=event):
                    await self._life.publish(record, event)
                    log.info(
                        "restarting: %s", event.reason.message, extra=fields(job=record.name, job_id=job_id)
                    )
                case DeleteRecord():
                    await self._forget(record, "deleted" if record.delete_requested else "its time is over")

    async def _forget(self, record: JobRecord, why: str) -> None:
        await self._bucket.remove(record.job_id)
        self._drop(record.job_id)
        log.info("forgotten: %s", why, extra=fields(job=record.name, job_id=record.job_id))

    def _drop(self, job_id: str) -> None:
        self._records.pop(job_id, None)
        self._unkept.pop(job_id, None)
        self.alarms.set(job_id, None)
        self._shelf.drop(job_id)
