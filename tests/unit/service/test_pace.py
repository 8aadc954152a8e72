from itertools import pairwise

import pytest

from muster_bus._pace import Pace

TICK_S = 0.025


def turns(pace: Pace, wanted: list[float]) -> list[float]:
    """When each turn is taken, by one who wants it at these instants at the earliest."""
    taken: list[float] = []
    next_turn = 0.0
    for instant in wanted:
        taken.append(max(instant, next_turn))
        next_turn = pace.spend(taken[-1])
    return taken


def test_who_comes_seldom_never_waits() -> None:
    wanted = [1000 + n * 2 * TICK_S for n in range(100)]

    assert turns(Pace(turns=3, tick_s=TICK_S), wanted) == wanted


def test_who_comes_often_waits_for_the_next_tick_after_the_first_few() -> None:
    taken = turns(Pace(turns=3, tick_s=TICK_S), [1000.0] * 50)

    assert taken[:3] == [1000.0] * 3
    assert all(0 < later - earlier <= TICK_S * 1.001 for earlier, later in pairwise(taken[3:]))
    assert taken[-1] - taken[3] == pytest.approx(46 * TICK_S)


def test_a_rest_gives_turns_back() -> None:
    pace = Pace(turns=3, tick_s=TICK_S)
    turns(pace, [1000.0] * 10)

    assert turns(pace, [2000.0] * 3) == [2000.0] * 3


def test_readers_of_one_process_wake_at_the_same_ticks() -> None:
    one, other = Pace(turns=1, tick_s=TICK_S), Pace(turns=1, tick_s=TICK_S)

    assert one.spend(1000.001) == pytest.approx(other.spend(1000.002), abs=TICK_S * 1.001)
