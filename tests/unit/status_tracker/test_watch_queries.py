"""Watches of records: the events that a client gets, for one job and for a namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest
from msgspec.structs import replace

from muster_core.models import Job, JobRecord, Phase, Role, Template
from muster_rpc.calls import ServerContext
from muster_rpc.internal.v1 import queries_pb2 as pb
from muster_rpc.v1 import job_service_pb2
from muster_status_tracker.ports import ReadProgress
from muster_status_tracker.queries import RecordServicer
from muster_status_tracker.records import RecordCache

ADDED = job_service_pb2.WATCH_EVENT_TYPE_ADDED
MODIFIED = job_service_pb2.WATCH_EVENT_TYPE_MODIFIED
DELETED = job_service_pb2.WATCH_EVENT_TYPE_DELETED
SYNCED = job_service_pb2.WATCH_EVENT_TYPE_SYNCED

Event = tuple[job_service_pb2.WatchEventType.ValueType, str, int]


class Call:
    """The context of a call in this process."""

    async def send_initial_metadata(self, metadata: object) -> None:
        """Ignore the metadata."""


CALL = cast("ServerContext", Call())


def record(job_id: str, revision: int, namespace: str = "default") -> JobRecord:
    role = Role(name="worker", replicas=1, min=1, max=1, template=Template())
    job = Job(name=job_id, namespace=namespace, roles=(role,))
    return JobRecord(
        job_id=job_id, applied_sequence=revision, name=job_id, job=job, phase=Phase.QUEUED, submitted_at=1
    )


@pytest.fixture
def cache() -> RecordCache:
    return RecordCache()


@pytest.fixture
def servicer(cache: RecordCache) -> RecordServicer:
    return RecordServicer(
        cache=cache, progress=cast("ReadProgress", None), queue_of=lambda _: "default", read_wait_s=0
    )


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
    cache.drop("a")

    assert [event async for event in stream] == [(MODIFIED, "a", 3), (DELETED, "a", 3)]
