"""Replicas that nodes lose, stop or reject: replaced one by one if the gang can continue, else evicted with it."""

from __future__ import annotations

import pytest

from muster_core import events
from muster_core.lifecycle import Finish, decide
from muster_core.models import Phase, ReplicaState, RestartPolicy, RestartScope, RunPolicy
from muster_core.scheduling import Evict, Resize
from muster_testing.pool import ScenarioPool

GANG = RunPolicy(restart_scope=RestartScope.GANG)
SECOND = 1_000_000


def lose(pool: ScenarioPool, job_id: str, *keys: tuple[str, int]) -> None:
    """Report replicas as lost with their node."""
    changes = tuple(
        events.ReplicaChange(
            role=one.role,
            index=one.index,
            attempt=one.attempt,
            restart=one.restart,
            state=ReplicaState.LOST,
            reason="its machine started anew",
            node_lost=True,
            at=pool.now,
        )
        for one in pool.record(job_id).gang()
        if one.key in keys
    )
    pool.publish(job_id, events.ReplicasChanged(changes=changes))


def test_a_gang_whose_node_is_lost_goes_back_to_its_queue(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 2, run=GANG))
    lose(pool, "a", ("worker", 1))
    assert decide(pool.record("a"), pool.now) == []

    (evict,) = pool.decide()

    assert isinstance(evict, Evict)
    assert (evict.reason.code, evict.avoid) == ("NodeLost", ("n1",))
    assert evict.reason.message == "a-worker-1 was lost with node n1: its machine started anew"
    record = pool.record("a")
    assert (record.phase, record.failures, record.evictions) == (Phase.EVICTED, 0, 1)
    pool.report("a", ReplicaState.EXITED)
    assert pool.placed() == ["a"]
    assert set(pool.where("a")) == {"n2"}


def test_a_lost_replica_restarts_on_another_node(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 3))
    lose(pool, "a", ("worker", 1))

    (resize,) = pool.decide()

    assert isinstance(resize, Resize)
    assert [(one.role, one.index, one.node) for one in resize.added] == [("worker", 1, "n2")]
    assert (resize.removed, resize.generation, resize.reason.code) == ((), 2, "NodeLost")
    assert resize.reason.message.endswith("; restarted on n2")
    record = pool.record("a")
    again = next(one for one in record.gang() if one.key == ("worker", 1))
    assert (again.node, again.restart, again.state) == ("n2", 1, ReplicaState.PLACED)
    assert (record.phase, record.failures, record.evictions) == (Phase.RUNNING, 0, 0)
    assert pool.decide() == []


def test_lost_replicas_of_a_finishing_job_are_not_replaced(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 3))
    lose(pool, "a", ("worker", 1))
    pool.report("a", ReplicaState.EXITED, ("worker", 2), exit_code=126)

    (finish,) = decide(pool.record("a"), pool.now)

    assert isinstance(finish, Finish)
    assert pool.decide() == []


def test_the_job_reports_that_all_replicas_run_again(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 3))
    lose(pool, "a", ("worker", 1))
    pool.decide()
    pool.report("a", ReplicaState.RUNNING, ("worker", 1))

    reason = pool.record("a").reason
    assert reason is not None
    assert (reason.code, reason.message) == ("Running", "all 4 replicas run again")


def test_repeated_losses_delay_the_restart_more_and_more(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 2))
    delays: list[int] = []
    for _ in range(5):
        lose(pool, "a", ("worker", 1))
        (resize,) = pool.decide()
        assert isinstance(resize, Resize)
        again = next(one for one in pool.record("a").gang() if one.key == ("worker", 1))
        delays.append(max(again.not_before - pool.now, 0) // SECOND)
        pool.report("a", ReplicaState.RUNNING, ("worker", 1))

    assert delays == [0, 1, 2, 4, 8]


def test_an_elastic_job_continues_with_fewer_replicas(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 4, floor=1))
    pool.drop_node("n2")
    pool.add_node("n1", ready=False)
    lose(pool, "a", ("worker", 2), ("worker", 3))

    (resize,) = pool.decide()

    assert isinstance(resize, Resize)
    assert resize.added == ()
    assert sorted(ref.index for ref in resize.removed) == [2, 3]
    assert pool.indices("a") == [0, 1]
    assert pool.decide() == []


@pytest.mark.parametrize(("floor", "index"), [(4, 3), (1, 0)], ids=["below its minimum", "without index 0"])
def test_a_role_that_cannot_continue_evicts_the_gang(pool: ScenarioPool, floor: int, index: int) -> None:
    pool.run(pool.job("a", 4, floor=floor))
    pool.drop_node("n2")
    pool.add_node("n1", ready=False)
    lose(pool, "a", ("worker", index))

    (evict,) = pool.decide()

    assert isinstance(evict, Evict)


def test_a_stopped_replica_of_a_running_job_is_placed_again(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 2))
    pool.report("a", ReplicaState.REJECTED, ("worker", 1))

    (resize,) = pool.decide()

    assert isinstance(resize, Resize)
    assert resize.reason.code == "Disrupted"
    assert resize.reason.message == "a-worker-1 was stopped by node n1; restarted on n2"


def test_a_replica_lost_without_its_node_is_a_failure_and_keeps_its_allocation(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 2, restart_policy=RestartPolicy.ON_FAILURE))
    pool.report("a", ReplicaState.LOST, ("worker", 1))

    assert pool.decide() == []
    (restart,) = decide(pool.record("a"), pool.now)
    event = getattr(restart, "event", None)
    assert isinstance(event, events.JobRestarting)
    assert event.reason.code == "ReplicaFailed"


def test_ten_minutes_of_running_reset_the_restart_delay(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 2))
    for _ in range(3):
        lose(pool, "a", ("worker", 1))
        pool.decide()
        pool.report("a", ReplicaState.RUNNING, ("worker", 1))
    assert pool.record("a").node_failures == 3
    pool.after(600)
    lose(pool, "a", ("worker", 1))
    pool.decide()

    again = next(one for one in pool.record("a").gang() if one.key == ("worker", 1))
    assert (pool.record("a").node_failures, again.not_before) == (1, 0)
    assert len(pool.record("a").avoided) == 1
