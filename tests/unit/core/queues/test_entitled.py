"""Whoever others had to leave for goes first, also where what they gave up is not room but a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster_core.models import QueuePolicy, QueueSpec, Resources
from muster_core.queues import Evict, Place

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
