"""Reasons are looked at now and then; what is told is what is so by then, and nothing is missed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster_core.models import ReplicaState, Resources
from muster_core.scheduling import Wait

if TYPE_CHECKING:
    from conftest import World

LOOK_S = 0.01


def waits(world: World) -> dict[str, int]:
    """Who is told to wait now, and how many GPUs are said to be free."""
    told = [one for one in world.decide() if isinstance(one, Wait)]
    return {one.job_id: one.reason.numbers["free.gpu"] // 1000 for one in told}


def test_a_new_job_of_a_shape_that_was_just_looked_at_is_told_at_once(world: World) -> None:
    world.submit(world.job("a", 9, floor=9))
    assert waits(world) == {"a": 8}
    world.after(LOOK_S / 2)
    world.submit(world.job("b", 9, floor=9))
    assert waits(world) == {"b": 8}


def test_numbers_that_changed_within_a_moment_are_told_when_they_are_looked_at_again(world: World) -> None:
    world.submit(world.job("a", 9, floor=9))
    assert waits(world) == {"a": 8}
    world.after(2)
    world.submit(world.job("b", 1, servers=0))
    assert waits(world) == {"a": 7}
    world.after(LOOK_S / 4)
    world.change("b", ReplicaState.RUNNING)
    world.change("b", ReplicaState.EXITED, exit_code=0)
    assert waits(world) == {}
    told: dict[str, int] = {}
    while not told and (due := world.pool.next_wake(world.now)) is not None:
        world.now = due
        told = waits(world)
    assert told == {"a": 8}


def test_a_pool_in_which_nothing_changes_is_not_looked_at_again(world: World) -> None:
    world.submit(world.job("a", 9, floor=9))
    world.submit(world.job("b", 10, floor=10, worker=Resources(cpu=1000, gpu=2000)))
    world.settle()
    world.after(29)
    assert waits(world) == {}
    due = world.pool.next_wake(world.now)
    # The one thing left to come is that somebody has waited too long.
    assert due is None or due >= world.now + 1_000_000
