"""Those who join a running gang and do not come up: taken back in time, told why, and not sent to the same node again."""

from __future__ import annotations

import pytest

from muster_core import events
from muster_core.events import MANUAL_POLICY
from muster_core.models import Phase, Reason, ReplicaState, RestartScope, RunPolicy
from muster_core.scheduling import Evict, PoolState, Resize
from muster_testing.pool import ScenarioPool

SECOND = 1_000_000
TIMEOUT_S = 60


@pytest.fixture
def timed(empty: ScenarioPool) -> ScenarioPool:
    """Two nodes of 4 GPUs, in a pool whose replicas may take 60 s to start."""
    empty.state = PoolState(pool="here", start_timeout_s=TIMEOUT_S)
    empty.add_node("n1")
    empty.add_node("n2")
    return empty


@pytest.fixture
def grown(timed: ScenarioPool) -> ScenarioPool:
    """Job a runs ps and 2 workers on n1, and two more have joined it there."""
    timed.run(timed.job("a", 2, floor=2, most=6))
    timed.after(100)
    timed.scale("a", 4)
    (resize,) = timed.resizes()
    assert [one.node for one in resize.added] == ["n1", "n1"]
    return timed


def propose(pool: ScenarioPool, job_id: str, target: int, policy: str = "marginal_gain") -> None:
    """A policy would have the job grow."""
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


def test_a_growth_that_does_not_come_up_is_taken_back(grown: ScenarioPool) -> None:
    assert grown.state.next_wake(grown.now) == grown.now + TIMEOUT_S * SECOND
    grown.report("a", ReplicaState.LAUNCHED, ("worker", 2), ("worker", 3))
    grown.after(TIMEOUT_S - 0.1)
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


def test_those_who_came_up_stay(grown: ScenarioPool) -> None:
    grown.report("a", ReplicaState.RUNNING, ("worker", 3))
    grown.after(TIMEOUT_S)
    grown.decide()

    assert grown.indices("a") == [0, 1, 3]


def test_their_room_is_free_only_when_they_have_gone(grown: ScenarioPool) -> None:
    grown.report("a", ReplicaState.LAUNCHED, ("worker", 2), ("worker", 3))
    grown.drop_node("n2")
    grown.after(TIMEOUT_S)
    grown.decide()
    grown.submit(grown.job("b", 2, floor=2, servers=0))
    assert grown.placed() == []
    grown.report("a", ReplicaState.REMOVED, ("worker", 2), ("worker", 3))

    assert grown.placed() == ["b"]


def test_each_growth_has_a_time_of_its_own(grown: ScenarioPool) -> None:
    first_due = grown.now + TIMEOUT_S * SECOND
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


def test_what_was_asked_for_by_hand_goes_to_the_node_that_failed_it_only_where_no_other_has_room(
    grown: ScenarioPool,
) -> None:
    grown.after(TIMEOUT_S)
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


def test_a_policy_does_without_a_node_that_failed_the_job(timed: ScenarioPool) -> None:
    timed.drop_node("n2")
    timed.run(timed.job("a", 2, most=4))
    propose(timed, "a", 4)
    assert timed.resizes()
    timed.after(TIMEOUT_S)
    timed.decide()
    timed.report("a", ReplicaState.REMOVED, ("worker", 2), ("worker", 3))

    propose(timed, "a", 4)
    assert timed.resizes() == []
    timed.after(600)
    propose(timed, "a", 4)
    assert len(timed.resizes()) == 1


def test_a_size_set_by_hand_stays_so_when_some_of_it_is_taken_back(grown: ScenarioPool) -> None:
    grown.after(TIMEOUT_S)
    grown.decide()

    assert grown.record("a").resized_by == MANUAL_POLICY
    assert grown.record("a").asked == {}


def test_a_size_that_was_asked_for_and_not_reached_is_not_asked_for_again_when_it_did_not_come_up(
    timed: ScenarioPool,
) -> None:
    timed.drop_node("n2")
    timed.run(timed.job("a", 2, most=6))
    timed.scale("a", 6)
    assert len(timed.resizes()[0].added) == 2
    assert timed.record("a").asked == {"worker": 6}
    timed.after(TIMEOUT_S)
    timed.decide()
    timed.report("a", ReplicaState.REMOVED, ("worker", 2), ("worker", 3))

    assert timed.record("a").asked == {}
    assert timed.decide() == []


def test_a_gang_is_taken_down_as_a_whole_where_it_may_not_be_without_those_who_are_late(
    timed: ScenarioPool,
) -> None:
    timed.run(timed.job("a", 2, floor=2, run=RunPolicy(restart_scope=RestartScope.REPLICA)))
    lost = events.ReplicaChange(
        role="worker", index=1, attempt=1, state=ReplicaState.LOST, node_lost=True, at=timed.now
    )
    timed.publish("a", events.ReplicasChanged(changes=(lost,)))
    (again,) = timed.resizes()
    assert [one.node for one in again.added] == ["n2"]
    timed.after(TIMEOUT_S)

    (evict,) = timed.decide()

    assert isinstance(evict, Evict)
    assert (evict.reason.code, evict.avoid) == ("StartTimeout", ("n2",))


@pytest.mark.parametrize(("own", "left"), [(0, [0, 1, 2, 3]), (5, [0, 1])])
def test_what_the_job_says_counts_before_the_platform(timed: ScenarioPool, own: int, left: list[int]) -> None:
    timed.run(timed.job("a", 2, most=4, run=RunPolicy(start_timeout_s=own)))
    timed.scale("a", 4)
    timed.decide()
    timed.after(own or 3600)
    timed.decide()

    assert timed.indices("a") == left


def test_a_job_that_is_about_to_end_is_left_alone(grown: ScenarioPool) -> None:
    grown.publish("a", events.CommandRequested(command=events.Command.CANCEL, request_id="r"))
    grown.after(TIMEOUT_S)

    assert grown.decide() == []


def test_a_leader_that_takes_over_keeps_the_time(grown: ScenarioPool) -> None:
    due = grown.now + TIMEOUT_S * SECOND
    heir = PoolState(pool="here", start_timeout_s=TIMEOUT_S)
    heir.restore(grown.state.records.values())
    heir.observe_node(events.NodeChanged(pool="here", node=grown.nodes["n1"]))

    assert heir.next_wake(grown.now) == due
    assert [type(one) for one in heir.decide(due)] == [Resize]
