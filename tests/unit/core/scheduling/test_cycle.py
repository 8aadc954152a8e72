"""Scheduling cycles: the order of placements, reports to waiting jobs, and the state between cycles."""

from __future__ import annotations

from muster_core import events
from muster_core.models import JobRecord, Phase, ReplicaState, Resources, RunPolicy
from muster_core.scheduling import Place, Remedy, RemedyKind, Wait
from muster_testing.pool import ScenarioPool


def test_jobs_are_tried_by_priority_then_arrival(pool: ScenarioPool) -> None:
    for name, priority in (("late", 0), ("low", -5), ("high", 10)):
        pool.submit(pool.job(name, 1, priority=priority))
        pool.after(1)
    pool.submit(pool.job("later", 1))
    assert pool.placed() == ["high", "late", "later", "low"]


def test_later_placements_of_a_cycle_see_earlier_ones(pool: ScenarioPool) -> None:
    for name in ("a", "b", "c"):
        pool.submit(pool.job(name, 4, floor=4))
    assert pool.placed() == ["a", "b"]
    assert (pool.where("a"), pool.where("b")) == (
        {"n1": {"ps": 1, "worker": 4}},
        {"n2": {"ps": 1, "worker": 4}},
    )


def test_the_first_placement_is_attempt_1(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 10, floor=4))
    (place,) = pool.decide()
    assert isinstance(place, Place)
    assert (place.attempt, place.generation, len(place.replicas)) == (1, 1, 9)
    assert place.reason.message == "9 of 11 replicas on 2 nodes"


def test_a_reason_is_reported_once_and_again_when_its_numbers_change(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 9, floor=9))
    assert pool.waits()["a"].numbers["free.gpu"] == 8000
    assert pool.decide() == []
    pool.add_node("n3", gpu=0)
    assert pool.decide() == []
    wake = pool.state.next_wake(pool.now)
    assert wake is not None
    pool.after((wake - pool.now) / 1_000_000)
    assert pool.waits()["a"].numbers["nodes"] == 3


def test_a_changed_code_is_reported_at_once(empty: ScenarioPool) -> None:
    empty.submit(empty.job("a", 9, floor=9))
    assert empty.waits()["a"].code == "NoMatchingNode"
    empty.add_node("n1")
    assert empty.waits()["a"].code == "InsufficientResources"


def test_a_cycle_reports_at_most_256_reasons(empty: ScenarioPool) -> None:
    for number in range(300):
        empty.submit(empty.job(f"j{number:03d}", 1))
    first = empty.state.decide(empty.now)
    assert len(first) == 256
    assert empty.state.next_wake(empty.now) == empty.now
    reported = len(empty.waits()) + len(empty.waits())
    assert reported == 300
    assert empty.state.next_wake(empty.now) is None


def test_a_job_waits_for_the_job_with_its_name(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 1), job_id="first")
    pool.after(1)
    pool.submit(pool.job("a", 1, priority=9), job_id="second")
    pool.submit(pool.job("a", 1, namespace="other"), job_id="third")
    assert pool.state.decide(pool.now)[0].job_id == "first"
    (wait,) = [one for one in pool.decide() if isinstance(one, Wait)]
    assert (wait.job_id, wait.reason.code) == ("second", "NameInUse")
    assert "first" in wait.reason.message
    pool.finish("first")
    assert pool.placed() == ["second"]


def test_a_job_submitted_as_suspended_is_placed_once_it_is_resumed(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 1, run=RunPolicy(suspend=True)))
    assert pool.decide() == []
    explained = pool.explain("a")
    assert (explained.reason.code, explained.remedies) == ("Suspended", (Remedy(kind=RemedyKind.RESUME),))
    assert (pool.state.capacity(pool.now).waiting, pool.state.next_wake(pool.now)) == (0, None)
    pool.publish("a", events.CommandRequested(command=events.Command.RESUME, request_id="r"))
    assert pool.placed() == ["a"]


def test_a_suspended_job_keeps_its_position(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 8, floor=8))
    pool.submit(pool.job("b", 8, floor=8))
    pool.publish("a", events.CommandRequested(command=events.Command.SUSPEND, request_id="s"))
    assert pool.placed() == []
    pool.report("a", ReplicaState.REMOVED)
    pool.publish("a", events.CommandRequested(command=events.Command.RESUME, request_id="r"))
    assert pool.placed() == ["a"]


def test_cancelled_jobs_are_not_placed(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 1))
    pool.publish("a", events.CommandRequested(command=events.Command.CANCEL, request_id="r"))
    assert pool.decide() == []


def test_a_settled_job_is_removed(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 8, floor=8))
    pool.submit(pool.job("b", 8, floor=8))
    assert pool.waits()["b"].code == "InsufficientResources"
    pool.finish("a")
    assert pool.state.record("a") is None
    assert pool.placed() == ["b"]


def test_capacity_is_free_only_when_the_end_is_confirmed(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 8, floor=8))
    reason = pool.record("a").reason
    assert reason is not None
    pool.publish("a", events.JobFinished(outcome=events.Outcome.CANCELLED, reason=reason))
    pool.submit(pool.job("b", 8, floor=8))
    assert pool.record("a").phase is Phase.CANCELLED
    assert pool.placed() == []


def test_the_same_event_twice_changes_nothing(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 4))
    before = pool.record("a")
    for stored in list(pool.stream):
        assert pool.state.observe(stored) is None
    assert pool.record("a") == before
    pool.finish("a")
    for stored in list(pool.stream):
        assert pool.state.observe(stored) is None
    assert pool.state.records == {}


def test_an_invalid_transition_is_returned_and_changes_nothing(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 1))
    event = events.JobPlaced(attempt=7, generation=1, pool="here", replicas=())
    assert pool.publish("a", event) is not None
    assert pool.record("a").phase is Phase.QUEUED


def test_a_restored_state_decides_the_same(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 4))
    for name in ("b", "c", "d"):
        pool.submit(pool.job(name, 3, floor=3))
    again = pool.restored(pool.records(), after=len(pool.stream))
    assert again.decide(pool.now) == pool.state.decide(pool.now)
    again.check_invariants()
    assert again.capacity(pool.now) == pool.state.capacity(pool.now)


def test_nodes_of_other_pools_are_ignored(empty: ScenarioPool) -> None:
    empty.add_node("n1")
    node = empty.nodes["n1"]
    empty.state.observe_node(events.NodeChanged(pool="there", node=node, gone=True))
    empty.submit(empty.job("a", 1))
    assert empty.placed() == ["a"]


def test_a_removed_node_gets_no_replicas(pool: ScenarioPool) -> None:
    pool.drop_node("n1")
    pool.submit(pool.job("a", 4))
    pool.decide()
    assert pool.where("a") == {"n2": {"ps": 1, "worker": 4}}


def test_capacity_has_totals_and_feasible_waiting_jobs(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 4))
    started = pool.now
    pool.after(10)
    pool.submit(pool.job("feasible", 8, floor=8))
    pool.submit(pool.job("hopeless", 9, floor=9))
    pool.decide()
    capacity = pool.state.capacity(pool.now)
    assert (capacity.free, capacity.allocatable) == (
        Resources(cpu=27_000, gpu=4000),
        Resources(cpu=32_000, gpu=8000),
    )
    assert (capacity.waiting, capacity.waiting_feasible) == (2, 1)
    assert (capacity.oldest_wait_at, capacity.decided_at) == (pool.now, started)


def test_the_explanation_names_the_jobs_ahead(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 9, floor=9))
    pool.after(1)
    pool.submit(pool.job("b", 9, floor=9))
    explanation = pool.explain("b")
    assert (explanation.position, explanation.ahead) == (2, ("a",))
    assert explanation.reason.code == "InsufficientResources"
    assert explanation.feasible_when_empty is False
    pool.run(pool.job("c", 1))
    running = pool.explain("c")
    assert (running.position, running.reason.code) == (0, "Running")
    assert pool.state.explain("unknown") is None


def test_a_record_without_a_job_is_ignored(pool: ScenarioPool) -> None:
    pool.state.restore([JobRecord(job_id="x", applied_sequence=1, name="x")])
    assert pool.decide() == []
    assert pool.state.explain("x") is not None
