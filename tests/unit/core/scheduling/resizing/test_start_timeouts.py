"""Gangs that are placed and do not start: taken down in time, told why, placed elsewhere, and never in a hot loop."""

from __future__ import annotations

import pytest

from muster_core import events
from muster_core.models import Job, Phase, Reason, ReplicaState, RestartPolicy, RestartScope, RunPolicy
from muster_core.scheduling import Evict, Place, PoolState
from muster_testing.pool import ScenarioPool

SECOND = 1_000_000


@pytest.fixture
def timed(empty: ScenarioPool) -> ScenarioPool:
    """Two nodes of 4 GPUs, in a pool whose gangs may take 60 s to start."""
    empty.state = PoolState(pool="here", start_timeout_s=60)
    empty.add_node("n1")
    empty.add_node("n2")
    return empty


def placed(pool: ScenarioPool, job: Job) -> str:
    job_id = pool.submit(job)
    assert any(isinstance(one, Place) for one in pool.decide())
    return job_id


def evicted(pool: ScenarioPool) -> Evict:
    (evict,) = pool.decide()
    assert isinstance(evict, Evict)
    return evict


def test_a_gang_that_does_not_start_in_time_is_taken_down_as_a_whole(timed: ScenarioPool) -> None:
    placed(timed, timed.job("a", 2))
    timed.report("a", ReplicaState.RUNNING, ("ps", 0), ("worker", 0))
    timed.report("a", ReplicaState.LAUNCHED, ("worker", 1))
    assert timed.state.next_wake(timed.now) == timed.now + 60 * SECOND
    timed.after(59.9)
    assert timed.decide() == []
    timed.after(0.1)

    evict = evicted(timed)

    assert (evict.attempt, evict.reason.code, evict.avoid) == (1, "StartTimeout", ("n1",))
    words = "a-worker-1 on n1 did not start within 60 s: launched, but no status since"
    assert evict.reason.message == words
    assert evict.reason.numbers == {"unstarted": 1, "replicas": 3, "timeout_s": 60}
    record = timed.record("a")
    assert (record.phase, record.failures, record.evictions) == (Phase.EVICTED, 0, 1)
    assert all(one.leaving for one in record.replicas)


def test_the_reason_has_what_the_runtime_said_of_the_trouble(timed: ScenarioPool) -> None:
    placed(timed, timed.job("a", 1, servers=0))
    trouble = "ImagePullBackOff: no such image"
    change = events.ReplicaChange(
        role="worker", index=0, attempt=1, state=ReplicaState.LAUNCHED, reason=trouble, at=timed.now
    )
    timed.report("a", ReplicaState.LAUNCHED)
    timed.publish("a", events.ReplicasChanged(changes=(change,)))
    timed.after(60)

    assert evicted(timed).reason.message == f"a-worker-0 on n1 did not start within 60 s: {trouble}"


def test_it_is_placed_elsewhere_when_all_of_it_has_ended(timed: ScenarioPool) -> None:
    placed(timed, timed.job("a", 2))
    timed.after(60)
    evicted(timed)
    timed.report("a", ReplicaState.REMOVED)

    assert timed.placed() == ["a"]
    assert set(timed.where("a")) == {"n2"}


def test_where_nothing_else_has_room_a_node_that_failed_it_is_as_good_as_any(timed: ScenarioPool) -> None:
    timed.drop_node("n2")
    placed(timed, timed.job("a", 2))
    timed.after(60)
    evicted(timed)
    timed.report("a", ReplicaState.REMOVED)

    assert timed.placed() == ["a"]
    assert set(timed.where("a")) == {"n1"}


def test_a_node_is_avoided_for_ten_minutes(timed: ScenarioPool) -> None:
    placed(timed, timed.job("a", 2))
    timed.after(60)
    evicted(timed)
    timed.after(600)
    timed.report("a", ReplicaState.REMOVED)

    assert timed.placed() == ["a"]
    assert set(timed.where("a")) == {"n1"}


def test_others_are_not_kept_off_a_node_that_failed_one(timed: ScenarioPool) -> None:
    placed(timed, timed.job("a", 2))
    timed.after(60)
    evicted(timed)
    timed.report("a", ReplicaState.REMOVED)
    timed.submit(timed.job("b", 1))

    assert timed.placed() == ["a", "b"]
    assert set(timed.where("b")) <= {"n1", "n2"}


def test_a_gang_that_never_starts_comes_back_ever_later(timed: ScenarioPool) -> None:
    placed(timed, timed.job("a", 2))
    waits: list[int] = []
    for _ in range(9):
        timed.after(60)
        evicted(timed)
        timed.report("a", ReplicaState.REMOVED)
        due = timed.record("a").not_before
        waits.append((due - timed.now) // SECOND if due else 0)
        if due:
            assert timed.decide() == []
            assert timed.state.next_wake(timed.now) == due
            timed.now = due
        assert timed.placed() == ["a"]

    assert waits == [0, 1, 2, 4, 8, 16, 32, 60, 60]


def test_what_the_job_says_counts_before_the_platform(timed: ScenarioPool) -> None:
    placed(timed, timed.job("a", 1, run=RunPolicy(start_timeout_s=5)))
    placed(timed, timed.job("b", 1, run=RunPolicy(start_timeout_s=0)))
    timed.after(5)
    assert evicted(timed).job_id == "a"
    timed.after(3600)

    assert timed.decide() == []
    assert timed.record("b").phase is Phase.PLACED


def test_a_gang_that_has_started_has_no_start_time_out(timed: ScenarioPool) -> None:
    timed.run(timed.job("a", 2))
    timed.after(3600)

    assert timed.decide() == []


def test_a_replica_that_failed_and_is_restarted_is_no_late_start(timed: ScenarioPool) -> None:
    placed(timed, timed.job("a", 2, restart_policy=RestartPolicy.ON_FAILURE))
    timed.report("a", ReplicaState.EXITED, ("worker", 1), exit_code=1)
    timed.publish(
        "a",
        events.JobRestarting(
            scope=RestartScope.REPLICA,
            attempt=1,
            reason=Reason(code="ReplicaFailed"),
            delay_ms=300_000,
            replicas=(events.ReplicaRef(role="worker", index=1),),
        ),
    )
    timed.report("a", ReplicaState.RUNNING, ("ps", 0), ("worker", 0))
    timed.after(299)

    assert timed.decide() == []


def test_a_leader_that_takes_over_keeps_the_time(timed: ScenarioPool) -> None:
    placed(timed, timed.job("a", 2))
    due = timed.now + 60 * SECOND
    heir = PoolState(pool="here", start_timeout_s=60)
    heir.restore(timed.state.records.values())

    assert heir.next_wake(timed.now) == due
    assert [type(one) for one in heir.decide(due)] == [Evict]
