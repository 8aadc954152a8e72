"""Progress reports: the step of a job, and its speed at each size."""

from __future__ import annotations

import msgspec

from muster_core.events import ProgressReported
from muster_core.lifecycle.progress import with_progress
from muster_core.models import Job, JobRecord, Phase, ReplicaRecord, ReplicaState, Throughput

SECOND = 1_000_000


def _running(workers: int, *, generation: int = 1) -> JobRecord:
    """A job of a parameter server and some workers."""
    keys = [("ps", 0), *(("worker", index) for index in range(workers))]
    replicas = tuple(
        ReplicaRecord(role=role, index=index, attempt=1, generation=1, node="n1", state=ReplicaState.RUNNING)
        for role, index in keys
    )
    return JobRecord(
        job_id="a",
        applied_sequence=1,
        phase=Phase.RUNNING,
        job=Job(name="a", roles=()),
        attempt=1,
        generation=generation,
        replicas=replicas,
    )


def _with_progress(
    record: JobRecord, step: int, at_s: float, *, index: int = 0, attempt: int = 1, **metrics: str
) -> JobRecord:
    at = int(at_s * SECOND)
    event = ProgressReported(role="worker", index=index, attempt=attempt, step=step, at=at, metrics=metrics)
    return with_progress(record, event, at + SECOND)


def test_the_last_command_counts() -> None:
    record = _with_progress(_with_progress(_running(2), 10, 1), 30, 2, loss="0.5")
    assert record.progress is not None
    assert (record.progress.step, record.progress.metrics) == (30, {"loss": "0.5"})


def test_two_reports_measure_the_speed_at_their_size() -> None:
    record = _with_progress(_with_progress(_running(2), 10, 1), 30, 3)
    assert record.throughput == (Throughput(workers=2, steps=20, micros=2 * SECOND),)
    record = _with_progress(record, 60, 5)
    assert record.throughput == (Throughput(workers=2, steps=50, micros=4 * SECOND),)


def test_the_first_report_of_a_generation_only_starts_a_measurement() -> None:
    record = _with_progress(_with_progress(_running(2), 10, 1), 30, 3)
    grown = msgspec.structs.replace(
        _running(4, generation=2), progress=record.progress, throughput=record.throughput
    )
    grown = _with_progress(grown, 31, 60)
    assert [one.workers for one in grown.throughput] == [2]
    grown = _with_progress(grown, 131, 62)
    assert grown.throughput[1] == Throughput(workers=4, steps=100, micros=2 * SECOND)


def test_one_replica_reports_until_it_is_silent_for_a_minute() -> None:
    record = _with_progress(_running(2), 10, 1)
    assert _with_progress(record, 12, 2, index=1) == record
    other = _with_progress(record, 12, 62, index=1)
    assert other.progress is not None
    assert other.progress.index == 1
    assert other.throughput == ()


def test_reports_of_removed_replicas_are_ignored() -> None:
    record = _running(2)
    assert _with_progress(record, 10, 1, index=7) == record
    assert _with_progress(record, 10, 1, attempt=2) == record


def test_late_and_duplicate_reports_are_ignored() -> None:
    record = _with_progress(_running(2), 10, 5)
    assert _with_progress(record, 9, 4) == record
    assert _with_progress(record, 10, 5) == record


def test_a_return_to_a_checkpoint_is_not_measured() -> None:
    record = _with_progress(_with_progress(_running(2), 100, 1), 40, 3)
    assert record.throughput == ()
    assert record.progress is not None
    assert record.progress.step == 40


def test_old_measurements_of_a_size_lose_weight() -> None:
    record = _running(2)
    for minute in range(21):
        record = _with_progress(record, minute * 60, minute * 60)
    for minute in range(1, 21):
        record = _with_progress(record, 1200 + minute * 600, 1200 + minute * 60)
    (known,) = record.throughput
    assert known.micros == 600 * SECOND
    assert known.steps > 600 * 8


def test_measurements_of_16_sizes_are_kept() -> None:
    record = _running(1)
    for size in range(1, 25):
        record = msgspec.structs.replace(
            _running(size, generation=size), progress=record.progress, throughput=record.throughput
        )
        record = _with_progress(_with_progress(record, 10 * size, 10 * size), 10 * size + 5, 10 * size + 5)
    assert len(record.throughput) == 16
    assert record.throughput[-1].workers == 24
