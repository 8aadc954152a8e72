"""The shelf finds a job by the name and namespace that it has now."""

from __future__ import annotations

import msgspec

from muster_core.models import Job, JobRecord, Phase
from muster_status_tracker.shelf import Shelf

SPEC = Job(name="demo", namespace="ml", roles=())
SUBMITTED = JobRecord(job_id="j-1", applied_sequence=1, name="demo", submitted_at=1)
VALIDATED = msgspec.structs.replace(SUBMITTED, applied_sequence=2, job=SPEC)


def test_a_typed_job_moves_to_its_namespace_when_it_is_validated():
    shelf = Shelf()
    shelf.put(SUBMITTED)
    assert shelf.named("default", "demo") == SUBMITTED

    shelf.put(VALIDATED)
    assert shelf.named("ml", "demo") == VALIDATED
    assert shelf.named("default", "demo") is None


def test_the_name_of_a_job_that_is_gone_is_the_next_newest_ones():
    shelf = Shelf()
    older = msgspec.structs.replace(VALIDATED, job_id="j-0", submitted_at=0)
    for record in (SUBMITTED, older, VALIDATED):
        shelf.put(record)

    shelf.drop("j-1")
    assert shelf.named("ml", "demo") == older
    shelf.drop("j-0")
    assert shelf.named("ml", "demo") is None
    assert shelf.named("default", "demo") is None


def finished(number: int, at: int) -> JobRecord:
    return JobRecord(
        job_id=f"j-{number}", applied_sequence=9, phase=Phase.SUCCEEDED, submitted_at=number, finished_at=at
    )


def test_of_too_many_finished_jobs_those_go_first_that_ended_first():
    shelf = Shelf()
    for record in (SUBMITTED, finished(2, at=30), finished(3, at=10), finished(4, at=20)):
        shelf.put(record)

    assert shelf.finished_beyond(3) == []
    assert shelf.finished_beyond(1) == ["j-3", "j-4"]
    shelf.drop("j-3")
    assert shelf.finished_beyond(1) == ["j-4"]


def test_a_job_that_changes_after_its_end_is_counted_once():
    shelf = Shelf()
    ended = finished(2, at=30)
    shelf.put(ended)
    shelf.put(msgspec.structs.replace(ended, applied_sequence=10))

    assert shelf.finished_beyond(0) == ["j-2"]
    shelf.drop("j-2")
    assert shelf.finished_beyond(0) == []
