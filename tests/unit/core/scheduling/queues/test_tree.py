"""The queue tree: its validation, the queue of a job, and reports."""

from __future__ import annotations

import pytest

from muster_core.models import QueueElastic, QueuePolicy, QueueSpec, ResourceLimits, Resources
from muster_core.scheduling import remedy_text, validate_queues
from muster_testing.pool import ScenarioPool


def gpus(number: int) -> Resources:
    return Resources(gpu=number * 1000)


@pytest.mark.parametrize(
    ("specs", "problems"),
    [
        ([], []),
        ([QueueSpec(name="a"), QueueSpec(name="b", parent="a"), QueueSpec(name="c", parent="default")], []),
        ([QueueSpec(name="a"), QueueSpec(name="a")], ["Duplicate a.name"]),
        ([QueueSpec(name="Big Queue")], ["BadName Big Queue.name"]),
        ([QueueSpec(name="a", parent="b")], ["UnknownParent a.parent"]),
        ([QueueSpec(name="a", parent="a")], ["Cycle a.parent"]),
        (
            [
                QueueSpec(name="a", parent="b"),
                QueueSpec(name="b", parent="a"),
                QueueSpec(name="c", parent="b"),
            ],
            ["Cycle a.parent", "Cycle b.parent"],
        ),
        ([QueueSpec(name="a"), QueueSpec(name="default", parent="a")], ["Conflict default.parent"]),
        ([QueueSpec(name="a", weight=0)], ["OutOfRange a.weight"]),
        ([QueueSpec(name=f"q{number}") for number in range(1001)], ["TooLarge q999.name"]),
        (
            [QueueSpec(name=f"q{n + 10}", parent=f"q{n + 9}" if n else "") for n in range(17)],
            ["TooDeep q26.parent"],
        ),
        ([QueueSpec(name="a", starvation_after_s=-1)], ["OutOfRange a.starvation_after_s"]),
        (
            [QueueSpec(name="a", guaranteed=gpus(4), limit=ResourceLimits(gpu=3000))],
            ["AboveLimit a.guaranteed.gpu"],
        ),
        ([QueueSpec(name="a", guaranteed=gpus(4), limit=ResourceLimits(cpu=1))], []),
        ([QueueSpec(name="a", guaranteed=gpus(-1))], ["OutOfRange a.guaranteed.gpu"]),
        ([QueueSpec(name="a", limit=ResourceLimits(gpu=-1000))], ["OutOfRange a.limit.gpu"]),
        (
            [
                QueueSpec(name="a", guaranteed=gpus(4)),
                QueueSpec(name="b", parent="a", guaranteed=gpus(3)),
                QueueSpec(name="c", parent="a", guaranteed=gpus(2)),
            ],
            ["Overcommitted a.guaranteed.gpu"],
        ),
        (
            [QueueSpec(name="a", parent="default", guaranteed=gpus(1))],
            ["Overcommitted default.guaranteed.gpu"],
        ),
        ([QueueSpec(name="a", namespaces=("N n",))], ["BadName a.namespaces"]),
        ([QueueSpec(name="a", weight=10**7)], ["OutOfRange a.weight"]),
        (
            [QueueSpec(name="a", elastic=QueueElastic(policy="lion", idle_period_s=-1, cool_down_s=-1))],
            [
                "NotAllowed a.elastic.policy",
                "OutOfRange a.elastic.idle_period_s",
                "OutOfRange a.elastic.cool_down_s",
            ],
        ),
        (
            [QueueSpec(name="a", elastic=QueueElastic(step=-1, min_gain=-1))],
            ["OutOfRange a.elastic.step", "OutOfRange a.elastic.min_gain"],
        ),
        (
            [QueueSpec(name="a", namespaces=("n",)), QueueSpec(name="b", namespaces=("m", "n"))],
            ["Duplicate b.namespaces"],
        ),
    ],
)
def test_an_invalid_queue_is_reported(specs: list[QueueSpec], problems: list[str]) -> None:
    assert [f"{one.code} {one.path}" for one in validate_queues(specs)] == problems


def test_invalid_queues_change_nothing(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a", limit=ResourceLimits(gpu=1000)))
    assert [one.path for one in pool.state.apply_queues([QueueSpec(name="a", weight=0)])] == ["a.weight"]
    pool.submit(pool.job("j", 2, floor=2, queue="a"))
    assert pool.waits()["j"].code == "QueueLimit"


@pytest.mark.parametrize(
    ("queue", "namespace", "waits_in"),
    [
        ("a", "nowhere", "a"),
        ("", "a", "a"),
        ("", "listed", "b"),
        ("", "nowhere", "default"),
        ("default", "a", "default"),
    ],
)
def test_the_queue_follows_from_the_job_then_its_namespace_then_default(
    pool: ScenarioPool, queue: str, namespace: str, waits_in: str
) -> None:
    pool.queues(QueueSpec(name="a"), QueueSpec(name="b", namespaces=("listed",)))
    pool.submit(pool.job("j", 1, queue=queue, namespace=namespace))
    explanation = pool.explain("j")
    assert explanation.queue == waits_in


def test_without_applied_queues_every_job_is_in_default(pool: ScenarioPool) -> None:
    pool.submit(pool.job("j", 1, queue="research", namespace="other"))
    assert pool.placed() == ["j"]
    assert [one.spec.name for one in pool.state.queue_report()] == ["default"]


def test_a_job_of_an_unknown_queue_waits_until_it_is_applied(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a"))
    pool.submit(pool.job("j", 1, queue="research"))
    assert pool.waits()["j"].code == "NoSuchQueue"
    assert pool.decide() == []
    assert pool.state.capacity(pool.now).waiting_feasible == 0
    explanation = pool.explain("j")
    assert [remedy_text(one) for one in explanation.remedies] == [
        "apply queue research",
        "submit it to another queue",
    ]
    pool.queues(QueueSpec(name="a"), QueueSpec(name="research"))
    assert pool.placed() == ["j"]


def test_running_jobs_continue_when_their_queue_is_deleted_or_limited(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="a"))
    pool.run(pool.job("j", 4, queue="a"))
    pool.queues(QueueSpec(name="a", limit=ResourceLimits(gpu=2000)))
    pool.state.check_invariants()
    pool.queues(QueueSpec(name="b"))
    pool.state.check_invariants()
    assert pool.decide() == []
    held = {one.spec.name: one.allocated.gpu for one in pool.state.queue_report()}
    assert held == {"b": 0, "default": 4000}


def test_the_report_has_usage_borrowing_fair_share_and_waiting_jobs(pool: ScenarioPool) -> None:
    pool.queues(
        QueueSpec(name="a", guaranteed=gpus(2), weight=3),
        QueueSpec(name="b", policy=QueuePolicy.STRICT_FIFO),
        QueueSpec(name="idle", weight=100),
    )
    pool.run(pool.job("x", 4, queue="a", servers=0))
    pool.run(pool.job("y", 2, queue="b", servers=0))
    waits_since = pool.now
    pool.submit(pool.job("z", 8, floor=8, queue="b", servers=0))
    a, b, default, idle = pool.state.queue_report()
    assert (a.allocated.gpu, a.borrowed.gpu, a.share, a.fair_share) == (4000, 2000, 500, 750)
    assert (b.share, b.fair_share, b.running, b.waiting, b.oldest_wait_at) == (250, 250, 1, 1, waits_since)
    assert (default.running, idle.fair_share, idle.oldest_wait_at) == (0, 0, 0)
