"""The answers on shrinking for those who wait and on growing into what is idle, in the order in which the scheduling page has them."""

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
QUIET_S = 60
POLICIES = pytest.mark.parametrize("policy", ["dragon", "marginal_gain", "max_min"])


def _full(pool: ScaledPool) -> None:
    """A runs its ps and 4 workers on n1 and 4 workers on n2, at least 2 of them."""
    pool.start(pool.job("a", 8, floor=2))
    assert pool.where("a") == {"n1": {"ps": 1, "worker": 4}, "n2": {"worker": 4}}


def _starves(pool: ScaledPool, workers: int, *, floor: int) -> None:
    pool.submit(pool.job("b", workers, floor=floor))
    assert pool.placed() == []
    pool.after(STARVED_S - 1)
    assert pool.look() == []
    assert pool.next_look() == 1
    pool.after(1)


@POLICIES
def test_answer_10_a_gives_two_workers_on_the_other_node(pool: ScaledPool, policy: str) -> None:
    pool.settings = ElasticSettings(policy=policy)
    _full(pool)
    _starves(pool, 2, floor=2)
    pool.live(1)
    assert pool.where("a") == {"n1": {"ps": 1, "worker": 4}, "n2": {"worker": 2}}
    assert pool.indices("a") == [0, 1, 2, 3, 4, 5]
    assert pool.where("b") == {"n2": {"ps": 1, "worker": 2}}


@POLICIES
def test_answer_11_a_gives_four_there_and_one_beside_its_ps(pool: ScaledPool, policy: str) -> None:
    pool.settings = ElasticSettings(policy=policy)
    _full(pool)
    _starves(pool, 5, floor=5)
    pool.live(1)
    assert pool.where("a") == {"n1": {"ps": 1, "worker": 3}}
    assert pool.record("b").phase is Phase.RUNNING


@POLICIES
def test_answer_12_nothing_shrinks_where_it_would_not_help(pool: ScaledPool, policy: str) -> None:
    pool.settings = ElasticSettings(policy=policy)
    _full(pool)
    pool.submit(pool.job("b", 7, floor=7))
    pool.live(3 * QUIET_S)
    assert pool.size("a") == 8
    assert pool.reason("b").code == "InsufficientResources"
    pool.start(pool.job("cpu", 2, most=6, worker=Resources(cpu=1000)))
    pool.live(QUIET_S)
    assert pool.size("cpu") == 6
    assert pool.record("b").phase is Phase.QUEUED


@POLICIES
def test_answer_13_only_the_job_on_the_node_that_helps_gives(empty: ScaledPool, policy: str) -> None:
    empty.settings = ElasticSettings(policy=policy)
    empty.offer("n1", gpu=2)
    empty.offer("n2", gpu=4)
    empty.run_on(empty.job("a", 2), "n1", "n1")
    empty.run_on(empty.job("b", 4), "n2", "n2", "n2", "n2")
    empty.submit(empty.job("head", 1, worker=Resources(cpu=1000, gpu=2000), servers=0))
    empty.after(STARVED_S)
    empty.live(1)
    assert (empty.size("a"), empty.size("b")) == (2, 2)
    assert empty.workers("head") == {"n2": 1}


@POLICIES
def test_answer_14_who_has_no_gpu_gives_none(empty: ScaledPool, policy: str) -> None:
    empty.settings = ElasticSettings(policy=policy)
    empty.offer("n1")
    empty.start(empty.job("a", 4, worker=Resources(cpu=1000)))
    empty.start(empty.job("b", 4))
    empty.submit(empty.job("head", 1, servers=0))
    empty.after(STARVED_S)
    empty.live(1)
    assert (empty.size("a"), empty.size("b")) == (4, 3)
    assert empty.record("head").phase is Phase.RUNNING


@POLICIES
def test_answer_15_who_gave_is_not_asked_again_while_pods_end(pool: ScaledPool, policy: str) -> None:
    pool.settings = ElasticSettings(policy=policy)
    _full(pool)
    _starves(pool, 2, floor=2)
    pool.live(15, stops=False)
    assert pool.size("a") == 6
    pool.leave("a", ("worker", 7))
    pool.submit(pool.job("thief", 1, servers=0))
    pool.live(15, stops=False)
    assert pool.size("a") == 6
    assert pool.record("thief").phase is Phase.QUEUED
    pool.leave("a", ("worker", 6))
    pool.live(1)
    assert pool.where("b") == {"n2": {"ps": 1, "worker": 2}}


@POLICIES
def test_answer_16_one_worker_grows_by_three_at_once(empty: ScaledPool, policy: str) -> None:
    empty.settings = ElasticSettings(policy=policy)
    empty.offer("n1", gpu=5)
    empty.start(empty.job("a", 1, most=4), size=1)
    assert empty.live(QUIET_S - 1) == []
    (grown,) = empty.live(1)
    assert isinstance(grown, Resize)
    assert len(grown.added) == 3


@pytest.mark.parametrize(
    ("policy", "older", "newer"), [("marginal_gain", 3, 3), ("dragon", 4, 2), ("max_min", 3, 3)]
)
def test_answer_17_two_jobs_share_four_gpus(empty: ScaledPool, policy: str, older: int, newer: int) -> None:
    empty.settings = ElasticSettings(policy=policy)
    empty.offer("n1", gpu=6)
    empty.start(empty.job("b", 1, most=4))
    empty.after(1)
    empty.start(empty.job("a", 1, most=4))
    empty.live(QUIET_S)
    assert (empty.size("b"), empty.size("a")) == (older, newer)


@POLICIES
def test_answer_18_a_job_ends_at_its_maximum(empty: ScaledPool, policy: str) -> None:
    empty.settings = ElasticSettings(policy=policy)
    empty.offer("n1", gpu=3)
    empty.offer("n2", gpu=2)
    empty.run_on(empty.job("a", 1, most=4), "n1")
    empty.live(3 * QUIET_S)
    assert empty.workers("a") == {"n1": 3, "n2": 1}


@POLICIES
def test_answer_19_who_does_not_fit_leaves_the_room_to_others(empty: ScaledPool, policy: str) -> None:
    empty.settings = ElasticSettings(policy=policy)
    empty.offer("n1", gpu=3)
    empty.offer("n2", gpu=2)
    empty.run_on(empty.job("a", 1, most=4, worker=Resources(cpu=1000, gpu=2000)), "n1")
    empty.run_on(empty.job("b", 1, most=4), "n2")
    empty.live(QUIET_S)
    assert (empty.size("a"), empty.size("b")) == (1, 3)
    assert empty.workers("b") == {"n1": 1, "n2": 2}


def test_answer_20_tf_config_lists_the_maximum_at_every_size(pool: ScaledPool) -> None:
    pool.start(pool.job("a", 2, most=4, framework=Framework.TENSORFLOW))
    told = [_cluster(pool)]
    pool.live(QUIET_S)
    assert pool.size("a") == 4
    told.append(_cluster(pool))
    scale = events.Command.SCALE
    pool.command("a", scale, role="worker", target=1)
    pool.live(1)
    assert pool.size("a") == 1
    told.append(_cluster(pool))
    assert len(told[0]["worker"]) == 4
    assert told[0] == told[1] == told[2]


def _cluster(pool: ScaledPool) -> dict[str, list[str]]:
    """What worker 0 is told of the cluster."""
    record = pool.record("a")
    assert record.job is not None
    worker = next(one for one in record.gang() if one.key == ("worker", 0))
    context = RuntimeContext(
        addresses=service_addresses(record.job), members_path="/members", config_folder="/config"
    )
    told = environment(record, record.job, worker, context=context, traceparent="")
    return json.loads(told["TF_CONFIG"])["cluster"]


def test_answer_21_the_index_that_left_is_the_first_to_be_used_again(pool: ScaledPool) -> None:
    pool.start(pool.job("a", 4))
    removed = (events.ReplicaRef(role="worker", index=1),)
    resized = events.JobResized(
        attempt=1, generation=2, reason=Reason(code="Shrunk"), removed=removed, policy="dragon"
    )
    pool.publish("a", resized)
    assert pool.indices("a") == [0, 2, 3]
    pool.live(QUIET_S, stops=False)
    assert pool.indices("a") == [0, 2, 3]
    pool.leave("a", ("worker", 1))
    pool.live(QUIET_S)
    assert pool.indices("a") == [0, 1, 2, 3]
