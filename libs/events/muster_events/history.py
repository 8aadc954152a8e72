"""The history of jobs: records of settled jobs, which are read on demand, and their summaries, which are headers.

A summary has what lists select and sort by, so that the values of thousands of records need not be read.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping

import msgspec

from muster_bus.connection import Bus
from muster_bus.errors import BusUnavailable
from muster_bus.key_value import Entry, KeyHeaders, KeyValueStore
from muster_bus.messages import UNREADABLE
from muster_core.events import JobAdopted, JobValidated
from muster_core.lifecycle import awaits_build, expiry
from muster_core.models import Job, JobRecord, Phase
from muster_events.catalogue import JOBS_BUCKET, JOBS_STREAM
from muster_events.codec import UnreadableEvent, decode_record_at
from muster_events.subjects import (
    ENDED_RECORDS,
    BadToken,
    ended_record_key,
    job_id_in_key,
    job_subject,
    live_record_key,
)

log = logging.getLogger(__name__)

SUMMARY = "Muster-Job"
"""The header with the summary of an ended job."""

_LONGEST_NAME = 253
_PAUSE_S = 0.5


class EndedJobSummary(msgspec.Struct, frozen=True, array_like=True):
    """What lists need of a settled job.

    ``queue`` is the one that it names, None if it was never validated; ``expires_at`` (µs) follows from its own time to live,
    None without one. ``ran_at`` is when it began to run, 0 if it never did.
    """

    job_id: str
    applied_sequence: int
    submitted_at: int
    finished_at: int
    ran_at: int
    namespace: str
    name: str
    phase: Phase
    queue: str | None
    built_by: str
    expires_at: int | None

    @classmethod
    def of(cls, record: JobRecord) -> EndedJobSummary:
        """Return the summary of a record."""
        return cls(
            job_id=record.job_id,
            applied_sequence=record.applied_sequence,
            submitted_at=record.submitted_at,
            finished_at=record.finished_at,
            ran_at=record.running_at,
            namespace=record.job.namespace if record.job else "default",
            name=record.name[:_LONGEST_NAME],
            phase=record.phase,
            queue=record.job.queue if record.job else None,
            built_by=record.built_by,
            expires_at=expiry(record),
        )

    def headers(self) -> dict[str, str]:
        """Return the headers of the record."""
        return {SUMMARY: msgspec.json.encode(self).decode()}


_decoder = msgspec.json.Decoder(EndedJobSummary)


def is_sound_record(key: str, headers: Mapping[str, str]) -> bool:
    """Return whether a record with this key and these headers can be what was written, and not damaged on its way."""
    try:
        job_id = job_id_in_key(key)
    except BadToken:
        return False
    return SUMMARY not in headers or (
        (summary := summary_in(headers)) is not None and summary.job_id == job_id
    )


def records_of(bus: Bus, *, written_in_groups: bool = False) -> KeyValueStore:
    """Return the bucket of job records."""
    return KeyValueStore(bus, JOBS_BUCKET, written_in_groups=written_in_groups, is_sound=is_sound_record)


def summary_in(headers: Mapping[str, str]) -> EndedJobSummary | None:
    """Return the summary in the headers of a record; None if it has none that can be read."""
    try:
        return _decoder.decode(headers.get(SUMMARY, ""))
    except UNREADABLE:
        return None


async def ended_record(records: KeyValueStore, job_id: str) -> JobRecord | None:
    """Return the record of a settled job, or None; raises ``BusUnavailable``."""
    return _decoded(await records.get(ended_record_key(job_id)))


async def any_record(records: KeyValueStore, job_id: str) -> JobRecord | None:
    """Return the stored record of a job, settled or not, or None; raises ``BusUnavailable``."""
    # A record is stored as ended before it is removed as live.
    live = await records.get(live_record_key(job_id))
    return _decoded(live) if live is not None else await ended_record(records, job_id)


class Absence(enum.Enum):
    """Why a reader of all events has no record of a job.

    ``DELETED``: the job is known and its record was deleted. ``UNREADABLE``: there is a record, which the reader does not have.
    ``UNKNOWN``: the store has neither a record of the job nor the event that begins one.
    """

    DELETED = enum.auto()
    UNREADABLE = enum.auto()
    UNKNOWN = enum.auto()


async def absence_of(bus: Bus, records: KeyValueStore, job_id: str) -> Absence:
    """Return why a reader that has read all events has no record of a job; raises ``BusUnavailable``."""
    if await records.removal(ended_record_key(job_id)) is not None:
        return Absence.DELETED
    for key in (live_record_key(job_id), ended_record_key(job_id)):
        if await records.get(key) is not None:
            return Absence.UNREADABLE
    # The marker of the removal has expired.
    for kind in (JobValidated, JobAdopted):
        if await bus.last(JOBS_STREAM, job_subject(job_id, kind.__name__)) is not None:
            return Absence.DELETED
    return Absence.UNKNOWN


async def ended_builds(records: KeyValueStore, live: Iterable[JobRecord]) -> list[JobRecord]:
    """Return the settled builds that jobs of ``live`` wait for; waits for an unavailable broker."""
    known = {record.job_id: record for record in live}
    wanted = {one.built_by for one in known.values() if awaits_build(one)} - known.keys()
    while True:
        try:
            found = await asyncio.gather(*(ended_record(records, job_id) for job_id in sorted(wanted)))
            return [record for record in found if record is not None]
        except BusUnavailable as error:
            log.warning("builds cannot be read, trying again: %s", error)
            await asyncio.sleep(_PAUSE_S)


async def successful_runs(records: KeyValueStore) -> AsyncGenerator[list[JobRecord], None]:
    """Iterate over the settled jobs that succeeded, with their names and times only, oldest end first."""
    async for chunk in records.headers(ENDED_RECORDS):
        yield [_run(one) for one in map(_summary, chunk) if one is not None and one.phase is Phase.SUCCEEDED]


def _summary(change: KeyHeaders) -> EndedJobSummary | None:
    return None if change.removed else summary_in(change.headers)


def _run(summary: EndedJobSummary) -> JobRecord:
    return JobRecord(
        job_id=summary.job_id,
        applied_sequence=summary.applied_sequence,
        phase=summary.phase,
        name=summary.name,
        job=Job(name=summary.name, namespace=summary.namespace, roles=()),
        submitted_at=summary.submitted_at,
        running_at=summary.ran_at,
        finished_at=summary.finished_at,
    )


def _decoded(entry: Entry | None) -> JobRecord | None:
    if entry is None:
        return None
    try:
        return decode_record_at(entry.key, entry.value)
    except UnreadableEvent as error:
        log.error("record %s at revision %d cannot be read: %s", entry.key, entry.revision, error)
        return None
