"""Preemption and reclaim: preemptors, victims, their order, and no needless eviction."""

from __future__ import annotations

import pytest

from muster_core import events
from muster_core.models import Phase, QueuePolicy, QueueSpec, ReplicaState, ResourceLimits, Resources
from muster_core.scheduling import Evict, Place, Resize
from muster_testing.pool import ScenarioPool

BY_PRIORITY = QueueSpec(name="default", preempts_within=True)


def gpus(number: int) -> Resources:
    return Resources(gpu=number * 1000)


def evicted(pool: ScenarioPool) -> list[str]:
    return [one.job_id for one in pool.decide() if isinstance(one, Evict)]


def end(pool: ScenarioPool, *job_ids: str) -> None:
    for job_id in job_ids:
        pool.report(job_id, ReplicaState.EXITED)


def test_a_priority_preempts_only_in_a_queue_that_allows_it(pool: ScenarioPool) -> None:
    pool.run(pool.rigid("low", 8))
    pool.submit(pool.rigid("high", 1, priority=9))
    assert evicted(pool) == []


def test_a_higher_priority_evicts_the_lowest_and_youngest(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY)
    for name, priority in (("middle", 5), ("old", 1), ("young", 1), ("high", 9)):
        pool.run(pool.rigid(name, 2, priority=priority))
        pool.after(1)
    pool.submit(pool.rigid("urgent", 2, priority=6))
    decided = pool.decide()
    (evict,) = [one for one in decided if isinstance(one, Evict)]
    assert (evict.job_id, evict.reason.code) == ("young", "Preempted")
    assert evict.reason.message == "the gang is evicted for urgent (urgent), which has priority 6"
    assert pool.decide() == []
    end(pool, "young")
    assert pool.placed() == ["urgent"]
    assert pool.record("young").phase in (Phase.EVICTED, Phase.QUEUED)


def test_equal_priorities_do_not_preempt_each_other(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY)
    pool.run(pool.rigid("a", 8, priority=1))
    pool.submit(pool.rigid("b", 1, priority=1))
    assert evicted(pool) == []


def test_a_job_that_is_not_preemptible_is_no_victim(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY)
    pool.run(pool.rigid("low", 8, preemptible=False))
    pool.submit(pool.rigid("high", 1, priority=9))
    assert evicted(pool) == []


def test_no_victim_is_evicted_if_the_gang_does_not_fit_then(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY)
    pool.run(pool.rigid("pinned", 4, preemptible=False))
    pool.run(pool.rigid("low", 4))
    pool.submit(pool.rigid("high", 5, priority=9))
    assert evicted(pool) == []
    pool.submit(pool.rigid("less", 4, priority=9))
    assert evicted(pool) == ["low"]


def test_the_newest_replicas_above_the_minimum_are_removed_first(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY)
    pool.run(pool.job("elastic", 5, floor=2, servers=0))
    pool.run(pool.rigid("rigid", 3))
    pool.submit(pool.rigid("high", 2, priority=9))
    (resize,) = pool.resizes()
    assert (resize.job_id, resize.policy, resize.reason.code) == ("elastic", "preemption", "Preempted")
    assert {one.index for one in resize.removed} == {3, 4}
    assert pool.decide() == []
    pool.report("elastic", ReplicaState.EXITED, ("worker", 3), ("worker", 4))
    assert pool.placed() == ["high"]


def test_only_replicas_that_help_are_removed(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY)
    pool.add_node("n1", gpu=2)
    pool.run(pool.job("a", 2, servers=0))
    pool.run(pool.job("b", 4, servers=0))
    pool.submit(pool.rigid("high", 1, worker=Resources(cpu=1000, gpu=2000), priority=9))
    resizes = pool.resizes()
    assert [(one.job_id, len(one.removed)) for one in resizes] == [("b", 2)]


def test_a_gang_is_evicted_if_surplus_replicas_do_not_suffice(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY)
    pool.run(pool.job("a", 4, floor=3, servers=0))
    pool.run(pool.job("b", 4, floor=3, servers=0))
    pool.after(1)
    pool.submit(pool.rigid("high", 4, priority=9))
    decided = [one for one in pool.decide() if isinstance(one, Evict | Resize)]
    assert [type(one) for one in decided] == [Evict]


def test_a_victim_that_is_not_needed_stays(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY)
    pool.run(pool.rigid("large", 4))
    pool.run(pool.rigid("pinned", 2, preemptible=False))
    for name in ("s1", "s2"):
        pool.after(1)
        pool.run(pool.rigid(name, 1))
    pool.submit(pool.rigid("high", 1, worker=Resources(cpu=1000, gpu=4000), priority=9))
    assert evicted(pool) == ["large"]


def test_a_queue_reclaims_its_guarantee(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", guaranteed=gpus(4)), QueueSpec(name="b", guaranteed=gpus(4)))
    for at in range(4):
        pool.run(pool.rigid(f"b{at}", 2, queue="b", priority=100))
        pool.after(1)
    pool.submit(pool.rigid("a0", 2, queue="a"))
    decided = [one for one in pool.decide() if isinstance(one, Evict)]
    assert [(one.job_id, one.reason.code) for one in decided] == [("b3", "Reclaimed")]
    assert decided[0].reason.message == "the gang is evicted for a0 (a0): queue a reclaims its guarantee"
    end(pool, "b3")
    assert pool.placed() == ["a0"]
    pool.submit(pool.rigid("a1", 2, queue="a"))
    assert evicted(pool) == ["b2"]
    end(pool, "b2")
    assert pool.placed() == ["a1"]
    pool.submit(pool.rigid("a2", 1, queue="a"))
    assert evicted(pool) == []


def test_a_borrower_is_not_preempted_for_another_borrower(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", guaranteed=gpus(2)), QueueSpec(name="b"))
    pool.run(pool.rigid("x", 8, queue="b"))
    pool.submit(pool.rigid("y", 3, queue="a"))
    assert evicted(pool) == []


def test_a_guarantee_of_cpus_reclaims_no_gpus(pool: ScenarioPool) -> None:
    pool.queues(
        QueueSpec(name="a", guaranteed=Resources(cpu=8000, gpu=4000)),
        QueueSpec(name="b", guaranteed=Resources(cpu=8000)),
    )
    pool.run(pool.rigid("x", 8, queue="b"))
    pool.submit(pool.rigid("y", 4, queue="a"))
    assert evicted(pool) == ["x"]
    end(pool, "x")
    assert pool.placed() == ["y"]
    assert evicted(pool) == []


def test_a_queue_that_must_not_reclaim_waits(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", guaranteed=gpus(4), reclaims=False), QueueSpec(name="b"))
    pool.run(pool.rigid("x", 8, queue="b"))
    pool.submit(pool.rigid("y", 2, queue="a"))
    assert evicted(pool) == []


def test_siblings_below_one_guarantee_do_not_reclaim_from_each_other(pool: ScenarioPool) -> None:
    pool.queues(
        QueueSpec(name="org", guaranteed=gpus(8)),
        QueueSpec(name="a", parent="org", guaranteed=gpus(4)),
        QueueSpec(name="b", parent="org", guaranteed=gpus(2)),
        QueueSpec(name="c", parent="org"),
    )
    pool.run(pool.rigid("b0", 2, queue="b"))
    pool.run(pool.rigid("c0", 6, queue="c"))
    pool.submit(pool.rigid("a0", 2, queue="a"))
    assert evicted(pool) == ["c0"]


def test_freed_capacity_is_reserved_for_the_preemptor(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY, QueueSpec(name="other", weight=1000))
    pool.run(pool.rigid("a", 4))
    pool.run(pool.rigid("b", 4))
    pool.submit(pool.rigid("high", 8, priority=9))
    assert sorted(evicted(pool)) == ["a", "b"]
    pool.submit(pool.rigid("thief", 1, queue="other"))
    end(pool, "a")
    assert pool.placed() == []
    end(pool, "b")
    assert pool.placed() == ["high"]


def test_freed_capacity_is_free_for_all_when_the_preemptor_is_cancelled(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY)
    pool.run(pool.rigid("low", 8))
    pool.submit(pool.rigid("high", 8, priority=9))
    assert evicted(pool) == ["low"]
    pool.publish("high", events.CommandRequested(command=events.Command.CANCEL, request_id="r"))
    end(pool, "low")
    assert pool.placed() == ["low"]


def test_a_priority_frees_a_limit(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", preempts_within=True, limit=ResourceLimits(gpu=4000)))
    pool.run(pool.rigid("low", 4, queue="a"))
    pool.submit(pool.rigid("high", 2, queue="a", priority=9))
    assert evicted(pool) == ["low"]
    end(pool, "low")
    assert pool.placed() == ["high"]


@pytest.mark.parametrize("rounds", [30])
def test_no_two_jobs_preempt_each_other_in_turn(pool: ScenarioPool, rounds: int) -> None:
    pool.queues(
        QueueSpec(name="a", guaranteed=gpus(4), preempts_within=True),
        QueueSpec(name="b", guaranteed=gpus(4), preempts_within=True),
    )
    for queue in "ab":
        for at in range(6):
            pool.submit(pool.rigid(f"{queue}{at}", 2, queue=queue, priority=at % 3))
            pool.after(1)
            pool.settle()
    evictions = 0
    for _ in range(rounds):
        pool.after(40)
        evictions += sum(isinstance(one, Evict) for one in pool.settle())
    assert evictions == 0
    held = {one.spec.name: one.allocated.gpu for one in pool.state.queue_report()}
    assert (held["a"], held["b"]) == (4000, 4000)


def test_several_preemptors_are_served_in_one_cycle(pool: ScenarioPool) -> None:
    pool.queues(BY_PRIORITY)
    for at in range(4):
        pool.run(pool.rigid(f"low{at}", 2))
    for at in range(2):
        pool.submit(pool.rigid(f"high{at}", 2, priority=9))
    victims = evicted(pool)
    assert len(victims) == 2
    end(pool, *victims)
    assert [one.job_id for one in pool.decide() if isinstance(one, Place)] == ["high0", "high1"]


def test_a_victim_does_not_take_the_freed_limit_before_its_preemptor(pool: ScenarioPool) -> None:
    """Both submitters have no usage, so that the queue order alone would place the victim first."""
    pool.queues(
        QueueSpec(
            name="default", limit=ResourceLimits(gpu=2000), policy=QueuePolicy.DRF, preempts_within=True
        )
    )
    pool.submit(pool.job("low", 2, floor=2, servers=0, priority=0), submitter="ann")
    pool.settle()
    pool.submit(pool.job("high", 2, floor=2, servers=0, priority=1), submitter="bob")
    moves = [(type(one), one.job_id) for one in pool.settle() if isinstance(one, Evict | Place)]
    assert moves == [(Evict, "low"), (Place, "high")]


def test_a_victim_of_a_queue_below_does_not_take_its_capacity_back(pool: ScenarioPool) -> None:
    """Both are within guarantees, but only the child queue may reclaim from the jobs of its parent."""
    third = Resources(cpu=1000, gpu=300)
    parent = QueueSpec(name="a", guaranteed=Resources(gpu=4000), limit=ResourceLimits(cpu=6000))
    pool.queues(parent, QueueSpec(name="b", parent="a", guaranteed=Resources(gpu=4000)))
    pool.run(pool.job("other", 3, servers=0, worker=Resources(cpu=1000), queue="a"))
    pool.run(pool.job("own", 1, servers=0, worker=third, queue="a"))
    pool.submit(pool.job("below", 3, floor=3, servers=0, worker=third, queue="b"))

    pool.decide()

    assert pool.record("own").phase is Phase.EVICTED
    pool.report("own", ReplicaState.EXITED)
    assert pool.placed() == ["below"]
    pool.report("below", ReplicaState.RUNNING)
    pool.after(1)
    assert pool.placed() == []
    assert pool.record("below").phase is Phase.RUNNING
