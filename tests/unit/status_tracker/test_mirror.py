"""The mirror of live records, and what the index of ended jobs reads earlier or later than it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

import msgspec
import pytest

from muster_bus.key_value import Decode, KeyChange
from muster_core.models import Job, JobRecord, Phase
from muster_events.codec import encode_record
from muster_events.history import EndedJobSummary
from muster_events.subjects import PARTITIONS, live_record_key, partition_of
from muster_status_tracker.mirror import RecordMirror
from muster_status_tracker.records import RecordCache, RecordChanges

JOB_ID = "j-aaaaaaaaaaaaaaaa"
RUNNING = JobRecord(
    job_id=JOB_ID,
    applied_sequence=5,
    phase=Phase.RUNNING,
    name="demo",
    submitted_at=1,
    job=Job(name="demo", roles=()),
)
ENDED = EndedJobSummary.of(
    msgspec.structs.replace(RUNNING, applied_sequence=6, phase=Phase.CANCELLED, finished_at=6)
)


class FakeWatch:
    """Changes that a test puts in."""

    def __init__(self) -> None:
        self.listed = asyncio.Event()
        self._changes: asyncio.Queue[KeyChange] = asyncio.Queue()
        self.taken = 0

    async def changes(self) -> AsyncGenerator[KeyChange, None]:
        while True:
            yield await self._changes.get()
            self.taken += 1

    async def catch_up(self) -> None:
        while not self._changes.empty():
            await asyncio.sleep(0)

    async def read(self, change: KeyChange, decode: Decode[JobRecord]) -> JobRecord | None:
        return decode(change.value) if change.value is not None else None

    def write(self, record: JobRecord, revision: int) -> None:
        self._changes.put_nowait(_change(record.job_id, encode_record(record), revision))

    def remove(self, job_id: str, revision: int) -> None:
        self._changes.put_nowait(_change(job_id, None, revision))

    async def until_taken(self, count: int) -> None:
        await until(lambda: self.taken >= count)


class Mirrored:
    """A mirror that owns nothing, and the index of ended jobs, which has caught up when the test says so."""

    def __init__(self) -> None:
        self.watches: list[FakeWatch] = []
        self.cache = RecordCache()
        self.index_caught_up = asyncio.Event()
        self.deleted: set[str] = set()
        self.completed = asyncio.Event()
        self.mirror = RecordMirror(
            watch=self._begin,
            catch_up=self._catch_up,
            was_deleted=self._was_deleted,
            cache=self.cache,
            on_listed=self.completed.set,
        )
        self.mirror.own(frozenset())

    @property
    def watch(self) -> FakeWatch:
        return self.watches[-1]

    async def until_begun(self, watches: int) -> None:
        await until(lambda: len(self.watches) == watches)

    def _begin(self) -> FakeWatch:
        self.watches.append(FakeWatch())
        return self.watches[-1]

    async def _was_deleted(self, job_id: str) -> bool:
        return job_id in self.deleted

    async def _catch_up(self) -> None:
        await self.index_caught_up.wait()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


@pytest.fixture
async def mirrored() -> AsyncGenerator[Mirrored]:
    mirrored = Mirrored()
    running = asyncio.create_task(mirrored.mirror.run())
    await mirrored.until_begun(1)
    mirrored.watch.listed.set()
    yield mirrored
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def _change(job_id: str, value: bytes | None, revision: int) -> KeyChange:
    return KeyChange(key=live_record_key(job_id), value=value, revision=revision)


async def test_a_deleted_job_whose_last_record_arrives_late_is_dropped(mirrored: Mirrored):
    mirrored.cache.archive(ENDED, 7, is_news=True)
    mirrored.cache.drop(JOB_ID, 9, is_confirmed=True)
    mirrored.index_caught_up.set()

    mirrored.watch.write(RUNNING, 4)
    mirrored.watch.remove(JOB_ID, 8)
    await mirrored.watch.until_taken(2)
    await until(lambda: mirrored.cache.get(JOB_ID) is None)


async def test_an_ended_job_is_known_until_the_index_has_it(mirrored: Mirrored):
    mirrored.watch.write(RUNNING, 4)
    mirrored.watch.remove(JOB_ID, 8)
    await mirrored.watch.until_taken(2)
    for _ in range(10):
        await asyncio.sleep(0)
    assert mirrored.cache.get(JOB_ID) == RUNNING

    changes = RecordChanges(mirrored.cache)
    mirrored.cache.archive(ENDED, 7, is_news=True)
    mirrored.index_caught_up.set()
    await mirrored.completed.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert await changes.take() == {JOB_ID: None}, "it ended, and was not deleted"
    assert mirrored.cache.ended.applied_sequence(JOB_ID) == ENDED.applied_sequence


async def test_a_record_that_was_stored_again_meanwhile_stays(mirrored: Mirrored):
    newer = msgspec.structs.replace(RUNNING, applied_sequence=9)
    mirrored.watch.write(RUNNING, 4)
    mirrored.watch.remove(JOB_ID, 8)
    mirrored.watch.write(newer, 10)
    await mirrored.watch.until_taken(3)
    mirrored.index_caught_up.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert mirrored.cache.get(JOB_ID) == newer


async def test_a_job_that_is_submitted_while_the_listing_is_compared_stays(mirrored: Mirrored):
    stale = msgspec.structs.replace(RUNNING, job_id="j-bbbbbbbbbbbbbbbb")
    mirrored.cache.put(stale)
    mirrored.deleted = {stale.job_id, JOB_ID}
    mirrored.watch.write(RUNNING, 4)
    await mirrored.watch.until_taken(1)
    mirrored.index_caught_up.set()
    await until(lambda: mirrored.cache.get(stale.job_id) is None)
    assert mirrored.cache.get(JOB_ID) == RUNNING


async def test_what_another_instance_wrote_while_this_one_believed_to_own_the_partition_is_read(
    mirrored: Mirrored,
):
    mirrored.index_caught_up.set()
    mirrored.mirror.own(frozenset({partition_of(JOB_ID)}))
    mirrored.watch.write(RUNNING, 4)
    await mirrored.watch.until_taken(1)
    assert mirrored.cache.get(JOB_ID) is None

    mirrored.mirror.own(frozenset())
    await mirrored.until_begun(2)
    assert not mirrored.mirror.is_listed
    mirrored.watch.write(RUNNING, 4)
    mirrored.watch.listed.set()
    await until(lambda: mirrored.cache.get(JOB_ID) == RUNNING)


async def test_nothing_is_mirrored_by_the_owner_of_everything(mirrored: Mirrored):
    mirrored.mirror.own(frozenset(range(PARTITIONS)))
    assert mirrored.mirror.is_listed
    mirrored.mirror.own(frozenset())
    await mirrored.until_begun(2)
    assert not mirrored.mirror.is_listed


async def test_a_job_whose_record_its_former_owner_has_not_stored_yet_stays(mirrored: Mirrored):
    mirrored.cache.put(RUNNING)
    mirrored.index_caught_up.set()
    await mirrored.completed.wait()
    assert mirrored.cache.get(JOB_ID) == RUNNING


async def test_a_job_that_is_submitted_again_after_its_deletion_stays(mirrored: Mirrored):
    again = msgspec.structs.replace(RUNNING, applied_sequence=9)
    mirrored.watch.write(RUNNING, 4)
    await mirrored.watch.until_taken(1)
    # A query reads the new record before the mirror hears of the deletion.
    mirrored.cache.put(again)
    mirrored.watch.remove(JOB_ID, 8)
    await mirrored.watch.until_taken(2)
    mirrored.index_caught_up.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert mirrored.cache.get(JOB_ID) == again
