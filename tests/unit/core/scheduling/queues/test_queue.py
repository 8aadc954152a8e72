"""Who starts, in which order, and what those who do not are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core import events
from muster_core.models import JobRecord, Phase, ReplicaState, Resources, RunPolicy
from muster_core.scheduling import Place, PoolState, Remedy, RemedyKind, Wait

if TYPE_CHECKING:
    from conftest import World


@pytest.mark.parametrize("seconds", [5, 35], ids=["answer 8", "answer 9"])
def test_a_job_that_fits_starts_at_once_behind_one_that_does_not(world: World, seconds: int) -> None:
    world.submit(world.job("a", 9, floor=9))
    assert [code.code for code in world.waits().values()] == ["InsufficientResources"]
    world.after(seconds)
    world.submit(world.job("b", 2))
    assert world.placed() == ["b"]


def test_jobs_are_tried_by_priority_then_arrival(world: World) -> None:
    for name, priority in (("late", 0), ("low", -5), ("high", 10)):
        world.submit(world.job(name, 1, priority=priority))
        world.after(1)
    world.submit(world.job("later", 1))
    assert world.placed() == ["high", "late", "later", "low"]


def test_later_decisions_of_a_pass_see_earlier_ones(world: World) -> None:
    for name in ("a", "b", "c"):
        world.submit(world.job(name, 4, floor=4))
    assert world.placed() == ["a", "b"]
    assert (world.where("a"), world.where("b")) == (
        {"n1": {"ps": 1, "worker": 4}},
        {"n2": {"ps": 1, "worker": 4}},
    )


def test_the_first_place_is_attempt_1_and_says_where(world: World) -> None:
    world.submit(world.job("a", 10, floor=4))
    (place,) = world.decide()
    assert isinstance(place, Place)
    assert (place.attempt, place.generation, len(place.replicas)) == (1, 1, 9)
    assert place.reason.message == "9 of 11 replicas on 2 nodes"


def test_a_waiting_job_is_told_once_and_again_when_the_numbers_change(world: World) -> None:
    world.submit(world.job("a", 9, floor=9))
    assert world.waits()["a"].numbers["free.gpu"] == 8000
    assert world.decide() == []
    world.node("n3", gpu=0)
    assert world.decide() == []
    wake = world.pool.next_wake(world.now)
    assert wake is not None
    world.after((wake - world.now) / 1_000_000)
    assert world.waits()["a"].numbers["nodes"] == 3


def test_a_changed_code_is_told_at_once(empty: World) -> None:
    empty.submit(empty.job("a", 9, floor=9))
    assert empty.waits()["a"].code == "NoMatchingNode"
    empty.node("n1")
    assert empty.waits()["a"].code == "InsufficientResources"


def test_a_decision_tells_no_more_than_the_bus_takes_at_once(empty: World) -> None:
    for number in range(300):
        empty.submit(empty.job(f"j{number:03d}", 1))
    first = empty.pool.decide(empty.now)
    assert len(first) == 256
    assert empty.pool.next_wake(empty.now) == empty.now
    told = len(empty.waits()) + len(empty.waits())
    assert told == 300
    assert empty.pool.next_wake(empty.now) is None


def test_a_name_in_use_waits_for_the_job_that_has_it(world: World) -> None:
    world.submit(world.job("a", 1), job_id="first")
    world.after(1)
    world.submit(world.job("a", 1, priority=9), job_id="second")
    world.submit(world.job("a", 1, namespace="other"), job_id="third")
    assert world.pool.decide(world.now)[0].job_id == "first"
    (wait,) = [one for one in world.decide() if isinstance(one, Wait)]
    assert (wait.job_id, wait.reason.code) == ("second", "NameInUse")
    assert "first" in wait.reason.message
    world.finish("first")
    assert world.placed() == ["second"]


def test_a_job_that_is_held_from_the_start_is_placed_once_it_is_resumed(world: World) -> None:
    world.submit(world.job("a", 1, run=RunPolicy(suspend=True)))
    assert world.decide() == []
    explained = world.pool.explain("a")
    assert explained is not None
    assert (explained.reason.code, explained.remedies) == ("Suspended", (Remedy(kind=RemedyKind.RESUME),))
    assert (world.pool.capacity(world.now).waiting, world.pool.next_wake(world.now)) == (0, None)
    world.say("a", events.CommandRequested(command=events.Command.RESUME, request_id="r"))
    assert world.placed() == ["a"]


def test_a_job_that_is_suspended_gives_its_room_and_keeps_its_place(world: World) -> None:
    world.run(world.job("a", 8, floor=8))
    world.submit(world.job("b", 8, floor=8))
    world.say("a", events.CommandRequested(command=events.Command.SUSPEND, request_id="s"))
    assert world.placed() == []
    world.change("a", ReplicaState.REMOVED)
    world.say("a", events.CommandRequested(command=events.Command.RESUME, request_id="r"))
    assert world.placed() == ["a"]


def test_cancelled_jobs_are_not_placed(world: World) -> None:
    world.submit(world.job("a", 1))
    world.say("a", events.CommandRequested(command=events.Command.CANCEL, request_id="r"))
    assert world.decide() == []


def test_a_settled_job_gives_its_room_back_and_is_forgotten(world: World) -> None:
    world.run(world.job("a", 8, floor=8))
    world.submit(world.job("b", 8, floor=8))
    assert world.waits()["b"].code == "InsufficientResources"
    world.finish("a")
    assert world.pool.record("a") is None
    assert world.placed() == ["b"]


def test_room_is_free_only_when_the_end_is_confirmed(world: World) -> None:
    world.run(world.job("a", 8, floor=8))
    reason = world.record("a").reason
    assert reason is not None
    world.say("a", events.JobFinished(outcome=events.Outcome.CANCELLED, reason=reason))
    world.submit(world.job("b", 8, floor=8))
    assert world.record("a").phase is Phase.CANCELLED
    assert world.placed() == []


def test_the_same_event_twice_changes_nothing(world: World) -> None:
    world.run(world.job("a", 4))
    before = world.record("a")
    for stored in list(world.stream):
        assert world.pool.observe(stored) is None
    assert world.record("a") == before
    world.finish("a")
    for stored in list(world.stream):
        assert world.pool.observe(stored) is None
    assert world.pool.records == {}


def test_an_illegal_event_is_said_and_moves_nothing(world: World) -> None:
    world.submit(world.job("a", 1))
    event = events.JobPlaced(attempt=7, generation=1, pool="here", replicas=())
    assert world.say("a", event) is not None
    assert world.record("a").phase is Phase.QUEUED


def test_a_restored_state_decides_the_same(world: World) -> None:
    world.run(world.job("a", 4))
    for name in ("b", "c", "d"):
        world.submit(world.job(name, 3, floor=3))
    again = PoolState(pool="here")
    again.restore(world.pool.records.values())
    for name in ("n2", "n1"):
        node = events.NodeChanged(pool="here", node=world.nodes[name])
        again.observe_node(node)
    assert again.decide(world.now) == world.pool.decide(world.now)
    again.check_invariants()
    assert again.capacity(world.now) == world.pool.capacity(world.now)


def test_other_pools_nodes_are_not_ours(empty: World) -> None:
    empty.node("n1")
    node = empty.nodes["n1"]
    empty.pool.observe_node(events.NodeChanged(pool="there", node=node, gone=True))
    empty.submit(empty.job("a", 1))
    assert empty.placed() == ["a"]


def test_a_node_that_is_gone_gets_nothing(world: World) -> None:
    world.node("n1", gone=True)
    world.submit(world.job("a", 4))
    world.decide()
    assert world.where("a") == {"n2": {"ps": 1, "worker": 4}}


def test_capacity_tells_totals_and_who_waits_for_room(world: World) -> None:
    world.run(world.job("a", 4))
    started = world.now
    world.after(10)
    world.submit(world.job("feasible", 8, floor=8))
    world.submit(world.job("hopeless", 9, floor=9))
    world.decide()
    capacity = world.pool.capacity(world.now)
    assert (capacity.free, capacity.allocatable) == (
        Resources(cpu=27_000, gpu=4000),
        Resources(cpu=32_000, gpu=8000),
    )
    assert (capacity.waiting, capacity.waiting_feasible) == (2, 1)
    assert (capacity.oldest_wait_at, capacity.decided_at) == (world.now, started)


def test_explain_says_who_is_ahead(world: World) -> None:
    world.submit(world.job("a", 9, floor=9))
    world.after(1)
    world.submit(world.job("b", 9, floor=9))
    explanation = world.pool.explain("b")
    assert explanation is not None
    assert (explanation.position, explanation.ahead) == (2, ("a",))
    assert explanation.reason.code == "InsufficientResources"
    assert explanation.feasible_when_empty is False
    world.run(world.job("c", 1))
    running = world.pool.explain("c")
    assert running is not None
    assert (running.position, running.reason.code) == (0, "Running")
    assert world.pool.explain("nobody") is None


def test_24_two_large_gangs_never_start_in_part_and_never_block_each_other(world: World) -> None:
    for number in range(1_000):
        names = (f"a{number}", f"b{number}")
        for name in names:
            world.submit(world.job(name, 5, floor=5, servers=0))
        assert world.placed() == [names[0]]
        assert len(world.record(names[0]).members()) == 5
        world.finish(names[0])
        assert world.placed() == [names[1]]
        world.finish(names[1])
    assert world.pool.records == {}


def test_a_record_without_a_job_does_not_matter(world: World) -> None:
    world.pool.restore([JobRecord(job_id="x", applied_sequence=1, name="x")])
    assert world.decide() == []
    assert world.pool.explain("x") is not None
