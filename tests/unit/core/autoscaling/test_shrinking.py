"""Shrinking for those who have waited too long: who gives, what, and when nobody does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from muster_core import events
from muster_core.autoscaling import ElasticSettings
from muster_core.models import ElasticPolicy, Phase, QueueElastic, QueueSpec, Resources, Throughput
from muster_core.scheduling import Resize

if TYPE_CHECKING:
    from conftest import ScaledPool

STARVED_S = 30
TWO_GPUS = Resources(cpu=1000, gpu=2000)


def _giving(pool: ScaledPool) -> dict[str, list[int]]:
    return {one.job_id: [ref.index for ref in one.event.removed] for one in pool.look()}


def test_a_proposal_says_for_whom_and_how_long_he_has_waited(pool: ScaledPool) -> None:
    pool.start(pool.job("a", 8, floor=2))
    pool.submit(pool.job("b", 2, floor=2))
    pool.after(STARVED_S + 2)
    ((_, event),) = pool.look()
    assert event.reason.code == "StarvedJob"
    assert event.reason.message == ("b (b) has waited 32 s: shrink worker from 8 to 6 (min 2) on n2")
    assert (event.size, event.target, event.beneficiary, event.donors) == (8, 6, "b", 1)
    assert [ref.index for ref in event.removed] == [7, 6]
    assert event.gain < 0


def test_jobs_share_the_loss(pool: ScaledPool) -> None:
    pool.settings = ElasticSettings(policy="dragon")
    pool.run_on(pool.job("a", 4), "n1", "n1", "n1", "n1")
    pool.run_on(pool.job("b", 4), "n2", "n2", "n2", "n2")
    pool.submit(pool.job("head", 4, floor=4))
    pool.after(STARVED_S)
    assert {name: len(gone) for name, gone in _giving(pool).items()} == {"a": 2, "b": 2}
    pool.live(1)
    assert pool.size("head") == 4


def test_the_one_furthest_above_its_minimum_gives_first(pool: ScaledPool) -> None:
    pool.settings = ElasticSettings(policy="dragon")
    pool.run_on(pool.job("a", 4, floor=1), "n1", "n1", "n1", "n1")
    pool.run_on(pool.job("b", 4, floor=3), "n2", "n2", "n2", "n2")
    pool.submit(pool.job("head", 2, floor=2))
    pool.after(STARVED_S)
    assert _giving(pool) == {"a": [3, 2]}


def test_who_gains_least_by_its_last_worker_gives_it_up(pool: ScaledPool) -> None:
    pool.run_on(pool.job("good", 4), "n1", "n1", "n1", "n1")
    pool.run_on(pool.job("bad", 4), "n2", "n2", "n2", "n2")
    pool.measure(
        "good", (Throughput(workers=1, steps=100, micros=10), Throughput(workers=4, steps=390, micros=10))
    )
    pool.measure(
        "bad", (Throughput(workers=1, steps=100, micros=10), Throughput(workers=4, steps=150, micros=10))
    )
    pool.submit(pool.job("head", 2, floor=2))
    pool.after(STARVED_S)
    assert _giving(pool) == {"bad": [3, 2]}


def test_lonely_replicas_go_first_although_their_index_is_lower(pool: ScaledPool) -> None:
    pool.run_on(pool.job("a", 6, floor=1), "n1", "n2", "n2", "n1", "n1", "n1")
    pool.run_on(pool.job("b", 2, floor=2), "n2", "n2")
    pool.submit(pool.job("head", 1, floor=1))
    pool.after(STARVED_S)
    assert _giving(pool) == {"a": [2]}


def test_what_must_stand_together_is_freed_together(pool: ScaledPool) -> None:
    pool.run_on(pool.job("a", 8, floor=6), "n1", "n1", "n2", "n1", "n2", "n1", "n2", "n2")
    pool.submit(pool.job("head", 1, worker=TWO_GPUS, servers=0))
    pool.after(STARVED_S)
    (giving,) = _giving(pool).values()
    nodes = {one.index: one.node for one in pool.record("a").gang() if one.role == "worker"}
    assert len(giving) == 2
    assert len({nodes[index] for index in giving}) == 1
    pool.live(1)
    assert pool.record("head").phase is Phase.RUNNING


def test_a_node_that_does_not_admit_the_head_gives_nothing(pool: ScaledPool) -> None:
    pool.offer("n1", labels={"zone": "a"})
    pool.offer("n2", labels={"zone": "b"})
    pool.run_on(pool.job("a", 8, floor=2), "n1", "n1", "n1", "n1", "n2", "n2", "n2", "n2")
    head = pool.job("head", 2, floor=2, servers=0, selector={"zone": "a"})
    pool.submit(head)
    pool.after(STARVED_S)
    assert _giving(pool) == {"a": [3, 2]}


@pytest.mark.parametrize(
    "giver",
    [
        {"elastic": ElasticPolicy(policy="none")},
        {"preemptible": False},
        {"min_available": 9},
    ],
    ids=["keeps its size", "may not lose room", "needs all of them"],
)
def test_some_never_give(pool: ScaledPool, giver: dict[str, object]) -> None:
    pool.start(msgspec.structs.replace(pool.job("a", 8, floor=2), **giver))
    pool.submit(pool.job("b", 2, floor=2))
    pool.after(STARVED_S)
    assert pool.look() == []


def test_worker_0_and_the_minimum_stay(pool: ScaledPool) -> None:
    pool.start(pool.job("a", 8, floor=1))
    pool.submit(pool.job("b", 8, floor=7))
    pool.live(STARVED_S)
    assert pool.indices("a") == [0]
    assert pool.size("b") == 7


def test_the_next_who_starves_is_helped_where_the_first_cannot_be(pool: ScaledPool) -> None:
    pool.start(pool.job("a", 8, floor=7))
    pool.submit(pool.job("big", 4, floor=4))
    pool.submit(pool.job("small", 1))
    pool.live(STARVED_S)
    assert pool.record("big").phase is Phase.QUEUED
    assert pool.size("a") == 7
    assert pool.record("small").phase is Phase.RUNNING


def test_room_that_is_kept_for_one_is_not_freed_for_another(pool: ScaledPool) -> None:
    pool.start(pool.job("a", 8, floor=7))
    pool.submit(pool.job("all", 8, floor=8))
    pool.submit(pool.job("small", 1))
    pool.live(4 * STARVED_S)
    assert pool.size("a") == 8
    assert pool.record("small").phase is Phase.QUEUED


def test_several_are_helped_one_after_the_other(pool: ScaledPool) -> None:
    pool.settings = ElasticSettings(policy="dragon")
    pool.run_on(pool.job("a", 4), "n1", "n1", "n1", "n1")
    pool.run_on(pool.job("b", 4), "n2", "n2", "n2", "n2")
    for name in ("c", "d", "e"):
        pool.submit(pool.job(name, 2, floor=2))
    pool.live(STARVED_S)
    assert [pool.size(name) for name in "abcde"] == [1, 1, 2, 2, 2]


def test_a_queue_keeps_what_it_is_guaranteed(pool: ScaledPool) -> None:
    pool.queues(QueueSpec(name="sure", guaranteed=Resources(gpu=8000)), QueueSpec(name="other"))
    pool.start(pool.job("a", 8, floor=2, queue="sure"))
    pool.submit(pool.job("b", 2, floor=2, queue="other"))
    pool.live(2 * STARVED_S)
    assert pool.size("a") == 8
    pool.submit(pool.job("c", 2, floor=2, queue="sure"))
    pool.live(STARVED_S)
    assert pool.size("a") == 6
    assert pool.record("c").phase is Phase.RUNNING


@pytest.mark.parametrize(("wanted", "left"), [(4, 4), (5, 8)])
def test_a_queue_gives_what_it_has_borrowed_and_no_more(pool: ScaledPool, wanted: int, left: int) -> None:
    pool.queues(QueueSpec(name="sure", guaranteed=Resources(gpu=4000)), QueueSpec(name="other"))
    pool.start(pool.job("a", 8, floor=2, queue="sure"))
    pool.submit(pool.job("b", wanted, floor=wanted, queue="other"))
    pool.live(2 * STARVED_S)
    assert pool.size("a") == left
    assert pool.size("b") == (wanted if left == 4 else 0)


def test_the_patience_is_the_queues_own(pool: ScaledPool) -> None:
    pool.queues(QueueSpec(name="default", starvation_after_s=5, elastic=QueueElastic(policy="dragon")))
    pool.start(pool.job("a", 8, floor=2))
    pool.submit(pool.job("b", 2, floor=2))
    pool.live(4)
    assert pool.size("a") == 8
    pool.live(1)
    assert pool.size("a") == 6


def test_nobody_gives_in_a_queue_without_elasticity(pool: ScaledPool) -> None:
    pool.queues(QueueSpec(name="default", elastic=QueueElastic(policy="none")))
    pool.start(pool.job("a", 8, floor=2, elastic=ElasticPolicy(policy="dragon")))
    pool.submit(pool.job("b", 2, floor=2))
    pool.live(2 * STARVED_S)
    assert pool.size("a") == 8


def test_a_giver_cools_down(pool: ScaledPool) -> None:
    pool.start(pool.job("a", 8, floor=2, elastic=ElasticPolicy(cool_down_s=100)))
    pool.submit(pool.job("b", 2, floor=2))
    pool.live(STARVED_S)
    pool.submit(pool.job("c", 2, floor=2))
    pool.live(STARVED_S)
    assert pool.size("a") == 6
    assert pool.next_look() == 70
    pool.live(70)
    assert pool.size("a") == 4


def test_a_job_does_not_grow_back_into_what_it_gave(pool: ScaledPool) -> None:
    pool.settings = ElasticSettings(policy="dragon", idle_period_s=1)
    pool.start(pool.job("a", 8, floor=2))
    pool.submit(pool.job("b", 2, floor=2))
    done = pool.live(10 * STARVED_S)
    assert [one.job_id for one in done if isinstance(one, Resize)] == ["a"]
    pool.finish("b")
    pool.live(5)
    assert pool.size("a") == 8


def test_a_gift_does_not_outlive_its_taker(pool: ScaledPool) -> None:
    pool.start(pool.job("a", 8, floor=2))
    pool.submit(pool.job("b", 2, floor=2))
    pool.live(STARVED_S, stops=False)
    pool.finish("b", events.Outcome.CANCELLED)
    pool.submit(pool.job("c", 2, floor=2))
    pool.live(1)
    assert pool.workers("c") == {"n2": 2}
