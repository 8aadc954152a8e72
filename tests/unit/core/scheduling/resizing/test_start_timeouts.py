"""Gangs and added replicas that do not start in time are evicted or removed, and placed on other nodes."""

from __future__ import annotations

import pytest

from muster_core import events
from muster_core.events import MANUAL_POLICY
from muster_core.models import Job, Phase, Reason, ReplicaState, RestartPolicy, RestartScope, RunPolicy
from muster_core.scheduling import Evict, Place, Resize
from muster_testing.pool import ScenarioPool

SECOND = 1_000_000


@pytest.fixture
def timed() -> ScenarioPool:
    """Two nodes of 4 GPUs, in a pool whose gangs may take 60 s to start."""
    pool = ScenarioPool(start_timeout_s=60)
    pool.add_node("n1")
    pool.add_node("n2")
    return pool


def placed(pool: ScenarioPool, job: Job) -> str:
    job_id = pool.submit(job)
    assert any(isinstance(one, Place) for one in pool.decide())
    return job_id


def evicted(pool: ScenarioPool) -> Evict:
    (evict,) = pool.decide()
    assert isinstance(evict, Evict)
    return evict


def test_a_gang_that_does_not_start_in_time_is_evicted(timed: ScenarioPool) -> None:
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
    assert all(one.terminating for one in record.replicas)


def test_the_reason_of_the_runtime_is_in_the_message(timed: ScenarioPool) -> None:
    placed(timed, timed.job("a", 1, servers=0))
    trouble = "ImagePullBackOff: no such image"
    change = events.ReplicaChange(
        role="worker", index=0, attempt=1, state=ReplicaState.LAUNCHED, reason=trouble, at=timed.now
    )
    timed.report("a", ReplicaState.LAUNCHED)
    timed.publish("a", events.ReplicasChanged(changes=(change,)))
    timed.after(60)

    assert evicted(timed).reason.message == f"a-worker-0 on n1 did not start within 60 s: {trouble}"


@pytest.mark.parametrize(
    ("other_node", "ended_after_s", "node"),
    [(True, 0, "n2"), (False, 0, "n1"), (True, 600, "n1")],
    ids=["another node", "the failed node if no other fits", "the failed node after ten minutes"],
)
def test_the_gang_is_placed_again_once_it_ended(
    timed: ScenarioPool, other_node: bool, ended_after_s: int, node: str
) -> None:
    if not other_node:
        timed.drop_node("n2")
    placed(timed, timed.job("a", 2))
    timed.after(60)
    evicted(timed)
    timed.after(ended_after_s)
    timed.report("a", ReplicaState.REMOVED)

    assert timed.placed() == ["a"]
    assert set(timed.where("a")) == {node}


def test_other_jobs_use_a_node_that_failed_one_job(timed: ScenarioPool) -> None:
    placed(timed, timed.job("a", 2))
    timed.after(60)
    evicted(timed)
    timed.report("a", ReplicaState.REMOVED)
    timed.submit(timed.job("b", 1))

    assert timed.placed() == ["a", "b"]
    assert set(timed.where("b")) <= {"n1", "n2"}


def test_repeated_start_timeouts_delay_the_next_attempt_more_and_more(timed: ScenarioPool) -> None:
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


def test_the_start_timeout_of_the_job_takes_precedence(timed: ScenarioPool) -> None:
    placed(timed, timed.job("a", 1, run=RunPolicy(start_timeout_s=5)))
    placed(timed, timed.job("b", 1, run=RunPolicy(start_timeout_s=0)))
    timed.after(5)
    assert evicted(timed).job_id == "a"
    timed.after(3600)

    assert timed.decide() == []
    assert timed.record("b").phase is Phase.PLACED


def test_a_started_gang_has_no_start_timeout(timed: ScenarioPool) -> None:
    timed.run(timed.job("a", 2))
    timed.after(3600)

    assert timed.decide() == []


def test_a_restarting_replica_is_not_a_late_start(timed: ScenarioPool) -> None:
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


def test_a_new_leader_keeps_the_timeout(timed: ScenarioPool) -> None:
    placed(timed, timed.job("a", 2))
    due = timed.now + 60 * SECOND
    leader = timed.restored(timed.records(), after=len(timed.stream))

    assert leader.next_wake(timed.now) == due
    assert [type(one) for one in leader.decide(due)] == [Evict]


@pytest.fixture
def grown(timed: ScenarioPool) -> ScenarioPool:
    """Job a runs a ps and 2 workers on n1, and two more were added there."""
    timed.run(timed.job("a", 2, floor=2, most=6))
    timed.after(100)
    timed.scale("a", 4)
    (resize,) = timed.resizes()
    assert [one.node for one in resize.added] == ["n1", "n1"]
    return timed


def propose(pool: ScenarioPool, job_id: str, target: int, policy: str = "marginal_gain") -> None:
    """Publish a proposal to grow the job."""
    record = pool.record(job_id)
    proposal = events.ScaleProposed(
        role="worker",
        size=len(pool.indices(job_id)),
        target=target,
        policy=policy,
        attempt=record.attempt,
        generation=record.generation,
        reason=Reason(code="Idle"),
    )
    pool.publish(job_id, proposal)


def test_added_replicas_that_do_not_start_are_removed(grown: ScenarioPool) -> None:
    assert grown.state.next_wake(grown.now) == grown.now + 60 * SECOND
    grown.report("a", ReplicaState.LAUNCHED, ("worker", 2), ("worker", 3))
    grown.after(60 - 0.1)
    assert grown.decide() == []
    grown.after(0.1)

    (resize,) = grown.resizes()

    assert [(one.role, one.index) for one in resize.removed] == [("worker", 2), ("worker", 3)]
    assert (resize.added, resize.avoid) == ((), ("n1",))
    assert resize.reason.code == "StartTimeout"
    assert resize.reason.message == (
        "a-worker-2 on n1, a-worker-3 on n1 did not start within 60 s: launched, but no status since; "
        "removed, the job continues with 3 replicas"
    )
    record = grown.record("a")
    assert (record.phase, record.failures, record.evictions) == (Phase.RUNNING, 0, 0)
    assert grown.indices("a") == [0, 1]
    assert grown.decide() == []


def test_added_replicas_that_started_stay(grown: ScenarioPool) -> None:
    grown.report("a", ReplicaState.RUNNING, ("worker", 3))
    grown.after(60)
    grown.decide()

    assert grown.indices("a") == [0, 1, 3]


def test_the_capacity_of_late_replicas_is_free_once_they_ended(grown: ScenarioPool) -> None:
    grown.report("a", ReplicaState.LAUNCHED, ("worker", 2), ("worker", 3))
    grown.drop_node("n2")
    grown.after(60)
    grown.decide()
    grown.submit(grown.job("b", 2, floor=2, servers=0))
    assert grown.placed() == []
    grown.report("a", ReplicaState.REMOVED, ("worker", 2), ("worker", 3))

    assert grown.placed() == ["b"]


def test_each_growth_has_its_own_timeout(grown: ScenarioPool) -> None:
    first_due = grown.now + 60 * SECOND
    grown.after(30)
    grown.scale("a", 5)
    grown.decide()
    assert grown.state.next_wake(grown.now) == first_due
    grown.after(30)
    grown.decide()
    assert grown.indices("a") == [0, 1, 4]
    grown.after(30)
    grown.decide()

    assert grown.indices("a") == [0, 1]


def test_a_manual_size_uses_a_failed_node_only_if_no_other_fits(grown: ScenarioPool) -> None:
    grown.after(60)
    grown.decide()
    grown.report("a", ReplicaState.REMOVED, ("worker", 2), ("worker", 3))
    grown.scale("a", 4)
    (elsewhere,) = grown.resizes()
    assert {one.node for one in elsewhere.added} == {"n2"}
    grown.report("a", ReplicaState.RUNNING, ("worker", 2), ("worker", 3))
    grown.add_node("n2", unschedulable=True)
    grown.scale("a", 6)

    (anywhere,) = grown.resizes()
    assert {one.node for one in anywhere.added} == {"n1"}


def test_a_policy_does_not_use_a_failed_node(timed: ScenarioPool) -> None:
    timed.drop_node("n2")
    timed.run(timed.job("a", 2, most=4))
    propose(timed, "a", 4)
    assert timed.resizes()
    timed.after(60)
    timed.decide()
    timed.report("a", ReplicaState.REMOVED, ("worker", 2), ("worker", 3))

    propose(timed, "a", 4)
    assert timed.resizes() == []
    timed.after(600)
    propose(timed, "a", 4)
    assert len(timed.resizes()) == 1


def test_a_manual_size_stays_requested_after_a_growth_timeout(grown: ScenarioPool) -> None:
    grown.after(60)
    grown.decide()

    assert grown.record("a").resized_by == MANUAL_POLICY
    assert grown.record("a").requested_sizes == {}


def test_an_unreached_manual_size_is_not_repeated_after_a_growth_timeout(timed: ScenarioPool) -> None:
    timed.drop_node("n2")
    timed.run(timed.job("a", 2, most=6))
    timed.scale("a", 6)
    assert len(timed.resizes()[0].added) == 2
    assert timed.record("a").requested_sizes == {"worker": 6}
    timed.after(60)
    timed.decide()
    timed.report("a", ReplicaState.REMOVED, ("worker", 2), ("worker", 3))

    assert timed.record("a").requested_sizes == {}
    assert timed.decide() == []


def test_a_gang_that_needs_its_late_replicas_is_evicted(timed: ScenarioPool) -> None:
    timed.run(timed.job("a", 2, floor=2, run=RunPolicy(restart_scope=RestartScope.REPLICA)))
    lost = events.ReplicaChange(
        role="worker", index=1, attempt=1, state=ReplicaState.LOST, node_lost=True, at=timed.now
    )
    timed.publish("a", events.ReplicasChanged(changes=(lost,)))
    (again,) = timed.resizes()
    assert [one.node for one in again.added] == ["n2"]
    timed.after(60)

    (evict,) = timed.decide()

    assert isinstance(evict, Evict)
    assert (evict.reason.code, evict.avoid) == ("StartTimeout", ("n2",))


@pytest.mark.parametrize(("own", "left"), [(0, [0, 1, 2, 3]), (5, [0, 1])])
def test_the_start_timeout_of_the_job_applies_to_its_growth(
    timed: ScenarioPool, own: int, left: list[int]
) -> None:
    timed.run(timed.job("a", 2, most=4, run=RunPolicy(start_timeout_s=own)))
    timed.scale("a", 4)
    timed.decide()
    timed.after(own or 3600)
    timed.decide()

    assert timed.indices("a") == left


def test_late_replicas_of_a_finishing_job_are_ignored(grown: ScenarioPool) -> None:
    grown.publish("a", events.CommandRequested(command=events.Command.CANCEL, request_id="r"))
    grown.after(60)

    assert grown.decide() == []


def test_a_new_leader_keeps_the_timeout_of_a_growth(grown: ScenarioPool) -> None:
    due = grown.now + 60 * SECOND
    leader = grown.restored(grown.records(), after=len(grown.stream))

    assert leader.next_wake(grown.now) == due
    assert [type(one) for one in leader.decide(due)] == [Resize]
