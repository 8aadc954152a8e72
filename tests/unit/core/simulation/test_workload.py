"""The progress of work with a changing number of workers, and with lost attempts."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from muster_core.simulation import SECOND, WorkProgress, endless, fixed, scalable, scalable_duration


def test_more_workers_are_faster_by_amdahls_law() -> None:
    progress = WorkProgress(scalable(100, serial=500))
    progress.set_workers(1, 0)
    assert progress.finished_at() == 100 * SECOND
    progress.set_workers(3, 50 * SECOND)
    assert progress.finished_at() == 50 * SECOND + 50 * SECOND * 2 // 3 + 1


def test_fixed_work_takes_equally_long_with_any_number_of_workers() -> None:
    progress = WorkProgress(fixed(10))
    progress.set_workers(7, 0)
    assert progress.finished_at() == 10 * SECOND


def test_work_by_duration_takes_that_long_with_the_same_number_of_workers() -> None:
    progress = WorkProgress(scalable_duration(60, 8))
    progress.set_workers(8, 0)
    assert progress.finished_at() == pytest.approx(60 * SECOND, abs=2)


def test_without_workers_and_for_endless_work_there_is_no_end() -> None:
    progress = WorkProgress(fixed(10))
    assert progress.finished_at() is None
    service = WorkProgress(endless())
    service.set_workers(4, 0)
    assert service.finished_at() is None
    assert not service.done


def test_an_ended_attempt_loses_the_work_since_the_last_checkpoint() -> None:
    progress = WorkProgress(fixed(100), checkpoint_us=30 * SECOND)
    progress.set_workers(1, 0)
    progress.set_workers(0, 40 * SECOND)
    progress.end_attempt(50 * SECOND)
    progress.end_attempt(60 * SECOND)
    progress.set_workers(1, 70 * SECOND)
    assert progress.finished_at() == 140 * SECOND
    assert progress.steps_at(71 * SECOND) == 31_000


@given(
    st.integers(0, 1000),
    st.lists(st.tuples(st.integers(0, 8), st.integers(1, 10**7)), min_size=1, max_size=20),
)
def test_work_is_done_exactly_at_its_predicted_end(serial: int, steps: list[tuple[int, int]]) -> None:
    progress = WorkProgress(scalable(30, serial=serial))
    now = 0
    for workers, after in steps:
        progress.set_workers(workers, now)
        end = progress.finished_at()
        if end is not None and end <= now + after:
            progress.set_workers(0, end - 1)
            assert not progress.done or end == now
            progress.set_workers(workers, end - 1)
            progress.set_workers(0, progress.finished_at() or end)
            assert progress.done
            return
        now += after
