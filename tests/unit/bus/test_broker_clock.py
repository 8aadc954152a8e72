"""The clock that follows the broker's: steps are ridden out, so that nothing becomes old at once."""

from hypothesis import given, strategies as st

from muster_bus.broker_clock import SlewedClock

S = 1_000_000
ERROR = 1_000.0


def measured(clock: SlewedClock, offset_s: float, at_s: float) -> float:
    return clock.measured(offset_s * S, at_s * S, error=ERROR) / S


def now(clock: SlewedClock, at_s: float) -> float:
    time = clock.now(at_s * S)
    assert time is not None
    return time / S


def test_the_time_is_unknown_before_the_first_measurement() -> None:
    clock = SlewedClock()
    assert clock.now(0) is None
    measured(clock, 1000, 5)
    assert now(clock, 7) == 1007


def test_a_step_forward_is_followed_slowly() -> None:
    clock = SlewedClock()
    measured(clock, 1000, 0)
    assert measured(clock, 1600, 10) == 600
    assert now(clock, 10) == 1010
    assert now(clock, 110) == 1120
    # Later measurements of the same clock are no steps, and change nothing.
    assert measured(clock, 1600, 110) == 0
    assert now(clock, 110) == 1120
    assert now(clock, 7000) == 8600


def test_a_step_backward_is_followed_at_once() -> None:
    clock = SlewedClock()
    measured(clock, 1000, 0)
    assert measured(clock, 400, 10) == -600
    assert now(clock, 10) == 410


def test_a_step_forth_and_back_leaves_no_trace() -> None:
    clock = SlewedClock()
    measured(clock, 1000, 0)
    measured(clock, 1600, 10)
    assert measured(clock, 1000, 12) == -600
    assert now(clock, 13) == 1013


@given(st.lists(st.tuples(st.floats(-5000, 5000), st.floats(0.1, 100)), min_size=1, max_size=20))
def test_an_age_never_grows_faster_than_the_slew_and_the_clock_is_never_ahead(
    steps: list[tuple[float, float]],
) -> None:
    clock = SlewedClock()
    offset, at = 0.0, 0.0
    measured(clock, offset, at)
    before = now(clock, at)
    for step, pause in steps:
        offset, at = offset + step, at + pause
        reached = now(clock, at)
        assert reached - before <= pause * 1.1 + 0.001
        measured(clock, offset, at)
        before = now(clock, at)
        assert before <= min(reached, offset + at) + 0.003
