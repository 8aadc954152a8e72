"""The ``jobs`` bucket, written by compare-and-set."""

from __future__ import annotations

import asyncio

from muster_bus import BusUnavailable, Records, WrongSequence
from muster_bus.records import Entry
from muster_core.models import JobRecord
from muster_events.codec import decode_record, encode_record
from muster_events.subjects import record_key
from muster_events.view import restore

_PAUSE_S = 0.1
_NS_PER_US = 1000


class JobsBucket:
    """See ``RecordBucket``. A copy that lost its partition without knowing loses here: the other's write moved the revision."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._revisions: dict[str, int] = {}

    def load(self, entries: list[Entry]) -> list[JobRecord]:
        """Take over a partition: the records, and the revisions to compare with."""
        self._revisions |= {entry.key: entry.revision for entry in entries}
        return restore(entries)

    async def write(self, record: JobRecord) -> bool:
        """See ``RecordBucket``."""
        key, value = record_key(record.job_id), encode_record(record)
        while True:
            try:
                self._revisions[key] = await self._records.put(
                    key, value, expected=self._revisions.get(key, 0), revive=False
                )
                return True
            except WrongSequence:
                if await self._newer_is_there(key, record):
                    return True
                if await self._was_forgotten(key, record):
                    return False
            except BusUnavailable:
                # The outcome is unknown; the next compare tells.
                await asyncio.sleep(_PAUSE_S)

    async def remove(self, job_id: str) -> None:
        """See ``RecordBucket``."""
        key = record_key(job_id)
        await self._records.delete(key)
        self._revisions.pop(key, None)

    async def _newer_is_there(self, key: str, record: JobRecord) -> bool:
        entry = await self._records.get(key)
        self._revisions[key] = entry.revision if entry else 0
        return entry is not None and decode_record(entry.value).applied_sequence >= record.applied_sequence

    async def _was_forgotten(self, key: str, record: JobRecord) -> bool:
        """Whether the record was removed during the life that it tells of: only a later submission may write over that."""
        removal = await self._records.removal(key)
        if removal is None:
            return False
        self._revisions[key] = removal.revision
        return removal.timestamp_ns >= record.submitted_at * _NS_PER_US
