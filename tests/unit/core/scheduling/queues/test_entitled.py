"""Whoever others had to leave for goes first, also where what they gave up is not room but a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster_core.models import Phase, QueuePolicy, QueueSpec, ReplicaState, Resources
from muster_core.scheduling import Evict, Place

if TYPE_CHECKING:
    from conftest import World


def test_a_victim_does_not_take_the_limit_back_before_its_evictor(world: World) -> None:
    """Both submitters hold nothing, so that the order of the queue alone would let the victim go first."""
    world.queues(
        QueueSpec(
            name="default",
            limit=Resources(gpu=2000),
            policy=QueuePolicy.DRF,
            preempts_within=True,
        )
    )
    world.submit(world.job("low", 2, floor=2, servers=0, priority=0), submitter="ann")
    world.settle()
    world.submit(world.job("high", 2, floor=2, servers=0, priority=1), submitter="bob")
    moves = [(type(one), one.job_id) for one in world.settle() if isinstance(one, Evict | Place)]
    assert moves == [(Evict, "low"), (Place, "high")]


def test_who_is_evicted_for_a_queue_below_does_not_take_its_room_again(world: World) -> None:
    """Both are within guarantees, but the queue below may take from its parent's own jobs, and these may not take from it."""
    third = Resources(cpu=1000, gpu=300)
    parent = QueueSpec(name="a", guaranteed=Resources(gpu=4000), limit=Resources(cpu=6000))
    world.queues(parent, QueueSpec(name="b", parent="a", guaranteed=Resources(gpu=4000)))
    world.run(world.job("other", 3, servers=0, worker=Resources(cpu=1000), queue="a"))
    world.run(world.job("own", 1, servers=0, worker=third, queue="a"))
    world.submit(world.job("below", 3, floor=3, servers=0, worker=third, queue="b"))

    world.decide()

    assert world.record("own").phase is Phase.EVICTED
    world.change("own", ReplicaState.EXITED)
    assert world.placed() == ["below"]
    world.change("below", ReplicaState.RUNNING)
    world.after(1)
    assert world.placed() == []
    assert world.record("below").phase is Phase.RUNNING
