"""Room taken by force: by whom, of whom, in which order, and never for nothing."""

from __future__ import annotations

import msgspec
import pytest

from muster_core import events
from muster_core.models import Job, Phase, QueueSpec, ReplicaState, Resources
from muster_core.scheduling import Evict, Place, Resize
from muster_testing.pool import ScenarioPool

BY_PRIORITY = QueueSpec(name="default", preempts_within=True)


def gpus(number: int) -> Resources:
    return Resources(gpu=number * 1000)


def plain(
    pool: ScenarioPool, name: str, size: int, *, worker: Resources | None = None, **rest: object
) -> Job:
    """A rigid job of ``worker`` replicas (of one GPU each unless said) without a ps; ``rest`` replaces fields of the job."""
    job = pool.job(name, size, floor=size, servers=0, worker=worker or Resources(cpu=1000, gpu=1000))
    return msgspec.structs.replace(job, **rest)


def evicted(pool: ScenarioPool) -> list[str]:
    return [one.job_id for one in pool.decide() if isinstance(one, Evict)]


def gone(pool: ScenarioPool, *job_ids: str) -> None:
    for job_id in job_ids:
        pool.report(job_id, ReplicaState.EXITED)


def test_priority_takes_nothing_unless_the_queue_says_so(pool: ScenarioPool) -> None:
    pool.run(plain(pool, "low", 8))
    pool.submit(plain(pool, "high", 1, priority=9))
    assert evicted(pool) == []


def test_a_higher_priority_evicts_the_lowest_and_youngest(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY)
    for name, priority in (("middle", 5), ("old", 1), ("young", 1), ("high", 9)):
        pool.run(plain(pool, name, 2, priority=priority))
        pool.after(1)
    pool.submit(plain(pool, "urgent", 2, priority=6))
    decided = pool.decide()
    (evict,) = [one for one in decided if isinstance(one, Evict)]
    assert (evict.job_id, evict.reason.code) == ("young", "Preempted")
    assert evict.reason.message == "the gang is evicted for urgent (urgent), which has priority 6"
    assert pool.decide() == []
    gone(pool, "young")
    assert pool.placed() == ["urgent"]
    assert pool.record("young").phase in (Phase.EVICTED, Phase.QUEUED)


def test_equal_priorities_take_nothing_of_each_other(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY)
    pool.run(plain(pool, "a", 8, priority=1))
    pool.submit(plain(pool, "b", 1, priority=1))
    assert evicted(pool) == []


def test_who_may_not_be_preempted_never_is(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY)
    pool.run(plain(pool, "low", 8, preemptible=False))
    pool.submit(plain(pool, "high", 1, priority=9))
    assert evicted(pool) == []


def test_nobody_leaves_unless_the_gang_then_really_fits(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY)
    pool.run(plain(pool, "pinned", 4, preemptible=False))
    pool.run(plain(pool, "low", 4))
    pool.submit(plain(pool, "high", 5, priority=9))
    assert evicted(pool) == []
    pool.submit(plain(pool, "less", 4, priority=9))
    assert evicted(pool) == ["low"]


def test_members_above_the_minimum_go_first_the_newest_first(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY)
    pool.run(pool.job("elastic", 5, floor=2, servers=0))
    pool.run(plain(pool, "rigid", 3))
    pool.submit(plain(pool, "high", 2, priority=9))
    (resize,) = pool.resizes()
    assert (resize.job_id, resize.policy, resize.reason.code) == ("elastic", "preemption", "Preempted")
    assert {one.index for one in resize.removed} == {3, 4}
    assert pool.decide() == []
    pool.report("elastic", ReplicaState.EXITED, ("worker", 3), ("worker", 4))
    assert pool.placed() == ["high"]


def test_only_members_that_help_leave(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY)
    pool.add_node("n1", gpu=2)
    pool.run(pool.job("a", 2, servers=0))
    pool.run(pool.job("b", 4, servers=0))
    pool.submit(plain(pool, "high", 1, worker=Resources(cpu=1000, gpu=2000), priority=9))
    resizes = pool.resizes()
    assert [(one.job_id, len(one.removed)) for one in resizes] == [("b", 2)]


def test_a_whole_gang_leaves_when_what_is_above_the_minima_does_not_do(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY)
    pool.run(pool.job("a", 4, floor=3, servers=0))
    pool.run(pool.job("b", 4, floor=3, servers=0))
    pool.after(1)
    pool.submit(plain(pool, "high", 4, priority=9))
    decided = [one for one in pool.decide() if isinstance(one, Evict | Resize)]
    assert [type(one) for one in decided] == [Evict]


def test_whoever_is_not_needed_stays(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY)
    pool.run(plain(pool, "large", 4))
    pool.run(plain(pool, "pinned", 2, preemptible=False))
    for name in ("s1", "s2"):
        pool.after(1)
        pool.run(plain(pool, name, 1))
    pool.submit(plain(pool, "high", 1, worker=Resources(cpu=1000, gpu=4000), priority=9))
    assert evicted(pool) == ["large"]


def test_a_queue_takes_back_what_it_is_guaranteed(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", guaranteed=gpus(4)), QueueSpec(name="b", guaranteed=gpus(4)))
    for at in range(4):
        pool.run(plain(pool, f"b{at}", 2, queue="b", priority=100))
        pool.after(1)
    pool.submit(plain(pool, "a0", 2, queue="a"))
    decided = [one for one in pool.decide() if isinstance(one, Evict)]
    assert [(one.job_id, one.reason.code) for one in decided] == [("b3", "Reclaimed")]
    assert decided[0].reason.message == "the gang is evicted for a0 (a0): queue a reclaims its guarantee"
    gone(pool, "b3")
    assert pool.placed() == ["a0"]
    pool.submit(plain(pool, "a1", 2, queue="a"))
    assert evicted(pool) == ["b2"]
    gone(pool, "b2")
    assert pool.placed() == ["a1"]
    pool.submit(plain(pool, "a2", 1, queue="a"))
    assert evicted(pool) == []


def test_what_a_queue_borrows_is_not_taken_for_what_another_would_borrow(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", guaranteed=gpus(2)), QueueSpec(name="b"))
    pool.run(plain(pool, "x", 8, queue="b"))
    pool.submit(plain(pool, "y", 3, queue="a"))
    assert evicted(pool) == []


def test_a_guarantee_of_cpus_takes_no_gpus_back(pool: ScenarioPool) -> None:
    pool.queues(
        QueueSpec(name="a", guaranteed=Resources(cpu=8000, gpu=4000)),
        QueueSpec(name="b", guaranteed=Resources(cpu=8000)),
    )
    pool.run(plain(pool, "x", 8, queue="b"))
    pool.submit(plain(pool, "y", 4, queue="a"))
    assert evicted(pool) == ["x"]
    gone(pool, "x")
    assert pool.placed() == ["y"]
    assert evicted(pool) == []


def test_a_queue_that_does_not_reclaim_waits(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", guaranteed=gpus(4), reclaims=False), QueueSpec(name="b"))
    pool.run(plain(pool, "x", 8, queue="b"))
    pool.submit(plain(pool, "y", 2, queue="a"))
    assert evicted(pool) == []


def test_siblings_below_one_guarantee_take_nothing_of_each_other(pool: ScenarioPool) -> None:
    pool.queues(
        QueueSpec(name="org", guaranteed=gpus(8)),
        QueueSpec(name="a", parent="org", guaranteed=gpus(4)),
        QueueSpec(name="b", parent="org", guaranteed=gpus(2)),
        QueueSpec(name="c", parent="org"),
    )
    pool.run(plain(pool, "b0", 2, queue="b"))
    pool.run(plain(pool, "c0", 6, queue="c"))
    pool.submit(plain(pool, "a0", 2, queue="a"))
    assert evicted(pool) == ["c0"]


def test_freed_room_is_kept_for_whom_it_was_freed(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY, QueueSpec(name="other", weight=1000))
    pool.run(plain(pool, "a", 4))
    pool.run(plain(pool, "b", 4))
    pool.submit(plain(pool, "high", 8, priority=9))
    assert sorted(evicted(pool)) == ["a", "b"]
    pool.submit(plain(pool, "thief", 1, queue="other"))
    gone(pool, "a")
    assert pool.placed() == []
    gone(pool, "b")
    assert pool.placed() == ["high"]


def test_freed_room_is_everybodys_when_it_is_given_up(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY)
    pool.run(plain(pool, "low", 8))
    pool.submit(plain(pool, "high", 8, priority=9))
    assert evicted(pool) == ["low"]
    pool.publish("high", events.CommandRequested(command=events.Command.CANCEL, request_id="r"))
    gone(pool, "low")
    assert pool.placed() == ["low"]


def test_priority_makes_room_within_a_limit(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", preempts_within=True, limit=gpus(4)))
    pool.run(plain(pool, "low", 4, queue="a"))
    pool.submit(plain(pool, "high", 2, queue="a", priority=9))
    assert evicted(pool) == ["low"]
    gone(pool, "low")
    assert pool.placed() == ["high"]


@pytest.mark.parametrize("rounds", [30])
def test_nobody_is_evicted_to_and_fro(pool: ScenarioPool, rounds: int) -> None:
    pool.queues(
        QueueSpec(name="a", guaranteed=gpus(4), preempts_within=True),
        QueueSpec(name="b", guaranteed=gpus(4), preempts_within=True),
    )
    for queue in "ab":
        for at in range(6):
            pool.submit(plain(pool, f"{queue}{at}", 2, queue=queue, priority=at % 3))
            pool.after(1)
            pool.settle()
    evictions = 0
    for _ in range(rounds):
        pool.after(40)
        evictions += sum(isinstance(one, Evict) for one in pool.settle())
    assert evictions == 0
    held = {one.spec.name: one.allocated.gpu for one in pool.state.queue_report()}
    assert (held["a"], held["b"]) == (4000, 4000)


def test_several_claims_are_made_room_for_together(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY)
    for at in range(4):
        pool.run(plain(pool, f"low{at}", 2))
    for at in range(2):
        pool.submit(plain(pool, f"high{at}", 2, priority=9))
    leaving = evicted(pool)
    assert len(leaving) == 2
    gone(pool, *leaving)
    assert [one.job_id for one in pool.decide() if isinstance(one, Place)] == ["high0", "high1"]
