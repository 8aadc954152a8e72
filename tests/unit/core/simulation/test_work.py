"""Work gets done, slower or faster, and some of it twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_core.simulation import SECOND, endless, fixed, scalable, taking
from muster_core.simulation.work import Progress


def test_amdahl() -> None:
    progress = Progress(scalable(100, serial=500))
    progress.work_with(1, 0)
    assert progress.finished_at() == 100 * SECOND
    progress.work_with(3, 50 * SECOND)
    assert progress.finished_at() == 50 * SECOND + 50 * SECOND * 2 // 3 + 1


def test_a_fixed_time_is_the_same_for_any_number() -> None:
    progress = Progress(fixed(10))
    progress.work_with(7, 0)
    assert progress.finished_at() == 10 * SECOND


def test_work_that_took_so_long_with_so_many_takes_so_long_with_as_many() -> None:
    progress = Progress(taking(60, 8))
    progress.work_with(8, 0)
    assert progress.finished_at() == pytest.approx(60 * SECOND, abs=2)


def test_nobody_finishes_nothing_and_the_endless_never_ends() -> None:
    progress = Progress(fixed(10))
    assert progress.finished_at() is None
    eternal = Progress(endless())
    eternal.work_with(4, 0)
    assert eternal.finished_at() is None
    assert not eternal.done


def test_what_no_checkpoint_holds_is_lost_and_no_more() -> None:
    progress = Progress(fixed(100), checkpoint_us=30 * SECOND)
    progress.work_with(1, 0)
    progress.work_with(0, 40 * SECOND)
    progress.end_attempt(50 * SECOND)
    progress.end_attempt(60 * SECOND)
    progress.work_with(1, 70 * SECOND)
    assert progress.finished_at() == 140 * SECOND
    assert progress.steps_at(71 * SECOND) == 31_000


@given(
    st.integers(0, 1000),
    st.lists(st.tuples(st.integers(0, 8), st.integers(1, 10**7)), min_size=1, max_size=20),
)
def test_it_is_done_exactly_when_it_was_said_to_be(serial: int, stretches: list[tuple[int, int]]) -> None:
    progress = Progress(scalable(30, serial=serial))
    now = 0
    for workers, after in stretches:
        progress.work_with(workers, now)
        end = progress.finished_at()
        if end is not None and end <= now + after:
            progress.work_with(0, end - 1)
            assert not progress.done or end == now
            progress.work_with(workers, end - 1)
            progress.work_with(0, progress.finished_at() or end)
            assert progress.done
            return
        now += after
