"""The record store: the move of settled jobs, and what happens when two instances briefly own the same partition."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest_asyncio

from muster_bus import BucketSpec, Bus, KeyValueStore, provision
from muster_core.models import JobRecord, Phase
from muster_events.codec import decode_record, encode_record
from muster_events.history import EndedJobSummary, any_record, summary_in
from muster_events.subjects import (
    ENDED_RECORDS,
    LIVE_RECORDS,
    ended_record_key,
    job_id_in_key,
    live_record_key,
)
from muster_status_tracker.records import RecordStore

JOB_ID = "j-aaaaaaaaaaaaaaaa"
US = 1_000_000


@pytest_asyncio.fixture
async def records(shared_bus: Bus, fresh: str) -> KeyValueStore:
    await provision(shared_bus, buckets=[BucketSpec(name=fresh, ttl=True)])
    return KeyValueStore(shared_bus, fresh)


def record(*, applied_sequence: int = 1, submitted_s_ago: float = 60) -> JobRecord:
    return JobRecord(
        job_id=JOB_ID,
        applied_sequence=applied_sequence,
        submitted_at=time.time_ns() // 1000 - round(submitted_s_ago * US),
    )


def later(known: JobRecord) -> JobRecord:
    return msgspec.structs.replace(known, applied_sequence=known.applied_sequence + 1)


async def test_a_job_deleted_by_another_instance_is_not_restored(records: KeyValueStore) -> None:
    stale, owner = RecordStore(records), RecordStore(records)
    known = record()
    assert await stale.write(known)
    await owner.load(await records.entries())
    assert await owner.write(later(known))
    await owner.remove(JOB_ID)

    assert not await stale.write(later(known))
    assert await records.entries() == []


async def test_a_newer_record_of_another_instance_is_never_overwritten(records: KeyValueStore) -> None:
    superseded: list[tuple[str, int]] = []
    stale = RecordStore(records, on_superseded=lambda job_id, sequence: superseded.append((job_id, sequence)))
    owner = RecordStore(records)
    assert await stale.write(record())
    await owner.load(await records.entries())
    newest = record(applied_sequence=9)
    assert await owner.write(newest)

    for sequence in (2, 3):
        assert await stale.write(record(applied_sequence=sequence))
    (entry,) = await records.entries()
    assert decode_record(entry.value).applied_sequence == 9
    assert superseded == [(JOB_ID, 2), (JOB_ID, 3)]
    assert await stale.write(later(newest))


async def test_an_instance_without_the_record_does_not_restore_a_deleted_job(records: KeyValueStore) -> None:
    owner = RecordStore(records)
    known = record()
    assert await owner.write(known)
    await owner.remove(JOB_ID)

    assert not await RecordStore(records).write(known)
    assert await records.entries() == []


async def test_a_job_submitted_again_after_its_deletion_is_stored(records: KeyValueStore) -> None:
    store = RecordStore(records)
    assert await store.write(record())
    await store.remove(JOB_ID)

    anew = record(applied_sequence=9, submitted_s_ago=-60)
    assert await store.write(anew)
    assert await store.write(later(anew))
    entry = await records.get(live_record_key(JOB_ID))
    assert entry is not None
    assert decode_record(entry.value) == later(anew)


async def test_a_newer_record_of_another_instance_is_kept(records: KeyValueStore) -> None:
    stale, owner = RecordStore(records), RecordStore(records)
    known = record()
    assert await stale.write(known)
    await owner.load(await records.entries())
    newest = later(later(known))
    assert await owner.write(newest)

    assert await stale.write(later(known))
    assert [decode_record(entry.value) for entry in await records.entries()] == [newest]


def settled(known: JobRecord) -> JobRecord:
    return msgspec.structs.replace(later(known), phase=Phase.SUCCEEDED, finished_at=time.time_ns() // 1000)


async def live(records: KeyValueStore) -> list[str]:
    return [entry.key for entry in await records.entries(LIVE_RECORDS)]


async def test_the_record_of_a_settled_job_is_no_longer_live(records: KeyValueStore) -> None:
    store = RecordStore(records)
    known = record()
    assert await store.write(known)
    revision = await store.archive(settled(known))

    assert await live(records) == []
    (entry,) = await records.entries(ENDED_RECORDS)
    assert (entry.key, entry.revision) == (ended_record_key(JOB_ID), revision)
    assert await store.ended(JOB_ID) == decode_record(entry.value)
    assert await any_record(records, JOB_ID) == decode_record(entry.value)
    ((headers,),) = [chunk async for chunk in records.headers(ENDED_RECORDS)]
    assert summary_in(headers.headers) == EndedJobSummary.of(decode_record(entry.value))


async def test_an_instance_that_was_paused_does_not_bring_an_ended_job_back(records: KeyValueStore) -> None:
    stale, unsaved, owner = RecordStore(records), RecordStore(records), RecordStore(records)
    known = record()
    assert await stale.write(known)
    await owner.load(await records.entries())
    assert await owner.archive(settled(known))

    assert await stale.write(known)
    assert await unsaved.write(known)
    assert await live(records) == []


async def test_a_move_to_the_ended_jobs_that_was_interrupted_is_finished_by_the_next_owner(
    records: KeyValueStore,
) -> None:
    first, second = RecordStore(records), RecordStore(records)
    known = record()
    assert await first.write(known)
    ended = settled(known)
    headers = EndedJobSummary.of(ended).headers()
    revision = await records.put(ended_record_key(JOB_ID), encode_record(ended), headers=headers)

    await second.load(await records.entries(LIVE_RECORDS))
    assert await second.archive(ended) == revision
    assert await live(records) == []


async def test_an_ended_job_may_change_and_be_deleted(records: KeyValueStore) -> None:
    store = RecordStore(records)
    known = settled(record())
    first = await store.archive(known)
    again = await RecordStore(records).archive(later(known))
    assert first is not None
    assert again is not None
    assert again > first
    assert await store.ended(JOB_ID) == later(known)

    await RecordStore(records).remove(JOB_ID)
    assert await store.ended(JOB_ID) is None
    assert await store.archive(later(later(known))) is None


async def test_a_watch_of_headers_reports_what_exists_and_then_each_write(records: KeyValueStore) -> None:
    store = RecordStore(records)
    known = settled(record())
    await store.archive(known)
    watch = records.watch_headers(ENDED_RECORDS)
    seen: list[tuple[str, bool]] = []

    async def follow() -> None:
        async for changes in watch.changes():
            seen.extend((job_id_in_key(change.key), change.removed) for change in changes)

    following = asyncio.create_task(follow())
    await watch.catch_up()
    assert seen == [(JOB_ID, False)]
    await RecordStore(records).archive(later(known))
    await RecordStore(records).remove(JOB_ID)
    await watch.catch_up()
    assert seen == [(JOB_ID, False), (JOB_ID, False), (JOB_ID, True)]
    following.cancel()


async def test_a_record_that_cannot_be_read_is_replaced(records: KeyValueStore) -> None:
    store = RecordStore(records)
    known = record()
    assert await store.write(known)
    await records.put(live_record_key(JOB_ID), b"{")

    assert await store.write(later(known))
    [entry] = await records.entries()
    assert decode_record(entry.value) == later(known)
