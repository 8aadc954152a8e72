"""Lookups by name and namespace, and retention."""

from __future__ import annotations

import msgspec

from muster_core.models import Job, JobRecord, Phase
from muster_status_tracker.records import RecordCache

SPEC = Job(name="demo", namespace="ml", roles=())
SUBMITTED = JobRecord(job_id="j-1", applied_sequence=1, name="demo", submitted_at=1)
VALIDATED = msgspec.structs.replace(SUBMITTED, applied_sequence=2, job=SPEC)


def test_a_typed_job_gets_its_namespace_at_its_validation():
    cache = RecordCache()
    cache.put(SUBMITTED)
    assert cache.named("default", "demo") == SUBMITTED

    cache.put(VALIDATED)
    assert cache.named("ml", "demo") == VALIDATED
    assert cache.named("default", "demo") is None


def test_the_name_of_a_deleted_job_resolves_to_the_next_newest():
    cache = RecordCache()
    older = msgspec.structs.replace(VALIDATED, job_id="j-0", submitted_at=0)
    for record in (SUBMITTED, older, VALIDATED):
        cache.put(record)

    cache.drop("j-1")
    assert cache.named("ml", "demo") == older
    cache.drop("j-0")
    assert cache.named("ml", "demo") is None
    assert cache.named("default", "demo") is None


def finished(number: int, at: int) -> JobRecord:
    return JobRecord(
        job_id=f"j-{number}", applied_sequence=9, phase=Phase.SUCCEEDED, submitted_at=number, finished_at=at
    )


def test_retention_removes_the_oldest_ended_jobs():
    cache = RecordCache()
    for record in (SUBMITTED, finished(2, at=30), finished(3, at=10), finished(4, at=20)):
        cache.put(record)

    assert cache.finished_beyond(3) == []
    assert cache.finished_beyond(1) == ["j-3", "j-4"]
    cache.drop("j-3")
    assert cache.finished_beyond(1) == ["j-4"]


def test_a_job_that_changes_after_its_end_counts_once_for_retention():
    cache = RecordCache()
    ended = finished(2, at=30)
    cache.put(ended)
    cache.put(msgspec.structs.replace(ended, applied_sequence=10))

    assert cache.finished_beyond(0) == ["j-2"]
    cache.drop("j-2")
    assert cache.finished_beyond(0) == []
