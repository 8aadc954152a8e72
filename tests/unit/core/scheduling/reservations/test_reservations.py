"""Starved jobs get a reservation; other jobs start where they do not delay it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from muster_core import events
from muster_core.models import Job, JobKind, QueueSpec, ReplicaState, ResourceLimits, Resources, RunPolicy
from muster_core.scheduling import Place, Reservation, remedy_text
from muster_testing.pool import ScenarioPool

SECOND = 1_000_000


def deadline(seconds: int) -> RunPolicy:
    return RunPolicy(active_deadline_s=seconds)


def reservation(pool: ScenarioPool, job_id: str) -> Reservation:
    """Decide; return the reservation of a job."""
    pool.decide()
    (found,) = (one for one in pool.state.reservations if one.job_id == job_id)
    return found


def starve(pool: ScenarioPool, job: Job) -> str:
    """Let a job wait past the starvation threshold."""
    pool.submit(job)
    pool.decide()
    wake = pool.state.next_wake(pool.now)
    assert wake == pool.now + 30_000_000
    pool.after(30)
    return job.name


def test_a_starved_job_gets_a_reservation(pool: ScenarioPool) -> None:
    pool.run(pool.rigid("a", 4))
    pool.run(pool.rigid("b", 4))
    pool.finish("b")
    starve(pool, pool.rigid("whole", 8))
    pool.submit(pool.rigid("small", 1))
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


def test_before_the_starvation_threshold_nothing_is_reserved(pool: ScenarioPool) -> None:
    pool.run(pool.rigid("a", 4))
    pool.submit(pool.rigid("whole", 8))
    pool.decide()
    pool.after(29)
    pool.submit(pool.rigid("small", 1))
    assert pool.placed() == ["small"]


def test_others_use_the_nodes_that_are_not_reserved(empty: ScenarioPool) -> None:
    for name in ("n1", "n2"):
        empty.add_node(name)
        empty.run(empty.rigid(f"on-{name}", 3))
        empty.after(1)
    starve(empty, empty.rigid("node", 1, worker=Resources(cpu=1000, gpu=4000)))
    reserved = reservation(empty, "node")
    assert reserved.nodes == ("n1",)
    empty.submit(empty.rigid("x", 1))
    empty.submit(empty.rigid("y", 1))
    assert empty.placed() == ["x"]
    assert set(empty.where("x")) == {"n2"}
    empty.finish("on-n1")
    assert empty.placed() == ["node"]


def test_a_job_that_ends_in_time_may_start_before_a_reservation(pool: ScenarioPool) -> None:
    pool.run(pool.rigid("a", 4, run=deadline(600)))
    starve(pool, pool.rigid("whole", 8))
    reserved = reservation(pool, "whole")
    assert reserved.expected_at == pool.record("a").started_at + 600_000_000
    pool.submit(pool.rigid("long", 1, run=deadline(600)))
    pool.submit(pool.rigid("endless", 1))
    pool.submit(pool.rigid("short", 1, run=deadline(300)))
    assert pool.placed() == ["short"]
    explanation = pool.explain("whole")
    assert explanation.expected_start == reserved.expected_at


def test_a_job_that_ends_in_time_backfills_reserved_capacity(pool: ScenarioPool) -> None:
    pool.run(pool.rigid("a", 4, run=deadline(600)))
    starve(pool, pool.rigid("whole", 8))
    pool.submit(pool.rigid("short", 4, run=deadline(300)))
    assert pool.placed() == ["short"]
    reserved = reservation(pool, "whole")
    assert reserved.expected_at == pool.record("a").started_at + 600_000_000


@pytest.mark.parametrize("kind", [JobKind.BATCH, JobKind.SERVICE])
def test_no_release_is_expected_of_a_service(pool: ScenarioPool, kind: JobKind) -> None:
    pool.run(pool.rigid("a", 4, kind=kind))
    starve(pool, pool.rigid("whole", 8))
    pool.decide()
    assert (pool.state.reservations == ()) == (kind is JobKind.SERVICE)


def test_a_gang_that_the_empty_pool_could_not_hold_gets_no_reservation(pool: ScenarioPool) -> None:
    pool.run(pool.rigid("a", 4))
    pool.submit(pool.rigid("hopeless", 9))
    pool.decide()
    assert pool.state.next_wake(pool.now) is None
    pool.after(100)
    pool.submit(pool.rigid("small", 1))
    assert pool.placed() == ["small"]


def test_a_gang_at_the_limit_of_its_queue_gets_no_reservation(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", limit=ResourceLimits(gpu=4000)))
    pool.run(pool.rigid("x", 4, queue="a"))
    pool.submit(pool.rigid("y", 4, queue="a"))
    pool.after(100)
    pool.submit(pool.rigid("small", 1))
    assert pool.placed() == ["small"]


def test_the_starvation_threshold_is_set_by_the_queue(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", starvation_after_s=5))
    pool.run(pool.rigid("x", 4))
    pool.submit(pool.rigid("whole", 8, queue="a"))
    pool.decide()
    pool.after(5)
    assert reservation(pool, "whole").nodes


def test_earlier_runs_estimate_when_a_job_ends(pool: ScenarioPool) -> None:
    for seconds in (100, 300, 200):
        nightly = pool.submit(pool.rigid("nightly", 4), job_id=f"nightly-{seconds}")
        pool.settle()
        pool.after(seconds)
        pool.finish(nightly)
    pool.run(pool.rigid("nightly", 4))
    began = pool.now
    starve(pool, pool.rigid("whole", 8))
    reserved = reservation(pool, "whole")
    assert reserved.expected_at == began + 300_000_000


def test_a_job_that_overstays_is_expected_to_end_at_any_moment(pool: ScenarioPool) -> None:
    pool.run(pool.rigid("a", 4, run=deadline(10)))
    starve(pool, pool.rigid("whole", 8))
    pool.after(60)
    pool.submit(pool.rigid("short", 1, run=deadline(1)))
    reserved = reservation(pool, "whole")
    assert reserved.expected_at == pool.now
    assert "short" in pool.state.records
    assert pool.record("short").attempt == 0


def test_every_queue_may_have_a_reservation(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a"), QueueSpec(name="b"))
    pool.run(pool.rigid("x", 4))
    pool.run(pool.rigid("y", 4))
    for name in ("p", "q"):
        for queue in ("a", "b"):
            pool.submit(pool.rigid(f"{name}{queue}", 4, queue=queue))
        pool.after(1)
    pool.decide()
    pool.after(60)
    pool.decide()
    assert [one.job_id for one in pool.state.reservations] == ["pa", "pb"]


def test_a_starved_job_that_fits_goes_first(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", weight=1), QueueSpec(name="b", weight=100))
    pool.run(pool.rigid("x", 8))
    pool.submit(pool.rigid("starved", 8, queue="a"))
    pool.after(31)
    pool.submit(pool.rigid("fresh", 1, queue="b"))
    pool.finish("x")
    assert pool.placed() == ["starved"]


def test_terminating_capacity_is_reserved_for_the_starved_job(pool: ScenarioPool) -> None:
    """What donors release for a waiting gang is reserved for it."""
    pool.run(pool.job("a", 8, floor=2, servers=0))
    starve(pool, pool.rigid("b", 2))
    removed = tuple(events.ReplicaRef(role="worker", index=index) for index in (6, 7))
    reason = pool.record("a").reason
    assert reason is not None
    pool.publish("a", events.JobResized(attempt=1, generation=2, reason=reason, removed=removed))
    pool.submit(pool.rigid("c", 1))
    pool.decide()
    reserved = reservation(pool, "b")
    assert reserved.expected_at == pool.now
    pool.report("a", ReplicaState.EXITED, ("worker", 7))
    assert pool.placed() == []
    pool.report("a", ReplicaState.EXITED, ("worker", 6))
    assert pool.placed() == ["b"]


def test_jobs_that_fit_beside_a_reservation_start(pool: ScenarioPool) -> None:
    """Nothing frees capacity for the 7 workers of b, and a job without GPUs starts."""
    pool.run(pool.job("a", 8, floor=2))
    starve(pool, pool.job("b", 7, floor=7))
    pool.submit(pool.rigid("cpus", 4, worker=Resources(cpu=4000)))
    assert pool.placed() == ["cpus"]
    explanation = pool.explain("b")
    assert explanation.reason.code == "InsufficientResources"
    assert explanation.reservation and explanation.reservation.nodes == ("n1", "n2")
    assert [remedy_text(one) for one in explanation.remedies] == ["free 7 GPU and 1 CPU"]


def test_gpu_shares_are_reserved(empty: ScenarioPool) -> None:
    empty.add_node("n1", gpu=1)
    share = Resources(cpu=100, gpu=600)
    empty.run(empty.rigid("a", 1, worker=share))
    starve(empty, empty.rigid("b", 1, worker=share))
    empty.submit(empty.rigid("c", 1, worker=Resources(cpu=100, gpu=400)))
    empty.submit(empty.rigid("d", 1, worker=Resources(cpu=100, gpu=400)))
    # a has 600 of 1000, and b needs 600 when a has ended: 400 remain for others.
    assert empty.placed() == ["c"]
    empty.finish("a")
    assert empty.placed() == ["b"]


def test_a_new_leader_gives_the_same_reservations(pool: ScenarioPool) -> None:
    pool.run(pool.rigid("a", 4, run=deadline(600)))
    starve(pool, pool.rigid("whole", 8))
    pool.submit(pool.rigid("small", 1))
    pool.decide()
    again = pool.restored(pool.records(), after=len(pool.stream))
    assert again.decide(pool.now) == pool.state.decide(pool.now)
    assert again.reservations == pool.state.reservations


@pytest.mark.parametrize("bounded", [True, False], ids=["known ends", "unknown ends"])
def test_a_full_cluster_gang_starts_within_its_reservation_among_endless_small_jobs(
    pool: ScenarioPool, bounded: bool, record_property: Callable[[str, object], None]
) -> None:
    """Small jobs of 60 s arrive all the time; the pool is busy, and the gang starts as expected."""
    pool.queues(QueueSpec(name="small"), QueueSpec(name="large"))
    runs: dict[str, int] = {}
    reserved: Reservation | None = None
    reserved_at = whole_at = used = 0
    for number in range(300):
        run = deadline(60) if bounded else RunPolicy()
        pool.submit(pool.rigid(f"s{number}", 1, queue="small", run=run), job_id=f"small-{number}")
        if number == 40:
            pool.submit(pool.rigid("whole", 8, queue="large"))
        for one in pool.decide():
            if isinstance(one, Place):
                runs[one.job_id] = pool.now
                pool.report(one.job_id, ReplicaState.RUNNING)
        found = next((one for one in pool.state.reservations if one.job_id == "whole"), None)
        if found is not None and reserved is None:
            reserved, reserved_at = found, pool.now
        whole_at = whole_at or runs.get("whole", 0)
        used += sum(len(pool.record(job_id).gang()) for job_id in runs)
        pool.after(5)
        for job_id, at in list(runs.items()):
            if pool.now - at >= (300 if job_id == "whole" else 60) * SECOND:
                pool.finish(job_id)
                del runs[job_id]
    assert reserved is not None
    assert reserved.nodes == ("n1", "n2")
    assert reserved_at < whole_at <= reserved_at + 60 * SECOND
    assert (reserved.expected_at is not None) == bounded
    assert reserved.expected_at is None or whole_at <= reserved.expected_at
    utilisation = used / (300 * 8)
    record_property("utilisation", utilisation)
    assert utilisation > 0.85


def test_reserved_memory_of_a_busy_gpu_does_not_move_a_share_to_it(empty: ScenarioPool) -> None:
    empty.add_node("n1", gpu=2, gpu_memory=16 * 2**30)
    half = Resources(cpu=100, gpu=500)
    for name in "abc":
        empty.run(empty.job(name, 1, servers=0, worker=half))
        empty.after(1)
    empty.submit(empty.job("whole", 1, servers=0, worker=Resources(cpu=100, gpu=1000)))
    empty.decide()
    empty.after(30)
    empty.submit(empty.job("share", 1, servers=0, worker=Resources(cpu=100, gpu=300)))
    assert empty.placed() == ["share"]
    assert [one.job_id for one in empty.state.reservations] == ["whole"]
    (share,) = empty.record("share").gang()
    assert share.gpus == (1,)
