"""Running gangs that grow and shrink: by proposal, and by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from muster_core import events
from muster_core.models import Reason, ReplicaState
from muster_core.scheduling import PoolState

if TYPE_CHECKING:
    from conftest import World

IDLE = Reason(code="Idle", message="idle")
PROPOSED = events.ScaleProposed(
    role="worker", size=1, target=4, policy="dragon", attempt=1, generation=1, reason=IDLE
)


def test_a_proposal_grows_the_job_beside_its_ps(world: World) -> None:
    world.run(world.job("a", 1, most=4))
    world.say("a", PROPOSED)
    (resize,) = world.resizes()
    assert (resize.attempt, resize.generation, resize.policy) == (1, 2, "dragon")
    assert resize.reason == IDLE
    assert world.where("a") == {"n1": {"ps": 1, "worker": 4}}
    assert world.pool.rejected_proposals == 0
    assert world.decide() == []


def test_as_many_as_fit_are_added(world: World) -> None:
    world.run(world.job("full", 6, servers=0))
    world.run(world.job("a", 1, most=4))
    world.say("a", PROPOSED)
    (resize,) = world.resizes()
    assert len(resize.added) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"generation": 2},
        {"attempt": 2},
        {"target": 5},
        {"target": 1},
        {"target": 0},
        {"role": "chief"},
    ],
    ids=str,
)
def test_a_proposal_that_is_stale_or_out_of_bounds_is_refused(
    world: World, change: dict[str, object]
) -> None:
    world.run(world.job("a", 1, most=4))
    world.say("a", msgspec.structs.replace(PROPOSED, **change))
    assert world.decide() == []
    assert world.pool.rejected_proposals == 1


def test_a_proposal_without_room_is_refused_for_good(world: World) -> None:
    world.run(world.job("full", 7, servers=0))
    world.run(world.job("a", 1, most=4))
    world.say("a", PROPOSED)
    assert world.decide() == []
    assert world.pool.rejected_proposals == 1
    world.finish("full")
    assert world.decide() == []


def test_waiting_gangs_come_before_proposals(world: World) -> None:
    world.run(world.job("a", 1, most=4))
    world.submit(world.job("b", 7, floor=7, servers=0))
    world.say("a", PROPOSED)
    assert world.placed() == ["b"]
    assert world.pool.rejected_proposals == 1


def test_a_job_is_scaled_by_hand(world: World) -> None:
    world.run(world.job("a", 2, most=4))
    world.scale("a", 4)
    (resize,) = world.resizes()
    assert (resize.policy, resize.reason.message) == ("manual", "worker from 2 to 4 replicas")
    world.change("a", ReplicaState.RUNNING)
    world.scale("a", 1)
    (resize,) = world.resizes()
    assert [one.index for one in resize.removed] == [3, 2, 1]
    assert world.indices("a") == [0]


@pytest.mark.parametrize(("target", "left"), [(0, [0, 1]), (9, [0, 1, 2, 3])])
def test_a_hand_stays_within_the_bounds(world: World, target: int, left: list[int]) -> None:
    world.run(world.job("a", 3, floor=2, most=4))
    world.scale("a", target)
    world.decide()
    assert world.indices("a") == left


def test_worker_0_and_pinned_roles_stay(world: World) -> None:
    world.run(world.job("a", 3, floor=0, servers=2))
    world.scale("a", 0)
    world.scale("a", 1, role="ps")
    world.decide()
    assert (world.indices("a"), world.indices("a", "ps")) == ([0], [0, 1])


def test_a_hand_leaves_the_job_its_min_available(world: World) -> None:
    world.run(world.job("a", 4, min_available=4))
    world.scale("a", 1)
    world.decide()
    assert world.indices("a") == [0, 1, 2]


def test_a_hand_that_asks_for_the_impossible_does_not_stand_in_the_way(world: World) -> None:
    world.run(world.job("a", 1, floor=0, most=4, servers=2))
    world.scale("a", 0)
    world.scale("a", 1, role="ps")
    assert world.decide() == []
    world.say("a", PROPOSED)
    assert len(world.resizes()) == 1


def test_a_hand_without_room_is_followed_when_there_is_room(world: World) -> None:
    world.run(world.job("full", 7, servers=0))
    world.run(world.job("a", 1, most=3))
    world.scale("a", 3)
    assert world.decide() == []
    world.finish("full")
    assert len(world.resizes()) == 1
    assert world.indices("a") == [0, 1, 2]


def test_a_later_hand_replaces_an_earlier_one(world: World) -> None:
    world.run(world.job("full", 7, servers=0))
    world.run(world.job("a", 1, most=3))
    world.scale("a", 3)
    world.scale("a", 1)
    world.finish("full")
    assert world.decide() == []


def test_a_hand_overrides_a_proposal(world: World) -> None:
    world.run(world.job("a", 1, most=4))
    world.say("a", PROPOSED)
    world.scale("a", 2)
    world.decide()
    assert world.indices("a") == [0, 1]
    assert world.pool.rejected_proposals == 1


def test_a_hand_lapses_with_the_attempt(world: World) -> None:
    world.run(world.job("full", 7, servers=0))
    world.run(world.job("a", 1, most=3))
    world.scale("a", 3)
    world.change("a", ReplicaState.REJECTED, ("worker", 0))
    world.say("a", events.JobEvicted(attempt=1, reason=IDLE))
    world.change("a", ReplicaState.EXITED)
    world.finish("full")
    world.decide()
    world.change("a", ReplicaState.RUNNING)
    assert world.decide() == []


def test_21_the_index_that_left_is_given_again(world: World) -> None:
    world.run(world.job("a", 4, most=4))
    removed = (events.ReplicaRef(role="worker", index=1),)
    world.say("a", events.JobResized(attempt=1, generation=2, reason=IDLE, removed=removed))
    world.scale("a", 4)
    assert world.decide() == []
    world.change("a", ReplicaState.EXITED, ("worker", 1))
    (resize,) = world.resizes()
    assert [one.index for one in resize.added] == [1]


def test_members_that_leave_hold_their_room(world: World) -> None:
    world.run(world.job("a", 8, servers=0))
    world.scale("a", 4)
    world.submit(world.job("b", 4, floor=4, servers=0))
    world.decide()
    assert world.placed() == []
    world.change("a", ReplicaState.EXITED, *(("worker", index) for index in range(4, 8)))
    assert world.placed() == ["b"]


def test_a_job_is_resized_only_once_it_runs(world: World) -> None:
    world.submit(world.job("a", 1, most=4))
    world.decide()
    world.scale("a", 3)
    assert world.decide() == []
    world.change("a", ReplicaState.RUNNING)
    assert len(world.resizes()) == 1


def test_a_request_for_an_unknown_job_does_not_matter() -> None:
    pool = PoolState(pool="here")
    stored = events.StoredEvent(job_id="x", event=PROPOSED, sequence=1, at=1)
    assert pool.observe(stored) is not None
    assert pool.decide(2) == []
