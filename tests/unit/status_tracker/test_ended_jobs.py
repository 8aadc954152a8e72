"""The index of ended jobs: selection and order of lists, expiry, and writes that arrive in either order."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from muster_core.lifecycle import Retention
from muster_core.models import Job, JobRecord, Phase
from muster_events.history import EndedJobSummary, summary_in
from muster_events.subjects import job_id_of, partition_of
from muster_status_tracker.ended_jobs import EndedJobs, Selection
from muster_status_tracker.records import RecordCache

IDS = sorted((job_id_of(str(number)) for number in range(40)), key=partition_of)[:3]
"""Three jobs of one partition."""

PARTITION = partition_of(IDS[0])


def ended(
    number: int, *, at: int = 0, namespace: str = "default", phase: Phase = Phase.SUCCEEDED
) -> JobRecord:
    return JobRecord(
        job_id=IDS[number],
        applied_sequence=10 + number,
        name="demo",
        job=Job(name="demo", namespace=namespace, queue="gold" if namespace == "ml" else "", roles=()),
        phase=phase,
        submitted_at=number,
        finished_at=at or number,
    )


def index_of(*records: JobRecord, retention: Retention | None = None) -> EndedJobs:
    jobs = EndedJobs(retention)
    for revision, record in enumerate(records, start=1):
        assert jobs.add(EndedJobSummary.of(record), revision)
    return jobs


def test_a_summary_is_read_from_the_headers_of_its_record() -> None:
    summary = EndedJobSummary.of(ended(1, namespace="ml"))

    assert summary_in(summary.headers()) == summary
    assert summary_in({}) is None
    assert summary_in({"Muster-Job": "[1"}) is None


def test_pages_are_newest_first_and_continue_after_a_position() -> None:
    jobs = index_of(ended(1), ended(0), ended(2))

    first = jobs.newest_first(Selection(), before=None, most=2)
    assert first == [(2, IDS[2]), (1, IDS[1])]
    assert jobs.newest_first(Selection(), before=first[-1], most=2) == [(0, IDS[0])]


@pytest.mark.parametrize(
    ("selection", "selected"),
    [
        (Selection(), [2, 1, 0]),
        (Selection(namespace="ml"), [1]),
        (Selection(phases=[Phase.FAILED]), [2]),
        (Selection(phases=[Phase.FAILED, Phase.SUCCEEDED], namespace="default"), [2, 0]),
        (Selection(queues=[("ml", "gold")]), [1]),
        (Selection(queues=[]), []),
        (Selection(built_by="j-build"), []),
    ],
)
def test_a_list_has_what_its_selection_selects(selection: Selection, selected: list[int]) -> None:
    jobs = index_of(ended(0), ended(1, namespace="ml"), ended(2, phase=Phase.FAILED))

    found = jobs.newest_first(selection, before=None, most=10)

    assert [job_id for _, job_id in found] == [IDS[number] for number in selected]
    assert jobs.count(selection) == len(selected)


def test_a_job_is_counted_in_its_last_phase() -> None:
    jobs = index_of(ended(0), ended(1))
    jobs.add(EndedJobSummary.of(replace(ended(0), applied_sequence=30, phase=Phase.FAILED)), 3)

    assert [jobs.in_phase(phase) for phase in (Phase.SUCCEEDED, Phase.FAILED)] == [1, 1]
    assert len(jobs) == 2


def test_the_oldest_ends_beyond_the_limit_are_deleted() -> None:
    jobs = index_of(ended(0, at=30), ended(1, at=10), ended(2, at=20))

    assert jobs.beyond(PARTITION, 3) == []
    assert jobs.beyond(PARTITION, 1) == [IDS[1], IDS[2]]
    assert jobs.beyond(PARTITION + 1, 1) == []


def test_a_job_expires_after_the_time_to_live_of_the_platform() -> None:
    jobs = index_of(ended(0, at=10), ended(1, at=20), retention=Retention(ttl_s=1))

    assert jobs.expired(PARTITION, 1_000_009) == []
    assert jobs.expired(PARTITION, 1_000_010) == [IDS[0]]
    assert jobs.expired(PARTITION, 1_000_020) == [IDS[0], IDS[1]]
    assert index_of(ended(0, at=10)).expired(PARTITION, 1 << 60) == []


def test_an_older_write_that_is_reported_after_a_removal_changes_nothing() -> None:
    jobs = index_of(ended(0))
    assert jobs.remove(IDS[0], 5) == "default"

    assert not jobs.add(EndedJobSummary.of(ended(0)), 1)
    assert jobs.confirm_removal(IDS[0], 5) is None
    assert IDS[0] not in jobs

    assert jobs.add(EndedJobSummary.of(ended(0)), 6)
    assert IDS[0] in jobs


def test_an_archived_job_is_found_by_its_name_and_no_longer_live() -> None:
    cache = RecordCache()
    cache.put(ended(0))
    cache.archive(EndedJobSummary.of(ended(0)), 1, is_news=False)

    assert cache.get(IDS[0]) is None
    assert cache.named("default", "demo") == IDS[0]
    assert cache.applied_sequence(IDS[0]) == 10
    cache.put(replace(ended(0), applied_sequence=9))
    assert len(cache) == 0


def test_a_job_that_changes_after_its_end_is_in_one_place() -> None:
    cache = RecordCache()
    cache.archive(EndedJobSummary.of(ended(0)), 1, is_news=False)
    cache.put(replace(ended(0), applied_sequence=11))
    assert (len(cache), len(cache.ended)) == (1, 0)

    # The watch reports the earlier write late.
    cache.archive(EndedJobSummary.of(ended(0)), 1, is_news=True)
    assert (len(cache), len(cache.ended)) == (1, 0)
    cache.archive(EndedJobSummary.of(replace(ended(0), applied_sequence=11)), 2, is_news=False)
    assert (len(cache), len(cache.ended)) == (0, 1)
