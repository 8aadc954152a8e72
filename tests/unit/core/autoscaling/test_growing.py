"""Growth into what is idle: when, by whom, and by how much."""

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
    Throughput,
)

if TYPE_CHECKING:
    from conftest import ScaledPool

QUIET_S = 60
CPU = Resources(cpu=1000)


def _say_speed(pool: ScaledPool, job_id: str, *, sizes: dict[int, int]) -> None:
    """The job was measured at these sizes, in steps a minute."""
    reported = [Throughput(workers=n, steps=steps, micros=60_000_000) for n, steps in sizes.items()]
    pool.measure(job_id, tuple(reported))


def test_a_proposal_says_what_was_idle_and_what_is_gained(empty: ScaledPool) -> None:
    empty.offer("n1", cpu=5, gpu=0)
    empty.start(empty.job("a", 1, most=4, worker=CPU))
    empty.after(QUIET_S)
    ((_, event),) = empty.look()
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
    assert (event.role, event.size, event.target, event.policy, event.gain) == (
        "worker",
        1,
        4,
        "marginal_gain",
        1816,
    )
    assert (event.attempt, event.generation) == (1, 1)


def test_nobody_grows_before_the_pool_was_quiet(pool: ScaledPool) -> None:
    pool.start(pool.job("a", 1, most=4))
    assert pool.next_look() == QUIET_S
    pool.after(QUIET_S - 1)
    assert pool.look() == []
    pool.start(pool.job("b", 1))
    pool.after(1)
    assert pool.look() == []
    assert pool.next_look() == QUIET_S - 1


def test_growth_that_gains_little_is_not_worth_it(empty: ScaledPool) -> None:
    empty.offer("n1", cpu=64, gpu=32)
    empty.start(empty.job("a", 1, most=32))
    empty.live(3 * QUIET_S)
    assert empty.size("a") == 7


def test_a_job_that_scales_well_gets_more_than_one_that_does_not(empty: ScaledPool) -> None:
    empty.offer("n1", cpu=64, gpu=11)
    for name in ("good", "bad"):
        empty.start(empty.job(name, 1, most=9))
    _say_speed(empty, "good", sizes={1: 1000, 2: 1990})
    _say_speed(empty, "bad", sizes={1: 1000, 2: 1300})
    empty.live(QUIET_S)
    assert (empty.size("good"), empty.size("bad")) == (9, 2)


def test_gains_are_weighed_by_what_they_take(empty: ScaledPool) -> None:
    empty.offer("n1", cpu=64, gpu=6)
    empty.start(empty.job("wide", 1, most=3, worker=Resources(cpu=1000, gpu=2000)))
    empty.start(empty.job("slim", 1, most=4))
    empty.live(QUIET_S)
    assert (empty.size("wide"), empty.size("slim")) == (1, 4)


def test_equal_shares_are_of_what_jobs_hold(empty: ScaledPool) -> None:
    empty.settings = ElasticSettings(policy="max_min")
    empty.offer("n1", cpu=64, gpu=8)
    empty.start(empty.job("a", 4, most=8))
    empty.after(1)
    empty.start(empty.job("b", 1, most=8))
    empty.live(QUIET_S)
    assert (empty.size("a"), empty.size("b")) == (4, 4)


def test_policies_in_one_pool_take_turns(empty: ScaledPool) -> None:
    empty.offer("n1", cpu=64, gpu=7)
    empty.start(empty.job("greedy", 1, most=8, elastic=ElasticPolicy(policy="dragon")))
    empty.start(empty.job("fair", 1, most=8, elastic=ElasticPolicy(policy="max_min")))
    empty.start(empty.job("still", 1, most=8, elastic=ElasticPolicy(policy="none")))
    empty.live(QUIET_S)
    assert [empty.size(name) for name in ("greedy", "fair", "still")] == [3, 3, 1]


def test_a_job_wins_over_its_queue_and_a_queue_over_the_platform(empty: ScaledPool) -> None:
    empty.settings = ElasticSettings(policy="none")
    empty.offer("n1", cpu=64, gpu=16)
    empty.queues(
        QueueSpec(name="fast", elastic=QueueElastic(policy="dragon", idle_period_s=5, step=2)),
        QueueSpec(name="slow", elastic=QueueElastic(policy="dragon", idle_period_s=50)),
        QueueSpec(name="silent"),
    )
    empty.start(empty.job("a", 1, most=4, queue="fast"))
    empty.start(empty.job("b", 1, most=4, queue="slow"))
    empty.start(empty.job("c", 1, most=4, queue="silent"))
    empty.start(empty.job("d", 1, most=4, queue="fast", elastic=ElasticPolicy(policy="none")))
    empty.live(5)
    assert [empty.size(name) for name in "abcd"] == [3, 1, 1, 1]
    empty.live(5)
    assert empty.size("a") == 4
    empty.live(50)
    assert [empty.size(name) for name in "abcd"] == [4, 4, 1, 1]


def test_a_step_bounds_one_growth(pool: ScaledPool) -> None:
    pool.start(pool.job("a", 1, most=4, elastic=ElasticPolicy(step=2)))
    pool.live(QUIET_S)
    assert pool.size("a") == 3


def test_a_job_cools_down_after_a_change(pool: ScaledPool) -> None:
    pool.settings = ElasticSettings(step=1, idle_period_s=1)
    pool.start(pool.job("a", 1, most=4, elastic=ElasticPolicy(cool_down_s=300)))
    pool.live(1)
    assert pool.size("a") == 2
    assert pool.next_look() == 300
    pool.live(299)
    assert pool.size("a") == 2
    pool.live(1)
    assert pool.size("a") == 3


def test_a_size_that_a_hand_has_set_stays(pool: ScaledPool) -> None:
    pool.start(pool.job("a", 2, most=4))
    pool.command("a", events.Command.SCALE, role="worker", target=1)
    pool.live(3 * QUIET_S)
    assert pool.size("a") == 1


@pytest.mark.parametrize("kind", [JobKind.SERVICE, JobKind.BUILD])
def test_what_ends_no_sooner_does_not_grow(pool: ScaledPool, kind: JobKind) -> None:
    pool.start(pool.job("a", 1, most=4, kind=kind))
    pool.live(2 * QUIET_S)
    assert pool.size("a") == 1


def test_growth_keeps_the_limits_of_the_queue(pool: ScaledPool) -> None:
    pool.queues(QueueSpec(name="default", limit=ResourceLimits(gpu=3000)))
    pool.start(pool.job("a", 1, most=8))
    pool.live(QUIET_S)
    assert pool.size("a") == 3
    pool.live(5 * QUIET_S)
    assert pool.state.rejected_proposals == 0


def test_room_that_is_kept_is_not_grown_into(pool: ScaledPool) -> None:
    pool.start(pool.job("rigid", 6, floor=6))
    pool.after(1)
    pool.start(pool.job("a", 1, most=3))
    pool.submit(pool.job("big", 7, floor=7))
    pool.live(3 * QUIET_S)
    assert pool.size("a") == 1
    pool.finish("rigid")
    pool.live(1)
    assert pool.workers("big") == {"n1": 4, "n2": 3}


def test_who_has_just_come_is_not_forestalled(pool: ScaledPool) -> None:
    pool.start(pool.job("rigid", 7, floor=7, servers=0))
    pool.start(pool.job("a", 1, most=3, servers=0, worker=CPU))
    pool.after(QUIET_S - 10)
    pool.submit(pool.job("two", 2, floor=2))
    assert pool.placed() == []
    pool.after(10)
    assert pool.look() == []
    assert pool.next_look() == 20


def test_growth_does_not_begin_while_leavers_are_on_their_way(pool: ScaledPool) -> None:
    pool.start(pool.job("a", 4, floor=1))
    gone = (events.ReplicaRef(role="worker", index=3),)
    reason = pool.record("a").reason
    assert reason is not None
    pool.publish(
        "a", events.JobResized(attempt=1, generation=2, reason=reason, removed=gone, policy="dragon")
    )
    pool.after(QUIET_S)
    assert pool.look() == []
    pool.confirm_ends()
    ((_, event),) = pool.look()
    assert (event.size, event.target) == (3, 4)


def test_a_job_does_not_grow_onto_a_node_that_failed_it_lately(empty: ScaledPool) -> None:
    empty.offer("n1", cpu=5, gpu=0)
    empty.start(empty.job("a", 1, most=4, worker=CPU))
    empty.after(QUIET_S)
    (resize,) = empty.scale()
    taken_back = events.JobResized(
        attempt=1,
        generation=3,
        reason=Reason(code="StartTimeout"),
        removed=tuple(events.ReplicaRef(role="worker", index=one.index) for one in resize.added),
        avoid=("n1",),
    )
    empty.publish("a", taken_back)
    empty.leave("a", ("worker", 1), ("worker", 2), ("worker", 3))
    empty.after(QUIET_S)
    assert empty.look() == []
    assert empty.next_look() == 600 - QUIET_S
    empty.after(600 - QUIET_S)
    ((_, event),) = empty.look()
    assert event.target == 4
