"""Shrinking for starved jobs: which jobs, which replicas, and when none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from muster_core import events
from muster_core.autoscaling import ElasticSettings
from muster_core.models import ElasticPolicy, Job, Phase, QueueElastic, QueueSpec, Resources, Role, Template
from muster_core.scheduling import Resize
from muster_testing.pool import WORKER

if TYPE_CHECKING:
    from conftest import ScaledPool

STARVED_S = 30
TWO_GPUS = Resources(cpu=1000, gpu=2000)


def test_a_proposal_names_the_beneficiary_and_its_wait(pool: ScaledPool) -> None:
    pool.run(pool.job("a", 8, floor=2))
    pool.submit(pool.job("b", 2, floor=2))
    pool.after(STARVED_S + 2)
    ((_, event),) = pool.plan()
    assert event.reason.code == "StarvedJob"
    assert event.reason.message == ("b (b) has waited 32 s: shrink worker from 8 to 6 (min 2) on n2")
    assert (event.size, event.target, event.beneficiary, event.donors) == (8, 6, "b", 1)
    assert [ref.index for ref in event.removed] == [7, 6]
    assert event.gain < 0


def test_several_donors_share_the_loss(pool: ScaledPool) -> None:
    pool.settings = ElasticSettings(policy="dragon")
    pool.run_on(pool.job("a", 4), "n1", "n1", "n1", "n1")
    pool.run_on(pool.job("b", 4), "n2", "n2", "n2", "n2")
    pool.submit(pool.job("waiting", 4, floor=4))
    pool.after(STARVED_S)
    assert {name: len(removed) for name, removed in pool.removals().items()} == {"a": 2, "b": 2}
    pool.advance(1)
    assert pool.size("waiting") == 4


def test_dragon_shrinks_the_job_furthest_above_its_minimum_first(pool: ScaledPool) -> None:
    pool.settings = ElasticSettings(policy="dragon")
    pool.run_on(pool.job("a", 4, floor=1), "n1", "n1", "n1", "n1")
    pool.run_on(pool.job("b", 4, floor=3), "n2", "n2", "n2", "n2")
    pool.submit(pool.job("waiting", 2, floor=2))
    pool.after(STARVED_S)
    assert pool.removals() == {"a": [3, 2]}


def test_marginal_gain_shrinks_the_job_that_loses_least(pool: ScaledPool) -> None:
    pool.run_on(pool.job("good", 4), "n1", "n1", "n1", "n1")
    pool.run_on(pool.job("bad", 4), "n2", "n2", "n2", "n2")
    pool.measure("good", n1=100, n4=390)
    pool.measure("bad", n1=100, n4=150)
    pool.submit(pool.job("waiting", 2, floor=2))
    pool.after(STARVED_S)
    assert pool.removals() == {"bad": [3, 2]}


def test_replicas_on_nodes_without_a_parameter_server_are_removed_first(pool: ScaledPool) -> None:
    pool.run_on(pool.job("a", 6, floor=1), "n1", "n2", "n2", "n1", "n1", "n1")
    pool.run_on(pool.job("b", 2, floor=2), "n2", "n2")
    pool.submit(pool.job("waiting", 1, floor=1))
    pool.after(STARVED_S)
    assert pool.removals() == {"a": [2]}


def test_the_capacity_of_one_replica_is_released_on_one_node(pool: ScaledPool) -> None:
    pool.run_on(pool.job("a", 8, floor=6), "n1", "n1", "n2", "n1", "n2", "n1", "n2", "n2")
    pool.submit(pool.job("waiting", 1, worker=TWO_GPUS, servers=0))
    pool.after(STARVED_S)
    (removed,) = pool.removals().values()
    nodes = {one.index: one.node for one in pool.record("a").gang() if one.role == "worker"}
    assert len(removed) == 2
    assert len({nodes[index] for index in removed}) == 1
    pool.advance(1)
    assert pool.record("waiting").phase is Phase.RUNNING


def test_no_replica_is_removed_on_an_infeasible_node(pool: ScaledPool) -> None:
    pool.add_node("n1", labels={"zone": "a"})
    pool.add_node("n2", labels={"zone": "b"})
    pool.run_on(pool.job("a", 8, floor=2), "n1", "n1", "n1", "n1", "n2", "n2", "n2", "n2")
    template = Template(requests=WORKER, node_selector={"zone": "a"})
    role = Role(name="worker", replicas=2, min=2, max=2, template=template)
    pool.submit(Job(name="waiting", roles=(role,)))
    pool.after(STARVED_S)
    assert pool.removals() == {"a": [3, 2]}


@pytest.mark.parametrize(
    "fields",
    [{"elastic": ElasticPolicy(policy="none")}, {"preemptible": False}, {"min_available": 9}],
    ids=["policy none", "not preemptible", "needs all replicas"],
)
def test_some_jobs_never_shrink(pool: ScaledPool, fields: dict[str, object]) -> None:
    pool.run(msgspec.structs.replace(pool.job("a", 8, floor=2), **fields))
    pool.submit(pool.job("b", 2, floor=2))
    pool.after(STARVED_S)
    assert pool.plan() == []


def test_worker_0_and_the_minimum_stay(pool: ScaledPool) -> None:
    pool.run(pool.job("a", 8, floor=1))
    pool.submit(pool.job("b", 8, floor=7))
    pool.advance(STARVED_S)
    assert pool.indices("a") == [0]
    assert pool.size("b") == 7


def test_the_next_starved_job_starts_if_the_first_cannot(pool: ScaledPool) -> None:
    pool.run(pool.job("a", 8, floor=7))
    pool.submit(pool.job("big", 4, floor=4))
    pool.submit(pool.job("small", 1))
    pool.advance(STARVED_S)
    assert pool.record("big").phase is Phase.QUEUED
    assert pool.size("a") == 7
    assert pool.record("small").phase is Phase.RUNNING


def test_reserved_capacity_is_not_released_for_another_job(pool: ScaledPool) -> None:
    pool.run(pool.job("a", 8, floor=7))
    pool.submit(pool.job("all", 8, floor=8))
    pool.submit(pool.job("small", 1))
    pool.advance(4 * STARVED_S)
    assert pool.size("a") == 8
    assert pool.record("small").phase is Phase.QUEUED


def test_several_starved_jobs_start_one_after_the_other(pool: ScaledPool) -> None:
    pool.settings = ElasticSettings(policy="dragon")
    pool.run_on(pool.job("a", 4), "n1", "n1", "n1", "n1")
    pool.run_on(pool.job("b", 4), "n2", "n2", "n2", "n2")
    for name in ("c", "d", "e"):
        pool.submit(pool.job(name, 2, floor=2))
    pool.advance(STARVED_S)
    assert [pool.size(name) for name in "abcde"] == [1, 1, 2, 2, 2]


def test_a_queue_keeps_its_guarantee(pool: ScaledPool) -> None:
    pool.queues(QueueSpec(name="sure", guaranteed=Resources(gpu=8000)), QueueSpec(name="other"))
    pool.run(pool.job("a", 8, floor=2, queue="sure"))
    pool.submit(pool.job("b", 2, floor=2, queue="other"))
    pool.advance(2 * STARVED_S)
    assert pool.size("a") == 8
    pool.submit(pool.job("c", 2, floor=2, queue="sure"))
    pool.advance(STARVED_S)
    assert pool.size("a") == 6
    assert pool.record("c").phase is Phase.RUNNING


@pytest.mark.parametrize(("wanted", "left"), [(4, 4), (5, 8)])
def test_a_queue_loses_only_borrowed_capacity(pool: ScaledPool, wanted: int, left: int) -> None:
    pool.queues(QueueSpec(name="sure", guaranteed=Resources(gpu=4000)), QueueSpec(name="other"))
    pool.run(pool.job("a", 8, floor=2, queue="sure"))
    pool.submit(pool.job("b", wanted, floor=wanted, queue="other"))
    pool.advance(2 * STARVED_S)
    assert pool.size("a") == left
    assert pool.size("b") == (wanted if left == 4 else 0)


def test_a_job_that_cannot_be_helped_does_not_keep_donors_from_the_next(pool: ScaledPool) -> None:
    pool.queues(QueueSpec(name="sure", guaranteed=Resources(gpu=4000)), QueueSpec(name="other"))
    pool.run(pool.job("a", 8, floor=2, queue="sure"))
    pool.submit(pool.job("b", 5, floor=5, queue="other"))
    pool.submit(pool.job("c", 2, floor=2, queue="other"))
    pool.advance(2 * STARVED_S)
    assert (pool.size("a"), pool.size("b"), pool.size("c")) == (6, 0, 2)


def test_the_starvation_threshold_is_the_queues(pool: ScaledPool) -> None:
    pool.queues(QueueSpec(name="default", starvation_after_s=5, elastic=QueueElastic(policy="dragon")))
    pool.run(pool.job("a", 8, floor=2))
    pool.submit(pool.job("b", 2, floor=2))
    pool.advance(4)
    assert pool.size("a") == 8
    pool.advance(1)
    assert pool.size("a") == 6


def test_no_job_shrinks_in_a_queue_without_elasticity(pool: ScaledPool) -> None:
    pool.queues(QueueSpec(name="default", elastic=QueueElastic(policy="none")))
    pool.run(pool.job("a", 8, floor=2, elastic=ElasticPolicy(policy="dragon")))
    pool.submit(pool.job("b", 2, floor=2))
    pool.advance(2 * STARVED_S)
    assert pool.size("a") == 8


def test_a_donor_keeps_its_size_during_the_cool_down(pool: ScaledPool) -> None:
    pool.run(pool.job("a", 8, floor=2, elastic=ElasticPolicy(cool_down_s=100)))
    pool.submit(pool.job("b", 2, floor=2))
    pool.advance(STARVED_S)
    pool.submit(pool.job("c", 2, floor=2))
    pool.advance(STARVED_S)
    assert pool.size("a") == 6
    assert pool.next_check() == 70
    pool.advance(70)
    assert pool.size("a") == 4


def test_a_donor_does_not_grow_back_while_the_beneficiary_runs(pool: ScaledPool) -> None:
    pool.settings = ElasticSettings(policy="dragon", idle_period_s=1)
    pool.run(pool.job("a", 8, floor=2))
    pool.submit(pool.job("b", 2, floor=2))
    done = pool.advance(10 * STARVED_S)
    assert [one.job_id for one in done if isinstance(one, Resize)] == ["a"]
    pool.finish("b")
    pool.advance(5)
    assert pool.size("a") == 8


def test_released_capacity_is_not_reserved_for_a_cancelled_job(pool: ScaledPool) -> None:
    pool.run(pool.job("a", 8, floor=2))
    pool.submit(pool.job("b", 2, floor=2))
    pool.advance(STARVED_S, stops=False)
    pool.finish("b", events.Outcome.CANCELLED)
    pool.submit(pool.job("c", 2, floor=2))
    pool.advance(1)
    assert pool.workers("c") == {"n2": 2}


def test_the_scheduler_accepts_the_proposals_for_two_beneficiaries(empty: ScaledPool) -> None:
    """The reservation of the first must not withhold what donors release for the second."""
    empty.add_node("n1", cpu=6, gpu=1)
    empty.add_node("n2", cpu=4, gpu=2)
    empty.run_on(empty.job("a", 2, servers=2, worker=Resources(cpu=2000)), "n1", "n1")
    empty.run_on(empty.job("b", 2, servers=0), "n2", "n2")
    empty.submit(empty.rigid("c", 1))
    empty.submit(empty.rigid("d", 1))
    empty.advance(STARVED_S)
    assert empty.state.rejected_proposals == 0
    assert [empty.size(name) for name in "abcd"] == [1, 1, 1, 1]


def test_no_job_shrinks_for_a_beneficiary_that_an_earlier_one_would_displace(empty: ScaledPool) -> None:
    """Of two plans the first fits in several ways; the scheduler chooses one that leaves nothing for the second."""
    empty.add_node("n1", cpu=4, gpu=3)
    empty.add_node("n2", cpu=4, gpu=0)
    empty.add_node("n3", cpu=4, gpu=3)
    empty.run_on(empty.rigid("a", 1), "n1")
    empty.run_on(empty.job("b", 2, servers=0), "n1", "n1")
    empty.run_on(empty.job("c", 4, servers=0, worker=Resources(cpu=2000)), "n2", "n2", "n3", "n3")
    empty.settings = ElasticSettings(policy="dragon")
    empty.submit(empty.job("d", 3, floor=3, servers=2))
    empty.submit(empty.rigid("e", 1))
    empty.after(STARVED_S)
    assert {one.event.beneficiary for one in empty.plan()} == {"d"}
    empty.advance(1)
    assert empty.record("d").phase is Phase.RUNNING
