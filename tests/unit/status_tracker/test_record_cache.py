"""Lookups by name and namespace."""

from __future__ import annotations

import msgspec

from muster_core.models import Job, JobRecord
from muster_status_tracker.records import RecordCache

SPEC = Job(name="demo", namespace="ml", roles=())
SUBMITTED = JobRecord(job_id="j-1", applied_sequence=1, name="demo", submitted_at=1)
VALIDATED = msgspec.structs.replace(SUBMITTED, applied_sequence=2, job=SPEC)


def test_a_typed_job_gets_its_namespace_at_its_validation():
    cache = RecordCache()
    cache.put(SUBMITTED)
    assert cache.named("default", "demo") == SUBMITTED.job_id

    cache.put(VALIDATED)
    assert cache.named("ml", "demo") == VALIDATED.job_id
    assert cache.named("default", "demo") is None


def test_the_name_of_a_deleted_job_resolves_to_the_next_newest():
    cache = RecordCache()
    older = msgspec.structs.replace(VALIDATED, job_id="j-0", submitted_at=0)
    for record in (SUBMITTED, older, VALIDATED):
        cache.put(record)

    cache.drop("j-1")
    assert cache.named("ml", "demo") == older.job_id
    cache.drop("j-0")
    assert cache.named("ml", "demo") is None
    assert cache.named("default", "demo") is None
