"""The record store when two instances briefly own the same partition."""

from __future__ import annotations

import time

import msgspec
import pytest_asyncio

from muster_bus import BucketSpec, Bus, KeyValueStore, provision
from muster_core.models import JobRecord
from muster_events.codec import decode_record
from muster_events.subjects import record_key
from muster_status_tracker.records import RecordStore

JOB_ID = "j-aaaaaaaaaaaaaaaa"
US = 1_000_000


@pytest_asyncio.fixture
async def records(shared_bus: Bus, fresh: str) -> KeyValueStore:
    await provision(shared_bus, buckets=[BucketSpec(name=fresh)])
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
    owner.load(await records.entries())
    assert await owner.write(later(known))
    await owner.remove(JOB_ID)

    assert not await stale.write(later(known))
    assert await records.entries() == []


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
    entry = await records.get(record_key(JOB_ID))
    assert entry is not None
    assert decode_record(entry.value) == later(anew)


async def test_a_newer_record_of_another_instance_is_kept(records: KeyValueStore) -> None:
    stale, owner = RecordStore(records), RecordStore(records)
    known = record()
    assert await stale.write(known)
    owner.load(await records.entries())
    newest = later(later(known))
    assert await owner.write(newest)

    assert await stale.write(later(known))
    assert [decode_record(entry.value) for entry in await records.entries()] == [newest]
