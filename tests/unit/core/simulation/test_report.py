"""Measures of a small simulation."""

from __future__ import annotations

from muster_core.events import Outcome
from muster_core.simulation import (
    SECOND,
    JobTimeline,
    PoolSample,
    completions,
    measures_of,
    utilisation_over_time,
)


def timeline(
    name: str, submitted: int, finished: int | None, *, waited: int = 0, gpu: int = 0
) -> JobTimeline:
    return JobTimeline(
        job_id=name,
        submitted_at=submitted * SECOND,
        finished_at=None if finished is None else finished * SECOND,
        outcome=None if finished is None else Outcome.SUCCEEDED,
        waited_us=waited * SECOND,
        gpu_us=gpu * SECOND,
    )


def sample(at: int, gpu: int, waiting: int = 0) -> PoolSample:
    return PoolSample(at * SECOND, gpu * 1000, 0, 0, waiting)


TIMELINES = [
    timeline("a", 0, 10, gpu=40),
    timeline("b", 10, 40, waited=20, gpu=60),
    timeline("c", 20, 40, waited=10),
    timeline("never", 5, None),
]


def test_measures_of_a_simulation() -> None:
    measures = measures_of(TIMELINES, [sample(0, 4), sample(10, 0, waiting=2)], gpus=4000)
    assert (measures.jobs, measures.finished, measures.unfinished) == (4, 3, 1)
    assert (measures.completion.mean, measures.completion.median, measures.completion.p99) == (20, 20, 30)
    assert (measures.wait.mean, measures.wait.max) == (10, 20)
    assert measures.makespan_s == 40
    assert measures.gpu_hours == 100 / 3600
    assert measures.utilisation == 100 / (4 * 40)
    assert measures.max_waiting == 2


def test_a_simulation_without_jobs_has_measures_of_zero() -> None:
    measures = measures_of([], [], gpus=0)
    assert (measures.jobs, measures.completion.mean, measures.utilisation) == (0, 0, 0)


def test_completion_times_ascend() -> None:
    assert completions(TIMELINES) == [10, 20, 30]


def test_utilisation_is_the_mean_since_the_previous_point() -> None:
    samples = [sample(0, 4), sample(10, 2), sample(15, 0), sample(20, 0)]
    assert utilisation_over_time(samples, gpus=4000, points=2) == [(10, 1.0), (20, 0.25)]
    assert utilisation_over_time(samples, gpus=4000, points=4) == [(5, 1), (10, 1), (15, 0.5), (20, 0)]
    assert utilisation_over_time([], gpus=4000, points=4) == []
