"""Diagnoses are repeated at intervals, and no change is missed."""

from __future__ import annotations

from muster_core.models import ReplicaState, Resources
from muster_core.scheduling import Wait
from muster_testing.pool import ScenarioPool

INTERVAL_S = 0.01


def waits(pool: ScenarioPool) -> dict[str, int]:
    """The jobs with a new reason, and the free GPUs in it."""
    reported = [one for one in pool.decide() if isinstance(one, Wait)]
    return {one.job_id: one.reason.numbers["free.gpu"] // 1000 for one in reported}


def test_a_new_job_of_a_class_with_a_fresh_diagnosis_is_reported_at_once(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 9, floor=9))
    assert waits(pool) == {"a": 8}
    pool.after(INTERVAL_S / 2)
    pool.submit(pool.job("b", 9, floor=9))
    assert waits(pool) == {"b": 8}


def test_numbers_that_change_within_the_interval_are_reported_at_the_next_diagnosis(
    pool: ScenarioPool,
) -> None:
    pool.submit(pool.job("a", 9, floor=9))
    assert waits(pool) == {"a": 8}
    pool.after(2)
    pool.submit(pool.job("b", 1, servers=0))
    assert waits(pool) == {"a": 7}
    pool.after(INTERVAL_S / 4)
    pool.report("b", ReplicaState.RUNNING)
    pool.report("b", ReplicaState.EXITED, exit_code=0)
    assert waits(pool) == {}
    reported: dict[str, int] = {}
    while not reported and (due := pool.state.next_wake(pool.now)) is not None:
        pool.now = due
        reported = waits(pool)
    assert reported == {"a": 8}


def test_an_unchanged_pool_schedules_no_diagnosis(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 9, floor=9))
    pool.submit(pool.job("b", 10, floor=10, worker=Resources(cpu=1000, gpu=2000)))
    pool.settle()
    pool.after(29)
    assert waits(pool) == {}
    due = pool.state.next_wake(pool.now)
    # Only the starvation threshold is still to come.
    assert due is None or due >= pool.now + 1_000_000
