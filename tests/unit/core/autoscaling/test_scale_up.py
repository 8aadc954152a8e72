"""Growth into idle capacity: when, which job, and by how much."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core import events
from muster_core.autoscaling import ElasticSettings
from muster_core.models import (
    ElasticPolicy,
    JobKind,
    QueueElastic,
    QueueSpec,
    Reason,
    ResourceLimits,
    Resources,
)

if TYPE_CHECKING:
    from conftest import ScaledPool

IDLE_PERIOD_S = 60
CPU = Resources(cpu=1000)


def test_a_proposal_has_the_idle_capacity_and_the_gain(empty: ScaledPool) -> None:
    empty.add_node("n1", cpu=5, gpu=0)
    empty.run(empty.job("a", 1, most=4, worker=CPU))
    empty.after(IDLE_PERIOD_S)
    ((_, event),) = empty.plan()
    assert event.reason.code == "Idle"
    assert event.reason.message == "3 CPU idle for 60 s on 1 node: grow worker from 1 to 4 (max 4)"
    assert event.reason.numbers == {
        "idle.cpu": 3000,
        "nodes": 1,
        "idle_period_s": 60,
        "from": 1,
        "to": 4,
        "max": 4,
        "speed_up.from": 1000,
        "speed_up.to": 2816,
        "serial": 140,
    }
    assert (event.role, event.size, event.target, event.gain) == ("worker", 1, 4, 1816)
    assert event.policy == "marginal_gain"
    assert (event.attempt, event.generation) == (1, 1)


def test_no_job_grows_before_the_idle_period_has_passed(pool: ScaledPool) -> None:
    pool.run(pool.job("a", 1, most=4))
    assert pool.next_check() == IDLE_PERIOD_S
    pool.after(IDLE_PERIOD_S - 1)
    assert pool.plan() == []
    pool.run(pool.job("b", 1))
    pool.after(1)
    assert pool.plan() == []
    assert pool.next_check() == IDLE_PERIOD_S - 1


def test_a_job_stops_growing_when_the_gain_is_small(empty: ScaledPool) -> None:
    empty.add_node("n1", cpu=64, gpu=32)
    empty.run(empty.job("a", 1, most=32))
    empty.advance(3 * IDLE_PERIOD_S)
    assert empty.size("a") == 7


def test_a_job_that_scales_well_gets_more_replicas(empty: ScaledPool) -> None:
    empty.add_node("n1", cpu=64, gpu=11)
    for name in ("good", "bad"):
        empty.run(empty.job(name, 1, most=9))
    empty.measure("good", n1=1000, n2=1990)
    empty.measure("bad", n1=1000, n2=1300)
    empty.advance(IDLE_PERIOD_S)
    assert (empty.size("good"), empty.size("bad")) == (9, 2)


def test_gains_are_weighed_by_the_resources_of_a_replica(empty: ScaledPool) -> None:
    empty.add_node("n1", cpu=64, gpu=6)
    empty.run(empty.job("wide", 1, most=3, worker=Resources(cpu=1000, gpu=2000)))
    empty.run(empty.job("slim", 1, most=4))
    empty.advance(IDLE_PERIOD_S)
    assert (empty.size("wide"), empty.size("slim")) == (1, 4)


def test_max_min_equalises_the_allocations_of_jobs(empty: ScaledPool) -> None:
    empty.settings = ElasticSettings(policy="max_min")
    empty.add_node("n1", cpu=64, gpu=8)
    empty.run(empty.job("a", 4, most=8))
    empty.after(1)
    empty.run(empty.job("b", 1, most=8))
    empty.advance(IDLE_PERIOD_S)
    assert (empty.size("a"), empty.size("b")) == (4, 4)


def test_jobs_of_several_policies_share_the_pool(empty: ScaledPool) -> None:
    empty.add_node("n1", cpu=64, gpu=7)
    empty.run(empty.job("greedy", 1, most=8, elastic=ElasticPolicy(policy="dragon")))
    empty.run(empty.job("fair", 1, most=8, elastic=ElasticPolicy(policy="max_min")))
    empty.run(empty.job("fixed", 1, most=8, elastic=ElasticPolicy(policy="none")))
    empty.advance(IDLE_PERIOD_S)
    assert [empty.size(name) for name in ("greedy", "fair", "fixed")] == [3, 3, 1]


def test_settings_of_a_job_override_its_queues_and_those_the_platforms(empty: ScaledPool) -> None:
    empty.settings = ElasticSettings(policy="none")
    empty.add_node("n1", cpu=64, gpu=16)
    empty.queues(
        QueueSpec(name="fast", elastic=QueueElastic(policy="dragon", idle_period_s=5, step=2)),
        QueueSpec(name="slow", elastic=QueueElastic(policy="dragon", idle_period_s=50)),
        QueueSpec(name="unset"),
    )
    empty.run(empty.job("a", 1, most=4, queue="fast"))
    empty.run(empty.job("b", 1, most=4, queue="slow"))
    empty.run(empty.job("c", 1, most=4, queue="unset"))
    empty.run(empty.job("d", 1, most=4, queue="fast", elastic=ElasticPolicy(policy="none")))
    empty.advance(5)
    assert [empty.size(name) for name in "abcd"] == [3, 1, 1, 1]
    empty.advance(5)
    assert empty.size("a") == 4
    empty.advance(50)
    assert [empty.size(name) for name in "abcd"] == [4, 4, 1, 1]


def test_a_step_limits_one_growth(pool: ScaledPool) -> None:
    pool.run(pool.job("a", 1, most=4, elastic=ElasticPolicy(step=2)))
    pool.advance(IDLE_PERIOD_S)
    assert pool.size("a") == 3


def test_a_job_keeps_its_size_during_the_cool_down(pool: ScaledPool) -> None:
    pool.settings = ElasticSettings(step=1, idle_period_s=1)
    pool.run(pool.job("a", 1, most=4, elastic=ElasticPolicy(cool_down_s=300)))
    pool.advance(1)
    assert pool.size("a") == 2
    assert pool.next_check() == 300
    pool.advance(299)
    assert pool.size("a") == 2
    pool.advance(1)
    assert pool.size("a") == 3


def test_a_job_does_not_grow_after_a_manual_resize(pool: ScaledPool) -> None:
    pool.run(pool.job("a", 2, most=4))
    pool.scale("a", 1)
    pool.advance(3 * IDLE_PERIOD_S)
    assert pool.size("a") == 1


@pytest.mark.parametrize("kind", [JobKind.SERVICE, JobKind.BUILD])
def test_services_and_builds_do_not_grow(pool: ScaledPool, kind: JobKind) -> None:
    pool.run(pool.job("a", 1, most=4, kind=kind))
    pool.advance(2 * IDLE_PERIOD_S)
    assert pool.size("a") == 1


def test_growth_respects_the_limit_of_the_queue(pool: ScaledPool) -> None:
    pool.queues(QueueSpec(name="default", limit=ResourceLimits(gpu=3000)))
    pool.run(pool.job("a", 1, most=8))
    pool.advance(IDLE_PERIOD_S)
    assert pool.size("a") == 3
    pool.advance(5 * IDLE_PERIOD_S)
    assert pool.state.rejected_proposals == 0


def test_jobs_do_not_grow_into_reserved_capacity(pool: ScaledPool) -> None:
    pool.run(pool.job("rigid", 6, floor=6))
    pool.after(1)
    pool.run(pool.job("a", 1, most=3))
    pool.submit(pool.job("big", 7, floor=7))
    pool.advance(3 * IDLE_PERIOD_S)
    assert pool.size("a") == 1
    pool.finish("rigid")
    pool.advance(1)
    assert pool.workers("big") == {"n1": 4, "n2": 3}


def test_jobs_do_not_grow_while_a_waiting_job_is_not_starved(pool: ScaledPool) -> None:
    pool.run(pool.job("rigid", 7, floor=7, servers=0))
    pool.run(pool.job("a", 1, most=3, servers=0, worker=CPU))
    pool.after(IDLE_PERIOD_S - 10)
    pool.submit(pool.job("two", 2, floor=2))
    assert pool.placed() == []
    pool.after(10)
    assert pool.plan() == []
    assert pool.next_check() == 20


def test_a_job_does_not_grow_while_its_replicas_terminate(pool: ScaledPool) -> None:
    pool.run(pool.job("a", 4, floor=1))
    gone = (events.ReplicaRef(role="worker", index=3),)
    reason = pool.record("a").reason
    assert reason is not None
    pool.publish(
        "a", events.JobResized(attempt=1, generation=2, reason=reason, removed=gone, policy="dragon")
    )
    pool.after(IDLE_PERIOD_S)
    assert pool.plan() == []
    pool.confirm_ends()
    ((_, event),) = pool.plan()
    assert (event.size, event.target) == (3, 4)


def test_a_job_does_not_grow_onto_a_node_that_failed_recently(empty: ScaledPool) -> None:
    empty.add_node("n1", cpu=5, gpu=0)
    empty.run(empty.job("a", 1, most=4, worker=CPU))
    empty.after(IDLE_PERIOD_S)
    empty.propose()
    (resize,) = empty.resizes()
    timed_out = events.JobResized(
        attempt=1,
        generation=3,
        reason=Reason(code="StartTimeout"),
        removed=tuple(events.ReplicaRef(role="worker", index=one.index) for one in resize.added),
        avoid=("n1",),
    )
    empty.publish("a", timed_out)
    empty.exit("a", 1, 2, 3)
    empty.after(IDLE_PERIOD_S)
    assert empty.plan() == []
    assert empty.next_check() == 600 - IDLE_PERIOD_S
    empty.after(600 - IDLE_PERIOD_S)
    ((_, event),) = empty.plan()
    assert event.target == 4
