"""The ``jobs`` bucket, written by compare-and-set."""

from __future__ import annotations

import asyncio

from muster_core.models import JobRecord
from muster_events.codec import decode_record, encode_record
from muster_events.subjects import record_key
from muster_events.view import restore
from muster_runtime.bus import BusUnavailable, Records, WrongSequence
from muster_runtime.bus.records import Entry

_PAUSE_S = 0.1


class JobsBucket:
    """See ``RecordBucket``. A copy that lost its shard without knowing loses here: the other's write moved the revision."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._revisions: dict[str, int] = {}

    def load(self, entries: list[Entry]) -> list[JobRecord]:
        """Take over a shard: the records, and the revisions to compare with."""
        self._revisions |= {entry.key: entry.revision for entry in entries}
        return restore(entries)

    async def write(self, record: JobRecord) -> None:
        """See ``RecordBucket``."""
        key, value = record_key(record.job_id), encode_record(record)
        while True:
            try:
                self._revisions[key] = await self._records.put(
                    key, value, expected=self._revisions.get(key, 0)
                )
                return
            except WrongSequence:
                if await self._newer_is_there(key, record):
                    return
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
        return entry is not None and decode_record(entry.value).folded >= record.folded
