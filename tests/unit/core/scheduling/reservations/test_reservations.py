"""Whoever has waited too long gets room kept, and others start where they do not delay it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from muster_core import events
from muster_core.models import Job, JobKind, QueueSpec, ReplicaState, Resources, RunPolicy
from muster_core.scheduling import Place, PoolState, Reservation, remedy_text
from muster_testing.pool import ScenarioPool

SECOND = 1_000_000


def deadline(seconds: int) -> RunPolicy:
    return RunPolicy(active_deadline_s=seconds)


def plain(
    pool: ScenarioPool, name: str, size: int, *, worker: Resources | None = None, **rest: object
) -> Job:
    """A rigid job of ``worker`` replicas (of one GPU each unless said) without a ps; ``rest`` replaces fields of the job."""
    job = pool.job(name, size, floor=size, servers=0, worker=worker or Resources(cpu=1000, gpu=1000))
    return msgspec.structs.replace(job, **rest)


def reservation(pool: ScenarioPool, job_id: str) -> Reservation | None:
    pool.decide()
    return next((one for one in pool.state.reservations if one.job_id == job_id), None)


def starve(pool: ScenarioPool, job: Job) -> str:
    """Let a job wait too long."""
    pool.submit(job)
    pool.decide()
    wake = pool.state.next_wake(pool.now)
    assert wake == pool.now + 30_000_000
    pool.after(30)
    return job.name


def test_room_is_kept_for_a_job_that_has_waited_too_long(pool: ScenarioPool) -> None:
    pool.run(plain(pool, "a", 4))
    pool.run(plain(pool, "b", 4))
    pool.finish("b")
    starve(pool, plain(pool, "whole", 8))
    pool.submit(plain(pool, "small", 1))
    reason = pool.waits()["small"]
    assert reason.code == "BehindReservation"
    assert reason.message == "the job would fit, but the capacity is reserved for whole on 2 nodes"
    explanation = pool.explain("whole")
    assert (explanation.reservation and explanation.reservation.nodes, explanation.expected_start) == (
        ("n1", "n2"),
        None,
    )
    behind = pool.explain("small")
    assert behind.reason.code == "BehindReservation"
    pool.finish("a")
    assert pool.placed() == ["whole"]
    assert pool.state.reservations == ()


def test_before_that_nobody_is_kept_back(pool: ScenarioPool) -> None:
    pool.run(plain(pool, "a", 4))
    pool.submit(plain(pool, "whole", 8))
    pool.decide()
    pool.after(29)
    pool.submit(plain(pool, "small", 1))
    assert pool.placed() == ["small"]


def test_others_use_the_nodes_that_are_not_reserved(empty: ScenarioPool) -> None:
    for name in ("n1", "n2"):
        empty.add_node(name)
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


def test_a_job_that_ends_in_time_may_start_before_a_reservation(pool: ScenarioPool) -> None:
    pool.run(plain(pool, "a", 4, run=deadline(600)))
    starve(pool, plain(pool, "whole", 8))
    kept = reservation(pool, "whole")
    assert kept is not None
    assert kept.expected_at == pool.record("a").started_at + 600_000_000
    pool.submit(plain(pool, "long", 1, run=deadline(600)))
    pool.submit(plain(pool, "endless", 1))
    pool.submit(plain(pool, "short", 1, run=deadline(300)))
    assert pool.placed() == ["short"]
    explanation = pool.explain("whole")
    assert explanation.expected_start == kept.expected_at


def test_who_ends_in_time_may_use_the_very_room(pool: ScenarioPool) -> None:
    pool.run(plain(pool, "a", 4, run=deadline(600)))
    starve(pool, plain(pool, "whole", 8))
    pool.submit(plain(pool, "short", 4, run=deadline(300)))
    assert pool.placed() == ["short"]
    kept = reservation(pool, "whole")
    assert kept is not None
    assert kept.expected_at == pool.record("a").started_at + 600_000_000


@pytest.mark.parametrize("kind", [JobKind.BATCH, JobKind.SERVICE])
def test_nobody_waits_for_a_service(pool: ScenarioPool, kind: JobKind) -> None:
    pool.run(plain(pool, "a", 4, kind=kind))
    starve(pool, plain(pool, "whole", 8))
    assert (reservation(pool, "whole") is None) == (kind is JobKind.SERVICE)


def test_a_gang_that_the_empty_pool_could_not_hold_gets_none(pool: ScenarioPool) -> None:
    pool.run(plain(pool, "a", 4))
    pool.submit(plain(pool, "hopeless", 9))
    pool.decide()
    assert pool.state.next_wake(pool.now) is None
    pool.after(100)
    pool.submit(plain(pool, "small", 1))
    assert pool.placed() == ["small"]


def test_a_gang_at_its_queues_limit_gets_none(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", limit=Resources(gpu=4000)))
    pool.run(plain(pool, "x", 4, queue="a"))
    pool.submit(plain(pool, "y", 4, queue="a"))
    pool.after(100)
    pool.submit(plain(pool, "small", 1))
    assert pool.placed() == ["small"]


def test_patience_is_the_queues(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", starvation_after_s=5))
    pool.run(plain(pool, "x", 4))
    pool.submit(plain(pool, "whole", 8, queue="a"))
    pool.decide()
    pool.after(5)
    assert reservation(pool, "whole") is not None


def test_past_runs_tell_when_a_job_will_end(pool: ScenarioPool) -> None:
    for seconds in (100, 300, 200):
        nightly = pool.submit(plain(pool, "nightly", 4), job_id=f"nightly-{seconds}")
        pool.settle()
        pool.after(seconds)
        pool.finish(nightly)
    pool.run(plain(pool, "nightly", 4))
    began = pool.now
    starve(pool, plain(pool, "whole", 8))
    kept = reservation(pool, "whole")
    assert kept is not None
    assert kept.expected_at == began + 300_000_000


def test_a_job_that_overstays_is_expected_to_end_at_any_moment(pool: ScenarioPool) -> None:
    pool.run(plain(pool, "a", 4, run=deadline(10)))
    starve(pool, plain(pool, "whole", 8))
    pool.after(60)
    pool.submit(plain(pool, "short", 1, run=deadline(1)))
    kept = reservation(pool, "whole")
    assert kept is not None
    assert kept.expected_at == pool.now
    assert "short" in pool.state.records
    assert pool.record("short").attempt == 0


def test_every_queue_may_have_one(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a"), QueueSpec(name="b"))
    pool.run(plain(pool, "x", 4))
    pool.run(plain(pool, "y", 4))
    for name in ("p", "q"):
        for queue in ("a", "b"):
            pool.submit(plain(pool, f"{name}{queue}", 4, queue=queue))
        pool.after(1)
    pool.decide()
    pool.after(60)
    pool.decide()
    assert [one.job_id for one in pool.state.reservations] == ["pa", "pb"]


def test_a_starved_job_that_fits_goes_before_everybody(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", weight=1), QueueSpec(name="b", weight=100))
    pool.run(plain(pool, "x", 8))
    pool.submit(plain(pool, "starved", 8, queue="a"))
    pool.after(31)
    pool.submit(plain(pool, "fresh", 1, queue="b"))
    pool.finish("x")
    assert pool.placed() == ["starved"]


def test_room_on_its_way_out_is_kept_for_the_starved(pool: ScenarioPool) -> None:
    """Answer 15: what ends for a waiting gang is reserved for it."""
    pool.run(pool.job("a", 8, floor=2, servers=0))
    starve(pool, plain(pool, "b", 2))
    removed = tuple(events.ReplicaRef(role="worker", index=index) for index in (6, 7))
    reason = pool.record("a").reason
    assert reason is not None
    pool.publish("a", events.JobResized(attempt=1, generation=2, reason=reason, removed=removed))
    pool.submit(plain(pool, "c", 1))
    pool.decide()
    kept = reservation(pool, "b")
    assert kept is not None
    assert kept.expected_at == pool.now
    pool.report("a", ReplicaState.EXITED, ("worker", 7))
    assert pool.placed() == []
    pool.report("a", ReplicaState.EXITED, ("worker", 6))
    assert pool.placed() == ["b"]


def test_12_jobs_that_fit_beside_a_reservation_start(pool: ScenarioPool) -> None:
    """A runs ps + 4 workers on n1 and 4 on n2; nothing makes room for B's 7, which says so, and whoever fits starts."""
    pool.run(pool.job("a", 8, floor=2))
    starve(pool, pool.job("b", 7, floor=7))
    pool.submit(plain(pool, "cpus", 4, worker=Resources(cpu=4000)))
    assert pool.placed() == ["cpus"]
    explanation = pool.explain("b")
    assert explanation.reason.code == "InsufficientResources"
    assert explanation.reservation and explanation.reservation.nodes == ("n1", "n2")
    assert [remedy_text(one) for one in explanation.remedies] == ["free 7 GPU and 1 CPU"]


def test_4_a_gang_short_of_one_gpu_waits_and_says_so(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 10, floor=9))
    reason = pool.waits()["a"]
    assert reason.message.startswith("short of 1 GPU: 8 of 9 needed are free, on 2 nodes")
    assert pool.record("a").replicas == ()


def test_shares_of_gpus_are_kept_as_well(empty: ScenarioPool) -> None:
    empty.add_node("n1", gpu=1)
    share = Resources(cpu=100, gpu=600)
    empty.run(plain(empty, "a", 1, worker=share))
    starve(empty, plain(empty, "b", 1, worker=share))
    empty.submit(plain(empty, "c", 1, worker=Resources(cpu=100, gpu=400)))
    empty.submit(plain(empty, "d", 1, worker=Resources(cpu=100, gpu=400)))
    # a has 600 of 1000; b needs 600 of them when a has gone: 400 are nobody's.
    assert empty.placed() == ["c"]
    empty.finish("a")
    assert empty.placed() == ["b"]


def test_a_new_leader_keeps_the_same_room(pool: ScenarioPool) -> None:
    pool.run(plain(pool, "a", 4, run=deadline(600)))
    starve(pool, plain(pool, "whole", 8))
    pool.submit(plain(pool, "small", 1))
    pool.decide()
    again = PoolState(pool="here")
    again.restore(pool.state.records.values())
    for node in pool.nodes.values():
        again.observe_node(events.NodeChanged(pool="here", node=node))
    assert again.decide(pool.now) == pool.state.decide(pool.now)
    assert again.reservations == pool.state.reservations


@pytest.mark.parametrize("bounded", [True, False], ids=["known ends", "unknown ends"])
def test_25_a_full_cluster_gang_starts_within_its_reservation_among_endless_small_jobs(
    pool: ScenarioPool, bounded: bool, record_property: Callable[[str, object], None]
) -> None:
    """Small jobs of 60 s each keep coming; the pool is busy, and the gang starts when its reservation said."""
    pool.queues(QueueSpec(name="small"), QueueSpec(name="large"))
    runs: dict[str, int] = {}
    reserved_at = whole_at = used = 0
    expected: int | None = None
    for number in range(300):
        run = deadline(60) if bounded else RunPolicy()
        pool.submit(plain(pool, f"s{number}", 1, queue="small", run=run), job_id=f"small-{number}")
        if number == 40:
            pool.submit(plain(pool, "whole", 8, queue="large"))
        for one in pool.decide():
            if isinstance(one, Place):
                runs[one.job_id] = pool.now
                pool.report(one.job_id, ReplicaState.RUNNING)
        kept = next((one for one in pool.state.reservations if one.job_id == "whole"), None)
        if kept is not None and not reserved_at:
            reserved_at, expected = pool.now, kept.expected_at
        whole_at = whole_at or runs.get("whole", 0)
        used += sum(len(pool.record(job_id).members()) for job_id in runs)
        pool.after(5)
        for job_id, at in list(runs.items()):
            if pool.now - at >= (300 if job_id == "whole" else 60) * SECOND:
                pool.finish(job_id)
                del runs[job_id]
    assert reserved_at
    assert reserved_at < whole_at <= reserved_at + 60 * SECOND
    if bounded:
        assert expected is not None
        assert whole_at <= expected
    utilisation = used / (300 * 8)
    record_property("utilisation", utilisation)
    assert utilisation > 0.85
