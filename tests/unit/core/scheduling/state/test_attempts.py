"""Attempts that end early: rejections, restarts and their allocations."""

from __future__ import annotations

from muster_core import events
from muster_core.models import Phase, Reason, ReplicaState, RestartPolicy, RestartScope
from muster_core.scheduling import Evict
from muster_testing.pool import ScenarioPool

FAILED = Reason(code="ReplicaFailed")


def _restart(pool: ScenarioPool, job_id: str, seconds: int) -> None:
    attempt = pool.record(job_id).attempt
    pool.publish(
        job_id,
        events.JobRestarting(
            scope=RestartScope.GANG, attempt=attempt, reason=FAILED, delay_ms=seconds * 1000
        ),
    )


def test_a_rejected_replica_evicts_its_gang(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 2))
    pool.decide()
    pool.report("a", ReplicaState.REJECTED, ("worker", 1))
    (evict,) = pool.decide()
    assert isinstance(evict, Evict)
    assert (evict.attempt, evict.reason.code) == (1, "RejectedByNode")
    assert evict.reason.message == "node n1 rejected a-worker-1"
    assert pool.decide() == []


def test_an_evicted_gang_starts_again_once_it_ended(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 2))
    pool.decide()
    pool.report("a", ReplicaState.REJECTED, ("worker", 1))
    pool.decide()
    pool.report("a", ReplicaState.EXITED, ("worker", 0))
    assert pool.decide() == []
    pool.report("a", ReplicaState.EXITED)
    assert pool.placed() == ["a"]
    assert pool.record("a").attempt == 2


def test_repeated_rejections_delay_the_next_attempt(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 2))
    for _ in range(2):
        assert pool.placed() == ["a"]
        pool.report("a", ReplicaState.REJECTED)
        pool.decide()
    assert pool.decide() == []
    assert pool.state.next_wake(pool.now) == pool.now + 1_000_000
    pool.after(1)
    assert pool.placed() == ["a"]


def test_a_delay_that_ends_now_wakes_the_scheduler_now(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 2))
    _restart(pool, "a", 10)
    pool.report("a", ReplicaState.EXITED, exit_code=1)
    assert pool.decide() == []
    pool.after(10)
    assert pool.state.next_wake(pool.now) == pool.now
    assert pool.placed() == ["a"]


def test_a_restarting_gang_waits_for_its_delay(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 2))
    _restart(pool, "a", 10)
    pool.report("a", ReplicaState.EXITED, exit_code=1)
    assert pool.decide() == []
    explanation = pool.explain("a")
    assert explanation.not_before == pool.now + 10_000_000
    assert pool.state.next_wake(pool.now) == pool.now + 10_000_000
    pool.after(10)
    assert pool.placed() == ["a"]
    assert pool.state.next_wake(pool.now) is None


def test_a_restarting_gang_keeps_its_place_in_the_queue(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 8, floor=8))
    pool.after(1)
    pool.submit(pool.job("b", 8, floor=8))
    pool.decide()
    _restart(pool, "a", 0)
    pool.report("a", ReplicaState.EXITED, exit_code=1)
    assert pool.placed() == ["a"]


def test_a_restarting_gang_that_no_longer_fits_waits(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 8, floor=8))
    _restart(pool, "a", 0)
    pool.report("a", ReplicaState.EXITED, exit_code=1)
    pool.drop_node("n2")
    assert pool.waits()["a"].code == "InsufficientResources"
    assert pool.record("a").phase is Phase.QUEUED


def test_a_replica_that_may_restart_in_place_keeps_its_allocation(pool: ScenarioPool) -> None:
    job = pool.job("a", 8, floor=8, restart_policy=RestartPolicy.ON_FAILURE)
    pool.run(job)
    pool.report("a", ReplicaState.EXITED, ("worker", 3), exit_code=1)
    pool.submit(pool.job("b", 1))
    assert pool.placed() == []
    pool.publish(
        "a",
        events.JobRestarting(
            scope=RestartScope.REPLICA,
            attempt=1,
            reason=FAILED,
            replicas=(events.ReplicaRef(role="worker", index=3),),
        ),
    )
    assert pool.placed() == []


def test_the_allocation_of_a_completed_replica_is_free(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 8, floor=8, restart_policy=RestartPolicy.ON_FAILURE))
    pool.report("a", ReplicaState.EXITED, ("worker", 3), exit_code=0)
    pool.submit(pool.job("b", 1))
    assert pool.placed() == ["b"]
