"""Watches of records: the events that a client gets, for one job and for a namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import grpc
import pytest
from msgspec.structs import replace

from muster_core.models import Job, JobRecord, Phase, Role, Template
from muster_rpc.calls import ServerContext
from muster_rpc.internal.v1 import queries_pb2 as pb
from muster_rpc.v1 import job_service_pb2
from muster_status_tracker.queries import RecordServicer
from muster_status_tracker.records import RecordCache

ADDED = job_service_pb2.WATCH_EVENT_TYPE_ADDED
MODIFIED = job_service_pb2.WATCH_EVENT_TYPE_MODIFIED
DELETED = job_service_pb2.WATCH_EVENT_TYPE_DELETED
SYNCED = job_service_pb2.WATCH_EVENT_TYPE_SYNCED

Event = tuple[job_service_pb2.WatchEventType.ValueType, str, int]


class Aborted(Exception):
    """A call was aborted with ``code``."""

    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__(code)
        self.code = code


class Call:
    """The context of a call in this process."""

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        """Raise ``Aborted``."""
        del details
        raise Aborted(code)

    async def send_initial_metadata(self, metadata: object) -> None:
        """Ignore the metadata."""


CALL = cast("ServerContext", Call())


def record(job_id: str, revision: int, namespace: str = "default") -> JobRecord:
    role = Role(name="worker", replicas=1, min=1, max=1, template=Template())
    job = Job(name=job_id, namespace=namespace, roles=(role,))
    return JobRecord(
        job_id=job_id, applied_sequence=revision, name=job_id, job=job, phase=Phase.QUEUED, submitted_at=1
    )


async def no_record(job_id: str) -> JobRecord | None:
    raise AssertionError(f"{job_id} has not ended")


@pytest.fixture
def cache() -> RecordCache:
    return RecordCache()


class Progress:
    """An instance that owns all jobs; ``last`` are the sequences of the last events of those that it does not."""

    def __init__(self) -> None:
        self.complete = True
        self.last: dict[str, int] = {}
        self.position = 0

    async def wait_complete(self, within_s: float) -> bool:
        return self.is_complete()

    def is_complete(self) -> bool:
        return self.complete

    def is_own(self, job_id: str) -> bool:
        return job_id not in self.last

    async def reached(self, sequence: int, wait_s: float) -> bool:
        raise AssertionError

    async def last_of(self, job_id: str) -> int:
        return self.last[job_id]

    async def handled(self, job_id: str, sequence: int) -> bool:
        return self.position >= sequence

    async def deleted(self, job_id: str) -> bool:
        return False


@pytest.fixture
def progress() -> Progress:
    return Progress()


@pytest.fixture
def servicer(cache: RecordCache, progress: Progress) -> RecordServicer:
    return RecordServicer(
        cache=cache, stored=no_record, progress=progress, queue_of=lambda _: "default", read_wait_s=0
    )


async def test_no_query_is_answered_from_records_that_may_be_outdated(
    servicer: RecordServicer, cache: RecordCache, progress: Progress
) -> None:
    cache.put(record("a", 1))
    progress.complete = False
    ref = job_service_pb2.JobRef(job_id="a")
    for answer in (
        servicer.GetRecord(pb.GetRecordRequest(job=ref), CALL),
        servicer.ListRecords(pb.ListRecordsRequest(namespace="-"), CALL),
        anext(servicer.WatchRecord(pb.WatchRecordRequest(job=ref), CALL)),
        anext(servicer.WatchRecords(pb.WatchRecordsRequest(), CALL)),
    ):
        with pytest.raises(Aborted) as aborted:
            await answer
        assert aborted.value.code is grpc.StatusCode.UNAVAILABLE


async def test_a_record_of_another_instance_is_answered_only_with_its_last_event(
    servicer: RecordServicer, cache: RecordCache, progress: Progress
) -> None:
    cache.put(record("a", 3))
    request = pb.GetRecordRequest(job=job_service_pb2.JobRef(job_id="a"))
    progress.last["a"] = 4
    with pytest.raises(Aborted):
        await servicer.GetRecord(request, CALL)
    cache.put(record("a", 4))
    assert (await servicer.GetRecord(request, CALL)).job.job_id == "a"


async def test_a_job_whose_last_event_cannot_be_read_is_answered_once_that_is_handled(
    servicer: RecordServicer, cache: RecordCache, progress: Progress
) -> None:
    cache.put(record("a", 3))
    request = pb.GetRecordRequest(job=job_service_pb2.JobRef(job_id="a", min_revision=9))
    progress.last["a"] = 4
    progress.position = 3
    with pytest.raises(Aborted):
        await servicer.GetRecord(request, CALL)
    progress.position = 4
    assert (await servicer.GetRecord(request, CALL)).job.revision == 3


def watch(servicer: RecordServicer, namespace: str = "", after: int = 0) -> AsyncIterator[Event]:
    request = pb.WatchRecordsRequest(namespace=namespace, after_revision=after)
    return events(servicer.WatchRecords(request, CALL))


async def events(
    answers: AsyncIterator[pb.WatchRecordsResponse] | AsyncIterator[pb.WatchRecordResponse],
) -> AsyncIterator[Event]:
    async for answer in answers:
        yield answer.type, answer.job.job_id, answer.revision


async def take(stream: AsyncIterator[Event], count: int) -> list[Event]:
    return [await anext(stream) for _ in range(count)]


async def test_a_watch_sends_what_exists_then_synced_then_changes(
    servicer: RecordServicer, cache: RecordCache
) -> None:
    cache.put(record("b", 2))
    cache.put(record("a", 1))
    stream = watch(servicer)
    assert await take(stream, 3) == [(ADDED, "a", 1), (ADDED, "b", 2), (SYNCED, "", 2)]

    cache.put(record("a", 3))
    cache.put(record("c", 4))
    cache.drop("b")

    assert await take(stream, 3) == [(MODIFIED, "a", 3), (ADDED, "c", 4), (DELETED, "b", 4)]


async def test_a_watch_that_continues_sends_only_what_is_newer(
    servicer: RecordServicer, cache: RecordCache
) -> None:
    cache.put(record("a", 1))
    cache.put(record("b", 2))
    stream = watch(servicer, after=1)
    assert await take(stream, 2) == [(ADDED, "b", 2), (SYNCED, "", 2)]

    cache.drop("a")

    assert await anext(stream) == (DELETED, "a", 2)


@pytest.mark.parametrize(
    ("namespace", "seen"), [("", ["a"]), ("default", ["a"]), ("ml", ["b"]), ("-", ["a", "b"])]
)
async def test_an_empty_namespace_is_the_default_one_and_a_dash_is_all(
    servicer: RecordServicer, cache: RecordCache, namespace: str, seen: list[str]
) -> None:
    cache.put(record("a", 1))
    cache.put(record("b", 2, "ml"))

    found = await take(watch(servicer, namespace), len(seen) + 1)
    listed = await servicer.ListRecords(pb.ListRecordsRequest(namespace=namespace), CALL)

    assert found == [*((ADDED, one, cache.get(one).applied_sequence) for one in seen), (SYNCED, "", 2)]  # pyright: ignore[reportOptionalMemberAccess] (it was put)
    assert sorted(job.job_id for job in listed.jobs) == seen
    assert (listed.total_size, listed.revision) == (len(seen), 2)


async def test_a_job_that_turns_out_to_be_in_another_namespace_leaves_the_watch(
    servicer: RecordServicer, cache: RecordCache
) -> None:
    cache.put(replace(record("a", 1), job=None, phase=Phase.SUBMITTED))
    stream = watch(servicer)
    assert await take(stream, 2) == [(ADDED, "a", 1), (SYNCED, "", 1)]

    cache.put(record("a", 2, "ml"))

    assert await anext(stream) == (DELETED, "a", 2)


async def test_a_watch_of_one_job_ends_when_it_is_deleted(
    servicer: RecordServicer, cache: RecordCache
) -> None:
    cache.put(record("a", 1))
    ref = job_service_pb2.JobRef(job_id="a")
    stream = events(servicer.WatchRecord(pb.WatchRecordRequest(job=ref), CALL))
    assert await take(stream, 2) == [(ADDED, "a", 1), (SYNCED, "", 1)]

    cache.put(record("b", 2))
    cache.put(record("a", 3))
    assert await anext(stream) == (MODIFIED, "a", 3)
    cache.drop("a")

    assert [event async for event in stream] == [(DELETED, "a", 3)]


async def test_a_watch_that_is_read_late_gets_the_latest_state_of_each_job(
    servicer: RecordServicer, cache: RecordCache
) -> None:
    cache.put(record("a", 1))
    stream = watch(servicer)
    assert await take(stream, 2) == [(ADDED, "a", 1), (SYNCED, "", 1)]

    for revision in (2, 4, 6):
        cache.put(record("a", revision))
        cache.put(record("b", revision + 1))

    assert await take(stream, 2) == [(MODIFIED, "a", 6), (ADDED, "b", 7)]


async def test_a_watch_that_is_read_too_late_is_aborted() -> None:
    cache = RecordCache(kept_changes=4)
    slow = RecordServicer(
        cache=cache, stored=no_record, progress=Progress(), queue_of=lambda _: "default", read_wait_s=0
    )
    stream, other = watch(slow), watch(slow)
    assert await anext(stream) == await anext(other) == (SYNCED, "", 0)

    for revision in range(1, 5):
        cache.put(record(f"{revision}", revision))
    assert [job_id for _, job_id, _ in await take(other, 4)] == ["1", "2", "3", "4"]
    cache.put(record("5", 5))

    assert await anext(other) == (ADDED, "5", 5)
    with pytest.raises(Aborted) as aborted:
        await anext(stream)
    assert aborted.value.code is grpc.StatusCode.ABORTED
