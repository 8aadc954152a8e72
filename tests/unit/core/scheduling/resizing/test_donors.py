"""Proposals to shrink donors for a waiting job, each checked by the scheduler."""

from __future__ import annotations

import msgspec
import pytest

from muster_core import events
from muster_core.models import Phase, Reason, ReplicaState, Resources
from muster_core.scheduling import Place, Resize
from muster_testing.pool import ScenarioPool

WHY = Reason(code="StarvedJob", message="frees capacity")


def _give(*indices: int, size: int = 8, donors: int = 1, **rest: object) -> events.ScaleProposed:
    proposed = events.ScaleProposed(
        role="worker",
        size=size,
        target=size - len(indices),
        policy="dragon",
        attempt=1,
        generation=1,
        reason=WHY,
        removed=tuple(events.ReplicaRef(role="worker", index=index) for index in indices),
        beneficiary="b",
        donors=donors,
    )
    return msgspec.structs.replace(proposed, **rest)


def _wait(pool: ScenarioPool) -> None:
    """Job a fills both nodes, b waits for two workers."""
    pool.run(pool.job("a", 8, floor=2))
    pool.submit(pool.job("b", 2, floor=2))
    assert pool.placed() == []


def test_the_proposed_replicas_are_removed_for_the_beneficiary(pool: ScenarioPool) -> None:
    _wait(pool)
    pool.publish("a", _give(7, 6))
    (resize,) = pool.resizes()
    assert [ref.index for ref in resize.removed] == [7, 6]
    assert (resize.policy, resize.reason, resize.beneficiary) == ("dragon", WHY, "b")
    pool.submit(pool.job("thief", 1))
    pool.report("a", ReplicaState.EXITED, ("worker", 7))
    assert pool.placed() == []
    pool.report("a", ReplicaState.EXITED, ("worker", 6))
    assert pool.placed() == ["b"]
    assert pool.state.rejected_proposals == 0


def test_no_more_replicas_than_needed_are_removed(pool: ScenarioPool) -> None:
    _wait(pool)
    pool.publish("a", _give(7, 6, 5))
    (resize,) = pool.resizes()
    assert len(resize.removed) == 2


@pytest.mark.parametrize(
    "proposed",
    [
        _give(7),
        _give(7, 3),
        _give(7, 6, generation=2),
        _give(7, 6, attempt=2),
        _give(7, 6, target=5),
        _give(7, 0),
        _give(9, 8),
        _give(7, 7),
        _give(7, 6, 5, 4, 3, 2, 1),
        _give(7, 6, beneficiary="unknown"),
        _give(7, 6, beneficiary="a"),
        _give(7, 6, role="ps"),
    ],
    ids=[
        "too little",
        "on nodes that do not help together",
        "stale",
        "of another attempt",
        "of another number",
        "worker 0",
        "not members",
        "one twice",
        "below the minimum",
        "for an unknown job",
        "for one that runs",
        "of servers",
    ],
)
def test_a_useless_or_invalid_scale_down_is_rejected(
    pool: ScenarioPool, proposed: events.ScaleProposed
) -> None:
    if proposed.removed == _give(7, 3).removed:
        pool.run(pool.job("a", 8, floor=2))
        pool.submit(pool.job("b", 1, worker=Resources(cpu=1000, gpu=2000)))
        assert pool.placed() == []
    else:
        _wait(pool)
    pool.publish("a", proposed)
    assert pool.resizes() == []
    assert pool.state.rejected_proposals == 1
    assert pool.indices("a") == list(range(8))


def test_donors_shrink_only_when_the_proposals_are_complete(pool: ScenarioPool) -> None:
    for name in ("a", "c"):
        pool.run(pool.job(name, 4, floor=3))
    pool.submit(pool.job("b", 2, floor=2))
    pool.publish("a", _give(3, size=4, donors=2))
    assert pool.resizes() == []
    assert pool.state.rejected_proposals == 0
    pool.publish("c", _give(3, size=4, donors=2))
    assert {one.job_id for one in pool.resizes()} == {"a", "c"}


def test_proposals_for_one_beneficiary_are_rejected_together(pool: ScenarioPool) -> None:
    for name in ("a", "c"):
        pool.run(pool.job(name, 4, floor=3))
    pool.submit(pool.job("b", 2, floor=2))
    pool.publish("a", _give(3, size=4, donors=2))
    pool.publish("c", _give(3, size=4, donors=2, generation=7))
    assert pool.resizes() == []
    assert pool.state.rejected_proposals == 2


def test_a_beneficiary_that_no_longer_waits_gets_nothing(pool: ScenarioPool) -> None:
    _wait(pool)
    pool.finish("b")
    pool.publish("a", _give(7, 6))
    assert pool.resizes() == []
    assert pool.state.rejected_proposals == 1


def test_a_beneficiary_that_fits_after_terminations_gets_nothing_more(pool: ScenarioPool) -> None:
    _wait(pool)
    pool.scale("a", 6)
    assert len(pool.resizes()) == 1
    pool.publish("a", _give(5, 4, size=6, generation=2))
    assert pool.resizes() == []
    assert pool.state.rejected_proposals == 1


def test_freed_capacity_is_not_reserved_for_a_later_wait(pool: ScenarioPool) -> None:
    _wait(pool)
    pool.publish("a", _give(7, 6))
    pool.decide()
    pool.report("a", ReplicaState.EXITED, ("worker", 7), ("worker", 6))
    assert pool.placed() == ["b"]
    pool.report("b", ReplicaState.RUNNING)
    pool.after(1)
    pool.publish("b", events.JobEvicted(attempt=1, reason=WHY))
    pool.report("b", ReplicaState.EXITED)
    assert pool.record("b").phase is Phase.EVICTED
    assert not any(one.freed for one in pool.state.reservations)
    placed = [one for one in pool.decide() if isinstance(one, Place | Resize)]
    assert [one.job_id for one in placed] == ["b"]
    assert not pool.state.reservations
