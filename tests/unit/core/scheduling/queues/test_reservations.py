"""Whoever has waited too long gets room kept, and others start where they do not delay it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import pytest

from muster_core import events
from muster_core.models import Job, JobKind, QueueSpec, ReplicaState, Resources, RunPolicy
from muster_core.scheduling import Place, PoolState, Reservation, remedy_text

if TYPE_CHECKING:
    from conftest import World

SECOND = 1_000_000


def deadline(seconds: int) -> RunPolicy:
    return RunPolicy(active_deadline_s=seconds)


def plain(world: World, name: str, size: int, *, worker: Resources | None = None, **rest: object) -> Job:
    """A rigid job of ``worker`` replicas (of one GPU each unless said) without a ps; ``rest`` replaces fields of the job."""
    job = world.job(name, size, floor=size, servers=0, worker=worker or Resources(cpu=1000, gpu=1000))
    return msgspec.structs.replace(job, **rest)


def reservation(world: World, job_id: str) -> Reservation | None:
    world.decide()
    return next((one for one in world.pool.reservations if one.job_id == job_id), None)


def starve(world: World, job: Job) -> str:
    """Let a job wait too long."""
    world.submit(job)
    world.decide()
    wake = world.pool.next_wake(world.now)
    assert wake == world.now + 30_000_000
    world.after(30)
    return job.name


def test_room_is_kept_for_a_job_that_has_waited_too_long(world: World) -> None:
    world.run(plain(world, "a", 4))
    world.run(plain(world, "b", 4))
    world.finish("b")
    starve(world, plain(world, "whole", 8))
    world.submit(plain(world, "small", 1))
    reason = world.waits()["small"]
    assert reason.code == "BehindReservation"
    assert reason.message == "the job would fit, but the capacity is reserved for whole on 2 nodes"
    explanation = world.pool.explain("whole")
    assert explanation is not None
    assert (explanation.reservation and explanation.reservation.nodes, explanation.expected_start) == (
        ("n1", "n2"),
        None,
    )
    behind = world.pool.explain("small")
    assert behind is not None
    assert behind.reason.code == "BehindReservation"
    world.finish("a")
    assert world.placed() == ["whole"]
    assert world.pool.reservations == ()


def test_before_that_nobody_is_kept_back(world: World) -> None:
    world.run(plain(world, "a", 4))
    world.submit(plain(world, "whole", 8))
    world.decide()
    world.after(29)
    world.submit(plain(world, "small", 1))
    assert world.placed() == ["small"]


def test_others_use_the_nodes_that_are_not_reserved(empty: World) -> None:
    for name in ("n1", "n2"):
        empty.node(name)
        empty.run(plain(empty, f"on-{name}", 3))
        empty.after(1)
    starve(empty, plain(empty, "node", 1, worker=Resources(cpu=1000, gpu=4000)))
    kept = reservation(empty, "node")
    assert kept is not None
    assert kept.nodes == ("n1",)
    empty.submit(plain(empty, "x", 1))
    empty.submit(plain(empty, "y", 1))
    assert empty.placed() == ["x"]
    assert set(empty.where("x")) == {"n2"}
    empty.finish("on-n1")
    assert empty.placed() == ["node"]


def test_a_job_that_ends_in_time_may_start_before_a_reservation(world: World) -> None:
    world.run(plain(world, "a", 4, run=deadline(600)))
    starve(world, plain(world, "whole", 8))
    kept = reservation(world, "whole")
    assert kept is not None
    assert kept.expected_at == world.record("a").started_at + 600_000_000
    world.submit(plain(world, "long", 1, run=deadline(600)))
    world.submit(plain(world, "endless", 1))
    world.submit(plain(world, "short", 1, run=deadline(300)))
    assert world.placed() == ["short"]
    explanation = world.pool.explain("whole")
    assert explanation is not None
    assert explanation.expected_start == kept.expected_at


def test_who_ends_in_time_may_use_the_very_room(world: World) -> None:
    world.run(plain(world, "a", 4, run=deadline(600)))
    starve(world, plain(world, "whole", 8))
    world.submit(plain(world, "short", 4, run=deadline(300)))
    assert world.placed() == ["short"]
    kept = reservation(world, "whole")
    assert kept is not None
    assert kept.expected_at == world.record("a").started_at + 600_000_000


@pytest.mark.parametrize("kind", [JobKind.BATCH, JobKind.SERVICE])
def test_nobody_waits_for_a_service(world: World, kind: JobKind) -> None:
    world.run(plain(world, "a", 4, kind=kind))
    starve(world, plain(world, "whole", 8))
    assert (reservation(world, "whole") is None) == (kind is JobKind.SERVICE)


def test_a_gang_that_the_empty_pool_could_not_hold_gets_none(world: World) -> None:
    world.run(plain(world, "a", 4))
    world.submit(plain(world, "hopeless", 9))
    world.decide()
    assert world.pool.next_wake(world.now) is None
    world.after(100)
    world.submit(plain(world, "small", 1))
    assert world.placed() == ["small"]


def test_a_gang_at_its_queues_limit_gets_none(world: World) -> None:
    world.queues(QueueSpec(name="a", limit=Resources(gpu=4000)))
    world.run(plain(world, "x", 4, queue="a"))
    world.submit(plain(world, "y", 4, queue="a"))
    world.after(100)
    world.submit(plain(world, "small", 1))
    assert world.placed() == ["small"]


def test_patience_is_the_queues(world: World) -> None:
    world.queues(QueueSpec(name="a", starvation_after_s=5))
    world.run(plain(world, "x", 4))
    world.submit(plain(world, "whole", 8, queue="a"))
    world.decide()
    world.after(5)
    assert reservation(world, "whole") is not None


def test_past_runs_tell_when_a_job_will_end(world: World) -> None:
    for seconds in (100, 300, 200):
        nightly = world.submit(plain(world, "nightly", 4), job_id=f"nightly-{seconds}")
        world.settle()
        world.after(seconds)
        world.finish(nightly)
    world.run(plain(world, "nightly", 4))
    began = world.now
    starve(world, plain(world, "whole", 8))
    kept = reservation(world, "whole")
    assert kept is not None
    assert kept.expected_at == began + 300_000_000


def test_a_job_that_overstays_is_expected_to_end_at_any_moment(world: World) -> None:
    world.run(plain(world, "a", 4, run=deadline(10)))
    starve(world, plain(world, "whole", 8))
    world.after(60)
    world.submit(plain(world, "short", 1, run=deadline(1)))
    kept = reservation(world, "whole")
    assert kept is not None
    assert kept.expected_at == world.now
    assert "short" in world.pool.records
    assert world.record("short").attempt == 0


def test_every_queue_may_have_one(world: World) -> None:
    world.queues(QueueSpec(name="a"), QueueSpec(name="b"))
    world.run(plain(world, "x", 4))
    world.run(plain(world, "y", 4))
    for name in ("p", "q"):
        for queue in ("a", "b"):
            world.submit(plain(world, f"{name}{queue}", 4, queue=queue))
        world.after(1)
    world.decide()
    world.after(60)
    world.decide()
    assert [one.job_id for one in world.pool.reservations] == ["pa", "pb"]


def test_a_starved_job_that_fits_goes_before_everybody(world: World) -> None:
    world.queues(QueueSpec(name="a", weight=1), QueueSpec(name="b", weight=100))
    world.run(plain(world, "x", 8))
    world.submit(plain(world, "starved", 8, queue="a"))
    world.after(31)
    world.submit(plain(world, "fresh", 1, queue="b"))
    world.finish("x")
    assert world.placed() == ["starved"]


def test_room_on_its_way_out_is_kept_for_the_starved(world: World) -> None:
    """Answer 15: what ends for a waiting gang is reserved for it."""
    world.run(world.job("a", 8, floor=2, servers=0))
    starve(world, plain(world, "b", 2))
    removed = tuple(events.ReplicaRef(role="worker", index=index) for index in (6, 7))
    reason = world.record("a").reason
    assert reason is not None
    world.say("a", events.JobResized(attempt=1, generation=2, reason=reason, removed=removed))
    world.submit(plain(world, "c", 1))
    world.decide()
    kept = reservation(world, "b")
    assert kept is not None
    assert kept.expected_at == world.now
    world.leave("a", ("worker", 7))
    assert world.placed() == []
    world.leave("a", ("worker", 6))
    assert world.placed() == ["b"]


def test_12_jobs_that_fit_beside_a_reservation_start(world: World) -> None:
    """A runs ps + 4 workers on n1 and 4 on n2; nothing makes room for B's 7, which says so, and whoever fits starts."""
    world.run(world.job("a", 8, floor=2))
    starve(world, world.job("b", 7, floor=7))
    world.submit(plain(world, "cpus", 4, worker=Resources(cpu=4000)))
    assert world.placed() == ["cpus"]
    explanation = world.pool.explain("b")
    assert explanation is not None
    assert explanation.reason.code == "InsufficientResources"
    assert explanation.reservation and explanation.reservation.nodes == ("n1", "n2")
    assert [remedy_text(one) for one in explanation.remedies] == ["free 7 GPU and 1 CPU"]


def test_4_a_gang_short_of_one_gpu_waits_and_says_so(world: World) -> None:
    world.submit(world.job("a", 10, floor=9))
    reason = world.waits()["a"]
    assert reason.message.startswith("short of 1 GPU: 8 of 9 needed are free, on 2 nodes")
    assert world.record("a").replicas == ()


def test_shares_of_gpus_are_kept_as_well(empty: World) -> None:
    empty.node("n1", gpu=1)
    share = Resources(cpu=100, gpu=600)
    empty.run(plain(empty, "a", 1, worker=share))
    starve(empty, plain(empty, "b", 1, worker=share))
    empty.submit(plain(empty, "c", 1, worker=Resources(cpu=100, gpu=400)))
    empty.submit(plain(empty, "d", 1, worker=Resources(cpu=100, gpu=400)))
    # a has 600 of 1000; b needs 600 of them when a has gone: 400 are nobody's.
    assert empty.placed() == ["c"]
    empty.finish("a")
    assert empty.placed() == ["b"]


def test_a_new_leader_keeps_the_same_room(world: World) -> None:
    world.run(plain(world, "a", 4, run=deadline(600)))
    starve(world, plain(world, "whole", 8))
    world.submit(plain(world, "small", 1))
    world.decide()
    again = PoolState(pool="here")
    again.restore(world.pool.records.values())
    for node in world.nodes.values():
        again.observe_node(events.NodeChanged(pool="here", node=node))
    assert again.decide(world.now) == world.pool.decide(world.now)
    assert again.reservations == world.pool.reservations


@pytest.mark.parametrize("bounded", [True, False], ids=["known ends", "unknown ends"])
def test_25_a_full_cluster_gang_starts_within_its_reservation_among_endless_small_jobs(
    world: World, bounded: bool, record_property: Callable[[str, object], None]
) -> None:
    """Small jobs of 60 s each keep coming; the pool is busy, and the gang starts when its reservation said."""
    world.queues(QueueSpec(name="small"), QueueSpec(name="large"))
    runs: dict[str, int] = {}
    reserved_at = whole_at = used = 0
    expected: int | None = None
    for number in range(300):
        run = deadline(60) if bounded else RunPolicy()
        world.submit(plain(world, f"s{number}", 1, queue="small", run=run), job_id=f"small-{number}")
        if number == 40:
            world.submit(plain(world, "whole", 8, queue="large"))
        for one in world.decide():
            if isinstance(one, Place):
                runs[one.job_id] = world.now
                world.change(one.job_id, ReplicaState.RUNNING)
        kept = next((one for one in world.pool.reservations if one.job_id == "whole"), None)
        if kept is not None and not reserved_at:
            reserved_at, expected = world.now, kept.expected_at
        whole_at = whole_at or runs.get("whole", 0)
        used += sum(len(world.record(job_id).members()) for job_id in runs)
        world.after(5)
        for job_id, at in list(runs.items()):
            if world.now - at >= (300 if job_id == "whole" else 60) * SECOND:
                world.finish(job_id)
                del runs[job_id]
    assert reserved_at
    assert reserved_at < whole_at <= reserved_at + 60 * SECOND
    if bounded:
        assert expected is not None
        assert whole_at <= expected
    utilisation = used / (300 * 8)
    record_property("utilisation", utilisation)
    assert utilisation > 0.85
