"""The pace of pull requests: a few at once, then one for each tick."""

from itertools import pairwise

import pytest

from muster_bus.pull_subscription import PullPacer

TICK_S = 0.025


def turns(pace: PullPacer, wanted: list[float]) -> list[float]:
    """Return when each read happens that is wanted at these times at the earliest."""
    taken: list[float] = []
    next_turn = 0.0
    for instant in wanted:
        taken.append(max(instant, next_turn))
        next_turn = pace.spend(taken[-1])
    return taken


def test_infrequent_reads_never_wait() -> None:
    wanted = [1000 + n * 2 * TICK_S for n in range(100)]

    assert turns(PullPacer(burst=3, tick_s=TICK_S), wanted) == wanted


def test_frequent_reads_wait_for_the_next_tick_after_a_burst() -> None:
    taken = turns(PullPacer(burst=3, tick_s=TICK_S), [1000.0] * 50)

    assert taken[:3] == [1000.0] * 3
    assert all(0 < later - earlier <= TICK_S * 1.001 for earlier, later in pairwise(taken[3:]))
    assert taken[-1] - taken[3] == pytest.approx(46 * TICK_S)


def test_a_pause_restores_the_burst() -> None:
    pace = PullPacer(burst=3, tick_s=TICK_S)
    turns(pace, [1000.0] * 10)

    assert turns(pace, [2000.0] * 3) == [2000.0] * 3


def test_readers_of_one_process_wake_at_the_same_ticks() -> None:
    one, other = PullPacer(burst=1, tick_s=TICK_S), PullPacer(burst=1, tick_s=TICK_S)

    ticks_between = (other.spend(1000.3) - one.spend(1000.0)) / TICK_S

    assert ticks_between == pytest.approx(round(ticks_between), abs=1e-6)
