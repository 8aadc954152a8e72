"""Scenarios 10 to 21: jobs shrink for a starved job, and grow into idle capacity; under every policy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from muster_core import events
from muster_core.autoscaling import ElasticSettings
from muster_core.frameworks import RuntimeContext, environment, service_addresses
from muster_core.models import Framework, Phase, Reason, Resources
from muster_core.scheduling import Resize

if TYPE_CHECKING:
    from conftest import ScaledPool

STARVED_S = 30
IDLE_PERIOD_S = 60


@pytest.fixture(params=["dragon", "marginal_gain", "max_min"])
def every(request: pytest.FixtureRequest) -> ElasticSettings:
    """The settings of every policy."""
    return ElasticSettings(policy=request.param)


def _fill(pool: ScaledPool) -> None:
    """Run a with its ps and 4 workers on n1 and 4 workers on n2; it needs 2."""
    pool.run(pool.job("a", 8, floor=2))
    assert pool.where("a") == {"n1": {"ps": 1, "worker": 4}, "n2": {"worker": 4}}


def _starve(pool: ScaledPool, workers: int) -> None:
    """Submit b and let it wait until it is starved."""
    pool.submit(pool.job("b", workers, floor=workers))
    assert pool.placed() == []
    pool.after(STARVED_S - 1)
    assert pool.plan() == []
    assert pool.next_check() == 1
    pool.after(1)


def test_scenario_10_two_workers_are_removed_from_the_node_without_a_parameter_server(
    pool: ScaledPool, every: ElasticSettings
) -> None:
    pool.settings = every
    _fill(pool)
    _starve(pool, 2)
    pool.advance(1)
    assert pool.where("a") == {"n1": {"ps": 1, "worker": 4}, "n2": {"worker": 2}}
    assert pool.indices("a") == [0, 1, 2, 3, 4, 5]
    assert pool.where("b") == {"n2": {"ps": 1, "worker": 2}}


def test_scenario_11_workers_beside_the_parameter_server_are_removed_last(
    pool: ScaledPool, every: ElasticSettings
) -> None:
    pool.settings = every
    _fill(pool)
    _starve(pool, 5)
    pool.advance(1)
    assert pool.where("a") == {"n1": {"ps": 1, "worker": 3}}
    assert pool.record("b").phase is Phase.RUNNING


def test_no_job_shrinks_without_a_beneficiary(pool: ScaledPool, every: ElasticSettings) -> None:
    pool.settings = every
    _fill(pool)
    pool.submit(pool.job("b", 7, floor=7))
    pool.advance(3 * IDLE_PERIOD_S)
    assert pool.size("a") == 8
    assert pool.reason("b").code == "InsufficientResources"
    pool.run(pool.job("cpu", 2, most=6, worker=Resources(cpu=1000)))
    pool.advance(IDLE_PERIOD_S)
    assert pool.size("cpu") == 6
    assert pool.record("b").phase is Phase.QUEUED


def test_scenario_13_only_the_job_on_the_node_that_helps_shrinks(
    empty: ScaledPool, every: ElasticSettings
) -> None:
    empty.settings = every
    empty.add_node("n1", gpu=2)
    empty.add_node("n2", gpu=4)
    empty.run_on(empty.job("a", 2), "n1", "n1")
    empty.run_on(empty.job("b", 4), "n2", "n2", "n2", "n2")
    empty.submit(empty.job("waiting", 1, worker=Resources(cpu=1000, gpu=2000), servers=0))
    empty.after(STARVED_S)
    empty.advance(1)
    assert (empty.size("a"), empty.size("b")) == (2, 2)
    assert empty.workers("waiting") == {"n2": 1}


def test_scenario_14_a_job_without_gpus_does_not_shrink_for_a_gpu(
    empty: ScaledPool, every: ElasticSettings
) -> None:
    empty.settings = every
    empty.add_node("n1")
    empty.run(empty.job("a", 4, worker=Resources(cpu=1000)))
    empty.run(empty.job("b", 4))
    empty.submit(empty.job("waiting", 1, servers=0))
    empty.after(STARVED_S)
    empty.advance(1)
    assert (empty.size("a"), empty.size("b")) == (4, 3)
    assert empty.record("waiting").phase is Phase.RUNNING


def test_scenario_15_a_donor_does_not_shrink_further_while_its_replicas_terminate(
    pool: ScaledPool, every: ElasticSettings
) -> None:
    pool.settings = every
    _fill(pool)
    _starve(pool, 2)
    pool.advance(15, stops=False)
    assert pool.size("a") == 6
    pool.exit("a", 7)
    pool.submit(pool.job("late", 1, servers=0))
    pool.advance(15, stops=False)
    assert pool.size("a") == 6
    assert pool.record("late").phase is Phase.QUEUED
    pool.exit("a", 6)
    pool.advance(1)
    assert pool.where("b") == {"n2": {"ps": 1, "worker": 2}}


def test_scenario_16_a_job_grows_by_three_workers_at_once(empty: ScaledPool, every: ElasticSettings) -> None:
    empty.settings = every
    empty.add_node("n1", gpu=5)
    empty.run(empty.job("a", 1, most=4))
    assert empty.advance(IDLE_PERIOD_S - 1) == []
    (grown,) = empty.advance(1)
    assert isinstance(grown, Resize)
    assert len(grown.added) == 3


@pytest.mark.parametrize(
    ("policy", "older", "newer"), [("marginal_gain", 3, 3), ("dragon", 4, 2), ("max_min", 3, 3)]
)
def test_scenario_17_two_jobs_share_four_idle_gpus(
    empty: ScaledPool, policy: str, older: int, newer: int
) -> None:
    empty.settings = ElasticSettings(policy=policy)
    empty.add_node("n1", gpu=6)
    empty.run(empty.job("b", 1, most=4))
    empty.after(1)
    empty.run(empty.job("a", 1, most=4))
    empty.advance(IDLE_PERIOD_S)
    assert (empty.size("b"), empty.size("a")) == (older, newer)


def test_scenario_18_a_job_stops_growing_at_its_maximum(empty: ScaledPool, every: ElasticSettings) -> None:
    empty.settings = every
    empty.add_node("n1", gpu=3)
    empty.add_node("n2", gpu=2)
    empty.run_on(empty.job("a", 1, most=4), "n1")
    empty.advance(3 * IDLE_PERIOD_S)
    assert empty.workers("a") == {"n1": 3, "n2": 1}


def test_scenario_19_capacity_that_a_job_cannot_use_goes_to_others(
    empty: ScaledPool, every: ElasticSettings
) -> None:
    empty.settings = every
    empty.add_node("n1", gpu=3)
    empty.add_node("n2", gpu=2)
    empty.run_on(empty.job("a", 1, most=4, worker=Resources(cpu=1000, gpu=2000)), "n1")
    empty.run_on(empty.job("b", 1, most=4), "n2")
    empty.advance(IDLE_PERIOD_S)
    assert (empty.size("a"), empty.size("b")) == (1, 3)
    assert empty.workers("b") == {"n1": 1, "n2": 2}


def test_scenario_20_tf_config_lists_the_maximum_at_every_size(pool: ScaledPool) -> None:
    pool.run(pool.job("a", 2, most=4, framework=Framework.TENSORFLOW))
    clusters = [_cluster(pool)]
    pool.advance(IDLE_PERIOD_S)
    assert pool.size("a") == 4
    clusters.append(_cluster(pool))
    pool.scale("a", 1)
    pool.advance(1)
    assert pool.size("a") == 1
    clusters.append(_cluster(pool))
    assert len(clusters[0]["worker"]) == 4
    assert clusters[0] == clusters[1] == clusters[2]


def _cluster(pool: ScaledPool) -> dict[str, list[str]]:
    """Return the cluster in the TF_CONFIG of worker 0."""
    record = pool.record("a")
    assert record.job is not None
    worker = next(one for one in record.gang() if one.key == ("worker", 0))
    context = RuntimeContext(
        addresses=service_addresses(record.job), members_path="/members", config_folder="/config"
    )
    variables = environment(record, record.job, worker, context=context, traceparent="")
    return json.loads(variables["TF_CONFIG"])["cluster"]


def test_scenario_21_a_removed_index_is_the_first_to_be_reused(pool: ScaledPool) -> None:
    pool.run(pool.job("a", 4))
    removed = (events.ReplicaRef(role="worker", index=1),)
    resized = events.JobResized(
        attempt=1, generation=2, reason=Reason(code="Shrunk"), removed=removed, policy="dragon"
    )
    pool.publish("a", resized)
    assert pool.indices("a") == [0, 2, 3]
    pool.advance(IDLE_PERIOD_S, stops=False)
    assert pool.indices("a") == [0, 2, 3]
    pool.exit("a", 1)
    pool.advance(IDLE_PERIOD_S)
    assert pool.indices("a") == [0, 1, 2, 3]
