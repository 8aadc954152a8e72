"""Running gangs grow and shrink by proposals and by manual sizes."""

from __future__ import annotations

import msgspec
import pytest

from muster_core import events
from muster_core.models import Reason, ReplicaState
from muster_core.scheduling import PoolState
from muster_testing.pool import ScenarioPool

IDLE = Reason(code="Idle", message="idle")
PROPOSED = events.ScaleProposed(
    role="worker", size=1, target=4, policy="dragon", attempt=1, generation=1, reason=IDLE
)


def test_a_proposal_grows_the_job_beside_its_ps(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 1, most=4))
    pool.publish("a", PROPOSED)
    (resize,) = pool.resizes()
    assert (resize.attempt, resize.generation, resize.policy) == (1, 2, "dragon")
    assert resize.reason == IDLE
    assert pool.where("a") == {"n1": {"ps": 1, "worker": 4}}
    assert pool.state.rejected_proposals == 0
    assert pool.decide() == []


def test_as_many_as_fit_are_added(pool: ScenarioPool) -> None:
    pool.run(pool.job("full", 6, servers=0))
    pool.run(pool.job("a", 1, most=4))
    pool.publish("a", PROPOSED)
    (resize,) = pool.resizes()
    assert len(resize.added) == 1


@pytest.mark.parametrize(
    "change",
    [{"generation": 2}, {"attempt": 2}, {"target": 5}, {"target": 1}, {"target": 0}, {"role": "chief"}],
    ids=str,
)
def test_a_stale_or_out_of_bounds_proposal_is_rejected(pool: ScenarioPool, change: dict[str, object]) -> None:
    pool.run(pool.job("a", 1, most=4))
    pool.publish("a", msgspec.structs.replace(PROPOSED, **change))
    assert pool.decide() == []
    assert pool.state.rejected_proposals == 1


def test_a_proposal_that_does_not_fit_is_rejected_for_good(pool: ScenarioPool) -> None:
    pool.run(pool.job("full", 7, servers=0))
    pool.run(pool.job("a", 1, most=4))
    pool.publish("a", PROPOSED)
    assert pool.decide() == []
    assert pool.state.rejected_proposals == 1
    pool.finish("full")
    assert pool.decide() == []


def test_waiting_gangs_come_before_proposals(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 1, most=4))
    pool.submit(pool.job("b", 7, floor=7, servers=0))
    pool.publish("a", PROPOSED)
    assert pool.placed() == ["b"]
    assert pool.state.rejected_proposals == 1


def test_a_manual_size_grows_and_shrinks_a_job(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 2, most=4))
    pool.scale("a", 4)
    (resize,) = pool.resizes()
    assert (resize.policy, resize.reason.message) == ("manual", "worker from 2 to 4 replicas")
    pool.report("a", ReplicaState.RUNNING)
    pool.scale("a", 1)
    (resize,) = pool.resizes()
    assert [one.index for one in resize.removed] == [3, 2, 1]
    assert pool.indices("a") == [0]


@pytest.mark.parametrize(("target", "left"), [(0, [0, 1]), (9, [0, 1, 2, 3])])
def test_a_manual_size_stays_within_the_bounds(pool: ScenarioPool, target: int, left: list[int]) -> None:
    pool.run(pool.job("a", 3, floor=2, most=4))
    pool.scale("a", target)
    pool.decide()
    assert pool.indices("a") == left


def test_index_0_and_pinned_roles_are_not_removed(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 3, floor=0, servers=2))
    pool.scale("a", 0)
    pool.scale("a", 1, role="ps")
    pool.decide()
    assert (pool.indices("a"), pool.indices("a", "ps")) == ([0], [0, 1])


def test_a_manual_size_keeps_min_available(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 4, min_available=4))
    pool.scale("a", 1)
    pool.decide()
    assert pool.indices("a") == [0, 1, 2]


def test_an_unreachable_manual_size_does_not_block_a_proposal(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 1, floor=0, most=4, servers=2))
    pool.scale("a", 0)
    pool.scale("a", 1, role="ps")
    assert pool.decide() == []
    pool.publish("a", PROPOSED)
    assert len(pool.resizes()) == 1


def test_a_manual_size_is_applied_when_capacity_is_free(pool: ScenarioPool) -> None:
    pool.run(pool.job("full", 7, servers=0))
    pool.run(pool.job("a", 1, most=3))
    pool.scale("a", 3)
    assert pool.decide() == []
    pool.finish("full")
    assert len(pool.resizes()) == 1
    assert pool.indices("a") == [0, 1, 2]


def test_a_later_manual_size_replaces_an_earlier_one(pool: ScenarioPool) -> None:
    pool.run(pool.job("full", 7, servers=0))
    pool.run(pool.job("a", 1, most=3))
    pool.scale("a", 3)
    pool.scale("a", 1)
    pool.finish("full")
    assert pool.decide() == []


def test_a_manual_size_overrides_a_proposal(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 1, most=4))
    pool.publish("a", PROPOSED)
    pool.scale("a", 2)
    pool.decide()
    assert pool.indices("a") == [0, 1]
    assert pool.state.rejected_proposals == 1


def test_a_manual_size_ends_with_the_attempt(pool: ScenarioPool) -> None:
    pool.run(pool.job("full", 7, servers=0))
    pool.run(pool.job("a", 1, most=3))
    pool.scale("a", 3)
    pool.report("a", ReplicaState.REJECTED, ("worker", 0))
    pool.publish("a", events.JobEvicted(attempt=1, reason=IDLE))
    pool.report("a", ReplicaState.EXITED)
    pool.finish("full")
    pool.decide()
    pool.report("a", ReplicaState.RUNNING)
    assert pool.decide() == []


def test_the_removed_index_is_used_again(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 4, most=4))
    removed = (events.ReplicaRef(role="worker", index=1),)
    pool.publish("a", events.JobResized(attempt=1, generation=2, reason=IDLE, removed=removed))
    pool.scale("a", 4)
    assert pool.decide() == []
    pool.report("a", ReplicaState.EXITED, ("worker", 1))
    (resize,) = pool.resizes()
    assert [one.index for one in resize.added] == [1]


def test_terminating_replicas_keep_their_allocation(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 8, servers=0))
    pool.scale("a", 4)
    pool.submit(pool.job("b", 4, floor=4, servers=0))
    pool.decide()
    assert pool.placed() == []
    pool.report("a", ReplicaState.EXITED, *(("worker", index) for index in range(4, 8)))
    assert pool.placed() == ["b"]


def test_a_job_is_resized_only_once_it_runs(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 1, most=4))
    pool.decide()
    pool.scale("a", 3)
    assert pool.decide() == []
    pool.report("a", ReplicaState.RUNNING)
    assert len(pool.resizes()) == 1


def test_a_request_for_an_unknown_job_is_ignored() -> None:
    pool = PoolState(pool="here")
    stored = events.StoredEvent(job_id="x", event=PROPOSED, sequence=1, at=1)
    assert pool.observe(stored) is not None
    assert pool.decide(2) == []
