"""Limits, borrowing, fair shares by weight, and the policies of queues."""

from __future__ import annotations

import pytest

from muster_core.models import QueuePolicy, QueueSpec, ResourceLimits, Resources
from muster_core.scheduling import remedy_text
from muster_testing.pool import ScenarioPool


def gpus(number: int) -> Resources:
    return Resources(gpu=number * 1000)


def submit_some(pool: ScenarioPool, queue: str, number: int, size: int = 1) -> None:
    for at in range(number):
        pool.submit(pool.job(f"{queue}{at}", size, floor=size, queue=queue, servers=0))
        pool.after(1)


def test_a_job_over_the_limit_waits_with_the_numbers(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", limit=ResourceLimits(gpu=3000)))
    pool.run(pool.job("x", 2, queue="a"))
    pool.submit(pool.job("y", 2, floor=2, queue="a"))
    reason = pool.waits()["y"]
    assert (reason.code, reason.message) == (
        "QueueLimit",
        "queue a is limited to 3 GPU: 2 in use, 2 more needed",
    )
    assert reason.numbers == {"limit.gpu": 3000, "used.gpu": 2000, "needed.gpu": 2000}
    assert pool.state.capacity(pool.now).waiting_feasible == 0
    explanation = pool.explain("y")
    assert remedy_text(explanation.remedies[0]) == "would start now with the limit of queue a raised to 4 GPU"


def test_a_gang_starts_as_large_as_the_limit_allows(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", limit=ResourceLimits(gpu=3000)))
    pool.submit(pool.job("x", 6, queue="a"))
    (place,) = pool.decide()
    assert place.reason.message == "4 of 7 replicas on 1 node"
    assert pool.indices("x") == [0, 1, 2]


def test_a_limit_includes_the_queues_below(pool: ScenarioPool) -> None:
    pool.queues(
        QueueSpec(name="a", limit=ResourceLimits(gpu=4000)),
        QueueSpec(name="b", parent="a"),
        QueueSpec(name="c", parent="a"),
    )
    submit_some(pool, "b", 3)
    submit_some(pool, "c", 3)
    assert len(pool.placed()) == 4
    assert pool.state.explain("c2") is not None


def test_growth_stops_at_the_limit(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", limit=ResourceLimits(gpu=3000)))
    pool.run(pool.job("x", 1, most=6, queue="a"))
    pool.scale("x", 6)
    pool.decide()
    assert pool.indices("x") == [0, 1, 2]
    assert pool.decide() == []


def test_a_queue_borrows_idle_capacity(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", guaranteed=gpus(2)), QueueSpec(name="b", guaranteed=gpus(6)))
    submit_some(pool, "a", 1, size=8)
    assert pool.placed() == ["a0"]


@pytest.mark.parametrize(("weights", "shares"), [((1, 1), (4, 4)), ((3, 1), (6, 2)), ((1, 7), (1, 7))])
def test_queues_share_by_weight(
    pool: ScenarioPool, weights: tuple[int, int], shares: tuple[int, int]
) -> None:
    pool.queues(QueueSpec(name="a", weight=weights[0]), QueueSpec(name="b", weight=weights[1]))
    submit_some(pool, "a", 8)
    submit_some(pool, "b", 8)
    placed = pool.placed()
    assert tuple(sum(name.startswith(queue) for name in placed) for queue in "ab") == shares


def test_weights_divide_the_share_on_every_level(pool: ScenarioPool) -> None:
    pool.queues(
        QueueSpec(name="org"),
        QueueSpec(name="a", parent="org"),
        QueueSpec(name="b", parent="org"),
        QueueSpec(name="c"),
    )
    for queue in "abc":
        submit_some(pool, queue, 8)
    placed = pool.placed()
    assert [sum(name.startswith(queue) for name in placed) for queue in "abc"] == [2, 2, 4]


def test_the_dominant_resource_decides_the_order(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="cpus"), QueueSpec(name="gpus"))
    for at in range(9):
        pool.submit(pool.job(f"c{at}", 1, worker=Resources(cpu=4000), queue="cpus", servers=0))
        pool.submit(pool.job(f"g{at}", 1, worker=Resources(cpu=1000, gpu=1000), queue="gpus", servers=0))
    placed = pool.placed()
    # Of 32 CPU and 8 GPU: 4 CPU and 1 GPU are an eighth each, and CPU is what runs out.
    assert sum(name.startswith("g") for name in placed) == 8
    assert sum(name.startswith("c") for name in placed) == 6
    assert [name[0] for name in placed[:6]].count("g") == 3


def test_a_queue_within_its_guarantee_goes_first(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", guaranteed=gpus(6)), QueueSpec(name="b"))
    submit_some(pool, "b", 8)
    submit_some(pool, "a", 8)
    assert pool.placed()[:6] == [f"a{at}" for at in range(6)]


def test_the_first_job_of_a_strict_queue_blocks_the_others(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", policy=QueuePolicy.STRICT_FIFO))
    pool.run(pool.job("x", 4, queue="a"))
    submit_some(pool, "a", 1, size=5)
    pool.submit(pool.job("small", 1, queue="a"))
    pool.submit(pool.job("elsewhere", 1))
    decided = pool.decide()
    assert [one.job_id for one in decided] == ["elsewhere", "a0", "small"]
    assert pool.record("small").reason is not None
    explanation = pool.explain("small")
    assert (explanation.reason.code, explanation.reason.message) == (
        "BehindFirst",
        "queue a is strict_fifo: its first job a0 does not fit yet",
    )
    assert (explanation.position, explanation.ahead) == (2, ("a0",))
    pool.finish("x")
    assert pool.placed() == ["a0", "small"]


def test_a_first_job_that_can_never_start_does_not_block_a_strict_queue(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", policy=QueuePolicy.STRICT_FIFO, limit=ResourceLimits(gpu=7000)))
    submit_some(pool, "a", 1, size=8)
    pool.submit(pool.job("hopeless", 99, floor=99, queue="a"))
    pool.submit(pool.job("small", 1, queue="a"))
    assert pool.placed() == ["small"]


def test_a_drf_queue_shares_among_its_submitters(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", policy=QueuePolicy.DRF))
    for at in range(8):
        pool.submit(pool.job(f"ann{at}", 1, queue="a", servers=0), submitter="ann")
    for at in range(8):
        pool.submit(pool.job(f"bob{at}", 1, queue="a", servers=0, priority=-1), submitter="bob")
    placed = pool.placed()
    assert sum(name.startswith("ann") for name in placed) == 4
    assert len(placed) == 8
