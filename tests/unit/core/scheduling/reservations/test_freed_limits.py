"""Whoever others had to leave for goes first, also where what they gave up is not room but a limit."""

from __future__ import annotations

from muster_core.models import Phase, QueuePolicy, QueueSpec, ReplicaState, Resources
from muster_core.scheduling import Evict, Place
from muster_testing.pool import ScenarioPool


def test_a_victim_does_not_take_the_limit_back_before_its_evictor(pool: ScenarioPool) -> None:
    """Both submitters hold nothing, so that the order of the queue alone would let the victim go first."""
    pool.queues(
        QueueSpec(
            name="default",
            limit=Resources(gpu=2000),
            policy=QueuePolicy.DRF,
            preempts_within=True,
        )
    )
    pool.submit(pool.job("low", 2, floor=2, servers=0, priority=0), submitter="ann")
    pool.settle()
    pool.submit(pool.job("high", 2, floor=2, servers=0, priority=1), submitter="bob")
    moves = [(type(one), one.job_id) for one in pool.settle() if isinstance(one, Evict | Place)]
    assert moves == [(Evict, "low"), (Place, "high")]


def test_who_is_evicted_for_a_queue_below_does_not_take_its_room_again(pool: ScenarioPool) -> None:
    """Both are within guarantees, but the queue below may take from its parent's own jobs, and these may not take from it."""
    third = Resources(cpu=1000, gpu=300)
    parent = QueueSpec(name="a", guaranteed=Resources(gpu=4000), limit=Resources(cpu=6000))
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
