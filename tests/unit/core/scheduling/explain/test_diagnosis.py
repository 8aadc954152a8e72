"""Reasons are looked at now and then; what is told is what is so by then, and nothing is missed."""

from __future__ import annotations

from muster_core.models import ReplicaState, Resources
from muster_core.scheduling import Wait
from muster_testing.pool import ScenarioPool

LOOK_S = 0.01


def waits(pool: ScenarioPool) -> dict[str, int]:
    """Who is told to wait now, and how many GPUs are said to be free."""
    told = [one for one in pool.decide() if isinstance(one, Wait)]
    return {one.job_id: one.reason.numbers["free.gpu"] // 1000 for one in told}


def test_a_new_job_of_a_shape_that_was_just_looked_at_is_told_at_once(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 9, floor=9))
    assert waits(pool) == {"a": 8}
    pool.after(LOOK_S / 2)
    pool.submit(pool.job("b", 9, floor=9))
    assert waits(pool) == {"b": 8}


def test_numbers_that_changed_within_a_moment_are_told_when_they_are_looked_at_again(
    pool: ScenarioPool,
) -> None:
    pool.submit(pool.job("a", 9, floor=9))
    assert waits(pool) == {"a": 8}
    pool.after(2)
    pool.submit(pool.job("b", 1, servers=0))
    assert waits(pool) == {"a": 7}
    pool.after(LOOK_S / 4)
    pool.report("b", ReplicaState.RUNNING)
    pool.report("b", ReplicaState.EXITED, exit_code=0)
    assert waits(pool) == {}
    told: dict[str, int] = {}
    while not told and (due := pool.state.next_wake(pool.now)) is not None:
        pool.now = due
        told = waits(pool)
    assert told == {"a": 8}


def test_a_pool_in_which_nothing_changes_is_not_looked_at_again(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 9, floor=9))
    pool.submit(pool.job("b", 10, floor=10, worker=Resources(cpu=1000, gpu=2000)))
    pool.settle()
    pool.after(29)
    assert waits(pool) == {}
    due = pool.state.next_wake(pool.now)
    # The one thing left to come is that somebody has waited too long.
    assert due is None or due >= pool.now + 1_000_000
