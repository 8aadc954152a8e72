"""Attempts that end early: rejections, restarts, and room that is kept meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster_core import events
from muster_core.models import Phase, Reason, ReplicaState, RestartPolicy, RestartScope
from muster_core.scheduling import Evict

if TYPE_CHECKING:
    from conftest import World

FAILED = Reason(code="ReplicaFailed")


def _restart(world: World, job_id: str, seconds: int) -> None:
    attempt = world.record(job_id).attempt
    world.say(
        job_id,
        events.JobRestarting(
            scope=RestartScope.GANG, attempt=attempt, reason=FAILED, delay_ms=seconds * 1000
        ),
    )


def test_a_rejected_replica_takes_its_gang_down(world: World) -> None:
    world.submit(world.job("a", 2))
    world.decide()
    world.change("a", ReplicaState.REJECTED, ("worker", 1))
    (evict,) = world.decide()
    assert isinstance(evict, Evict)
    assert (evict.attempt, evict.reason.code) == (1, "RejectedByNode")
    assert evict.reason.message == "node n1 rejected a-worker-1"
    assert world.decide() == []


def test_an_evicted_gang_starts_again_when_all_of_it_has_ended(world: World) -> None:
    world.submit(world.job("a", 2))
    world.decide()
    world.change("a", ReplicaState.REJECTED, ("worker", 1))
    world.decide()
    world.change("a", ReplicaState.EXITED, ("worker", 0))
    assert world.decide() == []
    world.change("a", ReplicaState.EXITED)
    assert world.placed() == ["a"]
    assert world.record("a").attempt == 2


def test_repeated_rejections_are_spaced_out(world: World) -> None:
    world.submit(world.job("a", 2))
    for _ in range(2):
        assert world.placed() == ["a"]
        world.change("a", ReplicaState.REJECTED)
        world.decide()
    assert world.decide() == []
    assert world.pool.next_wake(world.now) == world.now + 1_000_000
    world.after(1)
    assert world.placed() == ["a"]


def test_a_delay_that_ends_at_this_instant_is_yet_to_be_decided_on(world: World) -> None:
    world.run(world.job("a", 2))
    _restart(world, "a", 10)
    world.change("a", ReplicaState.EXITED, exit_code=1)
    assert world.decide() == []
    world.after(10)
    assert world.pool.next_wake(world.now) == world.now
    assert world.placed() == ["a"]


def test_a_restarting_gang_waits_for_its_delay(world: World) -> None:
    world.run(world.job("a", 2))
    _restart(world, "a", 10)
    world.change("a", ReplicaState.EXITED, exit_code=1)
    assert world.decide() == []
    explanation = world.pool.explain("a")
    assert explanation is not None
    assert explanation.not_before == world.now + 10_000_000
    assert world.pool.next_wake(world.now) == world.now + 10_000_000
    world.after(10)
    assert world.placed() == ["a"]
    assert world.pool.next_wake(world.now) is None


def test_a_restarting_gang_keeps_its_place_in_the_queue(world: World) -> None:
    world.run(world.job("a", 8, floor=8))
    world.after(1)
    world.submit(world.job("b", 8, floor=8))
    world.decide()
    _restart(world, "a", 0)
    world.change("a", ReplicaState.EXITED, exit_code=1)
    assert world.placed() == ["a"]


def test_a_restarting_gang_that_no_longer_fits_waits(world: World) -> None:
    world.run(world.job("a", 8, floor=8))
    _restart(world, "a", 0)
    world.change("a", ReplicaState.EXITED, exit_code=1)
    world.node("n2", gone=True)
    assert world.waits()["a"].code == "InsufficientResources"
    assert world.record("a").phase is Phase.QUEUED


def test_room_of_a_replica_that_may_restart_where_it_was_is_kept(world: World) -> None:
    job = world.job("a", 8, floor=8, restart_policy=RestartPolicy.ON_FAILURE)
    world.run(job)
    world.change("a", ReplicaState.EXITED, ("worker", 3), exit_code=1)
    world.submit(world.job("b", 1))
    assert world.placed() == []
    world.say(
        "a",
        events.JobRestarting(
            scope=RestartScope.REPLICA,
            attempt=1,
            reason=FAILED,
            replicas=(events.ReplicaRef(role="worker", index=3),),
        ),
    )
    assert world.placed() == []


def test_room_of_a_replica_that_is_done_is_free(world: World) -> None:
    world.run(world.job("a", 8, floor=8, restart_policy=RestartPolicy.ON_FAILURE))
    world.change("a", ReplicaState.EXITED, ("worker", 3), exit_code=0)
    world.submit(world.job("b", 1))
    assert world.placed() == ["b"]
