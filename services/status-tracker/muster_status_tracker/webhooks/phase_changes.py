"""From events to changes of phase, starting anywhere in the stream.

The state of an older job is rebuilt from its own earlier events at its first event after the start. So a reader starts at
once, however many jobs exist, and derives the same changes as its predecessor.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Protocol

from muster_bus import Bus, StreamRange, read_range
from muster_core.events import StoredEvent
from muster_core.lifecycle import apply_event, begins_record
from muster_core.models import JobRecord
from muster_events.catalogue import JOBS_STREAM
from muster_events.codec import UnreadableEvent, read_job_event
from muster_events.history import any_record, records_of
from muster_events.subjects import job_events_of
from muster_service.logs import fields
from muster_status_tracker.webhooks.cloud_events import PhaseChange

log = logging.getLogger(__name__)

_MAX_ENDED = 10_000


class EarlierRecords(Protocol):
    """Source of records at an earlier sequence."""

    async def record_before(self, job_id: str, sequence: int) -> JobRecord | None:
        """Return the record just before a sequence, or None."""
        ...


class StreamRecords:
    """Rebuilds records from the stream, or from the stored record if the stream no longer has the job's beginning."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._records = records_of(bus)

    async def record_before(self, job_id: str, sequence: int) -> JobRecord | None:
        """Return the record just before ``sequence``. If the stored record is newer, the changes that it includes are skipped."""
        earlier = StreamRange(
            stream=JOBS_STREAM, filters=[job_events_of(job_id)], after=0, through=sequence - 1
        )
        record: JobRecord | None = None
        async for chunk in read_range(self._bus, earlier):
            for incoming in chunk:
                try:
                    record = apply_event(record, read_job_event(incoming)).record
                except UnreadableEvent as error:
                    log.warning("an unreadable event is skipped: %s", error, extra=fields(job_id=job_id))
        if record is not None:
            return record
        return await any_record(self._records, job_id)


class PhaseChangeReader:
    """The live jobs, as of the last event that was read."""

    def __init__(self, past: EarlierRecords) -> None:
        self._past = past
        self._live: dict[str, JobRecord] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()

    async def read(self, stored: StoredEvent) -> PhaseChange | None:
        """Return the change that an event caused, or None; events must be read in order."""
        job_id = stored.job_id
        if job_id in self._ended:
            return None
        before = self._live.get(job_id)
        if before is None and not begins_record(stored.event):
            before = await self._past.record_before(job_id, stored.sequence)
            if before is None or before.terminal:
                self._end(job_id)
                return None
        after = apply_event(before, stored).record
        if after is None:
            return None
        if after.terminal:
            self._end(job_id)
        else:
            self._live[job_id] = after
        if before is not None and before.phase is after.phase:
            return None
        return PhaseChange(before=before.phase if before else None, after=after, at=stored.at)

    def _end(self, job_id: str) -> None:
        self._live.pop(job_id, None)
        self._ended[job_id] = None
        if len(self._ended) > _MAX_ENDED:
            self._ended.popitem(last=False)
