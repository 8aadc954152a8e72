"""Room taken by force: by whom, of whom, in which order, and never for nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from muster_core import events
from muster_core.models import Job, Phase, QueueSpec, ReplicaState, Resources
from muster_core.scheduling import Evict, Place, Resize

if TYPE_CHECKING:
    from conftest import World

BY_PRIORITY = QueueSpec(name="default", preempts_within=True)


def gpus(number: int) -> Resources:
    return Resources(gpu=number * 1000)


def plain(world: World, name: str, size: int, *, worker: Resources | None = None, **rest: object) -> Job:
    """A rigid job of ``worker`` replicas (of one GPU each unless said) without a ps; ``rest`` replaces fields of the job."""
    job = world.job(name, size, floor=size, servers=0, worker=worker or Resources(cpu=1000, gpu=1000))
    return msgspec.structs.replace(job, **rest)


def evicted(world: World) -> list[str]:
    return [one.job_id for one in world.decide() if isinstance(one, Evict)]


def gone(world: World, *job_ids: str) -> None:
    for job_id in job_ids:
        world.change(job_id, ReplicaState.EXITED)


def test_priority_takes_nothing_unless_the_queue_says_so(world: World) -> None:
    world.run(plain(world, "low", 8))
    world.submit(plain(world, "high", 1, priority=9))
    assert evicted(world) == []


def test_a_higher_priority_evicts_the_lowest_and_youngest(world: World) -> None:
    world.queues(BY_PRIORITY)
    for name, priority in (("middle", 5), ("old", 1), ("young", 1), ("high", 9)):
        world.run(plain(world, name, 2, priority=priority))
        world.after(1)
    world.submit(plain(world, "urgent", 2, priority=6))
    decided = world.decide()
    (evict,) = [one for one in decided if isinstance(one, Evict)]
    assert (evict.job_id, evict.reason.code) == ("young", "Preempted")
    assert evict.reason.message == "the gang is evicted for urgent (urgent), which has priority 6"
    assert world.decide() == []
    gone(world, "young")
    assert world.placed() == ["urgent"]
    assert world.record("young").phase in (Phase.EVICTED, Phase.QUEUED)


def test_equal_priorities_take_nothing_of_each_other(world: World) -> None:
    world.queues(BY_PRIORITY)
    world.run(plain(world, "a", 8, priority=1))
    world.submit(plain(world, "b", 1, priority=1))
    assert evicted(world) == []


def test_who_may_not_be_preempted_never_is(world: World) -> None:
    world.queues(BY_PRIORITY)
    world.run(plain(world, "low", 8, preemptible=False))
    world.submit(plain(world, "high", 1, priority=9))
    assert evicted(world) == []


def test_nobody_leaves_unless_the_gang_then_really_fits(world: World) -> None:
    world.queues(BY_PRIORITY)
    world.run(plain(world, "pinned", 4, preemptible=False))
    world.run(plain(world, "low", 4))
    world.submit(plain(world, "high", 5, priority=9))
    assert evicted(world) == []
    world.submit(plain(world, "less", 4, priority=9))
    assert evicted(world) == ["low"]


def test_members_above_the_minimum_go_first_the_newest_first(world: World) -> None:
    world.queues(BY_PRIORITY)
    world.run(world.job("elastic", 5, floor=2, servers=0))
    world.run(plain(world, "rigid", 3))
    world.submit(plain(world, "high", 2, priority=9))
    (resize,) = world.resizes()
    assert (resize.job_id, resize.policy, resize.reason.code) == ("elastic", "preemption", "Preempted")
    assert {one.index for one in resize.removed} == {3, 4}
    assert world.decide() == []
    world.leave("elastic", ("worker", 3), ("worker", 4))
    assert world.placed() == ["high"]


def test_only_members_that_help_leave(world: World) -> None:
    world.queues(BY_PRIORITY)
    world.node("n1", gpu=2)
    world.run(world.job("a", 2, servers=0))
    world.run(world.job("b", 4, servers=0))
    world.submit(plain(world, "high", 1, worker=Resources(cpu=1000, gpu=2000), priority=9))
    resizes = world.resizes()
    assert [(one.job_id, len(one.removed)) for one in resizes] == [("b", 2)]


def test_a_whole_gang_leaves_when_what_is_above_the_minima_does_not_do(world: World) -> None:
    world.queues(BY_PRIORITY)
    world.run(world.job("a", 4, floor=3, servers=0))
    world.run(world.job("b", 4, floor=3, servers=0))
    world.after(1)
    world.submit(plain(world, "high", 4, priority=9))
    decided = [one for one in world.decide() if isinstance(one, Evict | Resize)]
    assert [type(one) for one in decided] == [Evict]


def test_whoever_is_not_needed_stays(world: World) -> None:
    world.queues(BY_PRIORITY)
    world.run(plain(world, "large", 4))
    world.run(plain(world, "pinned", 2, preemptible=False))
    for name in ("s1", "s2"):
        world.after(1)
        world.run(plain(world, name, 1))
    world.submit(plain(world, "high", 1, worker=Resources(cpu=1000, gpu=4000), priority=9))
    assert evicted(world) == ["large"]


def test_a_queue_takes_back_what_it_is_guaranteed(world: World) -> None:
    world.queues(QueueSpec(name="a", guaranteed=gpus(4)), QueueSpec(name="b", guaranteed=gpus(4)))
    for at in range(4):
        world.run(plain(world, f"b{at}", 2, queue="b", priority=100))
        world.after(1)
    world.submit(plain(world, "a0", 2, queue="a"))
    decided = [one for one in world.decide() if isinstance(one, Evict)]
    assert [(one.job_id, one.reason.code) for one in decided] == [("b3", "Reclaimed")]
    assert decided[0].reason.message == "the gang is evicted for a0 (a0): queue a reclaims its guarantee"
    gone(world, "b3")
    assert world.placed() == ["a0"]
    world.submit(plain(world, "a1", 2, queue="a"))
    assert evicted(world) == ["b2"]
    gone(world, "b2")
    assert world.placed() == ["a1"]
    world.submit(plain(world, "a2", 1, queue="a"))
    assert evicted(world) == []


def test_what_a_queue_borrows_is_not_taken_for_what_another_would_borrow(world: World) -> None:
    world.queues(QueueSpec(name="a", guaranteed=gpus(2)), QueueSpec(name="b"))
    world.run(plain(world, "x", 8, queue="b"))
    world.submit(plain(world, "y", 3, queue="a"))
    assert evicted(world) == []


def test_a_guarantee_of_cpus_takes_no_gpus_back(world: World) -> None:
    world.queues(
        QueueSpec(name="a", guaranteed=Resources(cpu=8000, gpu=4000)),
        QueueSpec(name="b", guaranteed=Resources(cpu=8000)),
    )
    world.run(plain(world, "x", 8, queue="b"))
    world.submit(plain(world, "y", 4, queue="a"))
    assert evicted(world) == ["x"]
    gone(world, "x")
    assert world.placed() == ["y"]
    assert evicted(world) == []


def test_a_queue_that_does_not_reclaim_waits(world: World) -> None:
    world.queues(QueueSpec(name="a", guaranteed=gpus(4), reclaims=False), QueueSpec(name="b"))
    world.run(plain(world, "x", 8, queue="b"))
    world.submit(plain(world, "y", 2, queue="a"))
    assert evicted(world) == []


def test_siblings_below_one_guarantee_take_nothing_of_each_other(world: World) -> None:
    world.queues(
        QueueSpec(name="org", guaranteed=gpus(8)),
        QueueSpec(name="a", parent="org", guaranteed=gpus(4)),
        QueueSpec(name="b", parent="org", guaranteed=gpus(2)),
        QueueSpec(name="c", parent="org"),
    )
    world.run(plain(world, "b0", 2, queue="b"))
    world.run(plain(world, "c0", 6, queue="c"))
    world.submit(plain(world, "a0", 2, queue="a"))
    assert evicted(world) == ["c0"]


def test_freed_room_is_kept_for_whom_it_was_freed(world: World) -> None:
    world.queues(BY_PRIORITY, QueueSpec(name="other", weight=1000))
    world.run(plain(world, "a", 4))
    world.run(plain(world, "b", 4))
    world.submit(plain(world, "high", 8, priority=9))
    assert sorted(evicted(world)) == ["a", "b"]
    world.submit(plain(world, "thief", 1, queue="other"))
    gone(world, "a")
    assert world.placed() == []
    gone(world, "b")
    assert world.placed() == ["high"]


def test_freed_room_is_everybodys_when_it_is_given_up(world: World) -> None:
    world.queues(BY_PRIORITY)
    world.run(plain(world, "low", 8))
    world.submit(plain(world, "high", 8, priority=9))
    assert evicted(world) == ["low"]
    world.say("high", events.CommandRequested(command=events.Command.CANCEL, request_id="r"))
    gone(world, "low")
    assert world.placed() == ["low"]


def test_priority_makes_room_within_a_limit(world: World) -> None:
    world.queues(QueueSpec(name="a", preempts_within=True, limit=gpus(4)))
    world.run(plain(world, "low", 4, queue="a"))
    world.submit(plain(world, "high", 2, queue="a", priority=9))
    assert evicted(world) == ["low"]
    gone(world, "low")
    assert world.placed() == ["high"]


@pytest.mark.parametrize("rounds", [30])
def test_nobody_is_evicted_to_and_fro(world: World, rounds: int) -> None:
    world.queues(
        QueueSpec(name="a", guaranteed=gpus(4), preempts_within=True),
        QueueSpec(name="b", guaranteed=gpus(4), preempts_within=True),
    )
    for queue in "ab":
        for at in range(6):
            world.submit(plain(world, f"{queue}{at}", 2, queue=queue, priority=at % 3))
            world.after(1)
            world.settle()
    evictions = 0
    for _ in range(rounds):
        world.after(40)
        evictions += sum(isinstance(one, Evict) for one in world.settle())
    assert evictions == 0
    held = {one.spec.name: one.allocated.gpu for one in world.pool.queue_report()}
    assert (held["a"], held["b"]) == (4000, 4000)


def test_several_claims_are_made_room_for_together(world: World) -> None:
    world.queues(BY_PRIORITY)
    for at in range(4):
        world.run(plain(world, f"low{at}", 2))
    for at in range(2):
        world.submit(plain(world, f"high{at}", 2, priority=9))
    leaving = evicted(world)
    assert len(leaving) == 2
    gone(world, *leaving)
    assert [one.job_id for one in world.decide() if isinstance(one, Place)] == ["high0", "high1"]
