"""Measures of a run that can be counted on the fingers."""

from __future__ import annotations

from muster_core.events import Outcome
from muster_core.simulation import SECOND, JobStory, Moment
from muster_core.simulation.measures import completions, measures_of, utilisation_over_time


def story(name: str, submitted: int, finished: int | None, *, waited: int = 0, gpu: int = 0) -> JobStory:
    return JobStory(
        job_id=name,
        submitted_at=submitted * SECOND,
        finished_at=None if finished is None else finished * SECOND,
        outcome=None if finished is None else Outcome.SUCCEEDED,
        waited_us=waited * SECOND,
        gpu_us=gpu * SECOND,
    )


def moment(at: int, gpu: int, waiting: int = 0) -> Moment:
    return Moment(at * SECOND, gpu * 1000, 0, 0, waiting)


STORIES = [
    story("a", 0, 10, gpu=40),
    story("b", 10, 40, waited=20, gpu=60),
    story("c", 20, 40, waited=10),
    story("never", 5, None),
]


def test_measures() -> None:
    measures = measures_of(STORIES, [moment(0, 4), moment(10, 0, waiting=2)], gpus=4000)
    assert (measures.jobs, measures.finished, measures.unfinished) == (4, 3, 1)
    assert (measures.completion.mean, measures.completion.median, measures.completion.p99) == (20, 20, 30)
    assert (measures.wait.mean, measures.wait.most) == (10, 20)
    assert measures.makespan_s == 40
    assert measures.gpu_hours == 100 / 3600
    assert measures.utilisation == 100 / (4 * 40)
    assert measures.most_waiting == 2


def test_nothing_measures_nothing() -> None:
    measures = measures_of([], [], gpus=0)
    assert (measures.jobs, measures.completion.mean, measures.utilisation) == (0, 0, 0)


def test_completions_are_in_order() -> None:
    assert completions(STORIES) == [10, 20, 30]


def test_utilisation_is_the_mean_between_two_points() -> None:
    moments = [moment(0, 4), moment(10, 2), moment(15, 0), moment(20, 0)]
    assert utilisation_over_time(moments, gpus=4000, points=2) == [(10, 1.0), (20, 0.25)]
    assert utilisation_over_time(moments, gpus=4000, points=4) == [(5, 1), (10, 1), (15, 0.5), (20, 0)]
    assert utilisation_over_time([], gpus=4000, points=4) == []
