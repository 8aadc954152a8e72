"""A verified remedy lets the job start: each is applied here as a user would."""

from __future__ import annotations

import msgspec
import pytest

from muster_core.models import (
    Job,
    PlacementPolicy,
    QueuePolicy,
    QueueSpec,
    ReplicaState,
    ResourceLimits,
    Resources,
    Role,
    RunPolicy,
    Taint,
    Template,
    Toleration,
)
from muster_core.scheduling import Explanation, remedy_text
from muster_testing.pool import ScenarioPool

NOW = "would start now "


def remedies(explanation: Explanation) -> list[str]:
    """The remedies in words."""
    return [remedy_text(one) for one in explanation.remedies]


def explained(pool: ScenarioPool, job_id: str) -> Explanation:
    """Decide without placing the job, and explain it."""
    pool.decide()
    assert pool.record(job_id).phase.value == "Queued"
    return pool.explain(job_id)


def asking(pool: ScenarioPool, name: str, workers: int, **template: object) -> Job:
    """A rigid job with constraints in its template."""
    job = pool.rigid(name, workers)
    role = job.roles[0]
    changed = msgspec.structs.replace(role.template, **template)
    return msgspec.structs.replace(job, roles=(msgspec.structs.replace(role, template=changed),))


def test_fewer_workers_would_fit(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 10, floor=9))
    assert f"{NOW}with 8 workers instead of 9" in remedies(explained(pool, "a"))
    pool.submit(pool.job("b", 10, floor=8))
    assert pool.placed() == ["b"]


def test_only_roles_that_would_be_smaller_are_named(pool: ScenarioPool) -> None:
    job = pool.job("a", 9, floor=9)
    evaluator = Role(
        name="evaluator", replicas=2, min=2, max=2, template=Template(requests=Resources(cpu=1000))
    )
    pool.submit(msgspec.structs.replace(job, roles=(*job.roles, evaluator)))
    assert f"{NOW}with 8 workers instead of 9" in remedies(explained(pool, "a"))


def test_more_capacity_on_one_node_would_fit_the_gang(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 9, floor=9))
    assert f"{NOW}with 1 more GPU on n1" in remedies(explained(pool, "a"))
    pool.add_node("n1", gpu=5)
    assert pool.placed() == ["a"]


def test_freed_capacity_on_one_node_would_fit_the_gang(pool: ScenarioPool) -> None:
    pool.run(pool.job("x", 3, floor=3, servers=0))
    pool.submit(pool.job("a", 6, floor=6, servers=0))
    explanation = explained(pool, "a")
    assert f"{NOW}with 1 more GPU free on n1" in remedies(explanation)
    assert not explanation.nearest_miss.startswith("capacity")
    pool.finish("x")
    assert pool.placed() == ["a"]


def test_one_node_lacks_several_resources(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 1, worker=Resources(cpu=20_000, memory=2**31, gpu=5000), servers=0))
    assert f"{NOW}with 4 more CPU and 1 more GPU and 2 more GiB of memory on n1" in remedies(
        explained(pool, "a")
    )


def test_a_gpu_share_needs_a_whole_gpu_more(empty: ScenarioPool) -> None:
    half = Resources(cpu=1000, gpu=500)
    empty.add_node("n1", gpu=1)
    empty.run(empty.job("x", 1, worker=Resources(cpu=1000, gpu=700), servers=0))
    empty.submit(empty.job("a", 1, worker=half, servers=0))
    assert f"{NOW}with 1 more GPU free on n1" in remedies(explained(empty, "a"))


def test_another_job_shrinks_no_more_than_needed(pool: ScenarioPool) -> None:
    pool.run(pool.job("other", 8, floor=2))
    pool.submit(pool.job("b", 2, floor=2))
    assert f"{NOW}if other shrank by 2 workers" in remedies(explained(pool, "b"))
    pool.scale("other", 6)
    pool.decide()
    assert pool.indices("other") == [0, 1, 2, 3, 4, 5]
    pool.report("other", ReplicaState.EXITED, ("worker", 6), ("worker", 7))
    assert pool.placed() == ["b"]


def test_two_jobs_shrink_if_one_does_not_suffice(pool: ScenarioPool) -> None:
    for name in ("x", "y"):
        pool.run(pool.job(name, 4, floor=3, servers=0))
    pool.submit(asking(pool, "b", 2))
    assert f"{NOW}if x shrank by 1 worker and y shrank by 1 worker" in remedies(explained(pool, "b"))


def test_no_job_is_named_if_shrinking_does_not_help(pool: ScenarioPool) -> None:
    pool.run(pool.job("other", 8, floor=2))
    pool.submit(pool.job("b", 7, floor=7))
    assert not any("shrank" in one for one in remedies(explained(pool, "b")))


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"tolerations": (Toleration(key="gpu", operator="Exists"),)}, "if it tolerated gpu=true:NoSchedule"),
        ({"node_selector": {}}, "without its node selector disk=ssd"),
        ({"node_affinity": {}}, "without its required node affinity"),
    ],
)
def test_the_gang_would_fit_without_one_node_constraint(
    empty: ScenarioPool, change: dict[str, object], remedy: str
) -> None:
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
        }
    }
    asked: dict[str, dict[str, object]] = {
        "tolerations": {},
        "node_selector": {"node_selector": {"disk": "ssd"}},
        "node_affinity": {"node_affinity": affinity},
    }
    (field,) = change
    empty.add_node("n1", taints=(Taint(key="gpu", value="true"),) if field == "tolerations" else ())
    empty.submit(asking(empty, "a", 2, **asked[field]))
    explanation = explained(empty, "a")
    assert explanation.reason.code == "NoMatchingNode"
    assert remedies(explanation)[0] == f"{NOW}{remedy}"
    empty.submit(asking(empty, "b", 2, **change))
    assert empty.placed() == ["b"]


def test_a_required_topology_domain_is_too_small(empty: ScenarioPool) -> None:
    for zone in ("a", "b"):
        empty.add_node(f"n-{zone}", labels={"zone": zone})
    policy = PlacementPolicy(topology="zone", topology_required=True)
    empty.submit(msgspec.structs.replace(asking(empty, "a", 6), placement=policy))
    explanation = explained(empty, "a")
    assert explanation.nearest_miss.startswith("of 2 domains of zone, the best (a) holds 4 of the 6 replicas")
    assert f"{NOW}if one domain of zone were preferred and not required" in remedies(explanation)
    preferred = msgspec.structs.replace(policy, topology_required=False)
    empty.submit(msgspec.structs.replace(asking(empty, "b", 6), placement=preferred))
    assert empty.placed() == ["b"]


def test_a_cordoned_and_a_not_ready_node_would_fit_the_gang(empty: ScenarioPool) -> None:
    empty.add_node("n1", unschedulable=True)
    empty.add_node("n2", ready=False)
    empty.submit(asking(empty, "a", 2))
    explanation = explained(empty, "a")
    assert [one.constraint for one in explanation.filtered] == ["NotReady", "Unschedulable"]
    assert remedies(explanation)[:2] == [f"{NOW}if n1 were uncordoned", f"{NOW}if n2 were ready"]
    empty.add_node("n1")
    assert empty.placed() == ["a"]


def test_a_job_at_its_limit_has_three_remedies(pool: ScenarioPool) -> None:
    limited = QueueSpec(name="q", limit=ResourceLimits(gpu=3000))
    pool.queues(limited)
    pool.run(pool.job("x", 2, queue="q"))
    pool.submit(pool.job("y", 2, floor=2, queue="q"))
    assert remedies(explained(pool, "y")) == [
        f"{NOW}with the limit of queue q raised to 4 GPU",
        f"{NOW}with 1 worker instead of 2",
        f"{NOW}if x shrank by 1 worker",
    ]
    pool.queues(msgspec.structs.replace(limited, limit=ResourceLimits(gpu=4000)))
    assert pool.placed() == ["y"]


def test_a_higher_limit_alone_does_not_help_without_free_capacity(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="q", limit=ResourceLimits(gpu=9000)))
    pool.submit(pool.job("y", 10, floor=10, queue="q"))
    assert remedies(explained(pool, "y"))[0] == (
        "raise the limit of queue q to 10 GPU; the pool lacks free capacity as well"
    )


def test_an_active_deadline_before_the_reservation_would_help(pool: ScenarioPool) -> None:
    def rigid(name: str, size: int, **rest: object) -> Job:
        return msgspec.structs.replace(pool.job(name, size, floor=size, servers=0), **rest)

    pool.run(rigid("r", 4, run=RunPolicy(active_deadline_s=600)))
    pool.submit(rigid("whole", 8))
    pool.decide()
    pool.after(30)
    pool.submit(rigid("small", 1))
    explanation = explained(pool, "small")
    assert explanation.blocked_by is not None
    assert (explanation.blocked_by.job_id, explanation.blocked_by.nodes, explanation.blocked_since) == (
        "whole",
        ("n1", "n2"),
        pool.now,
    )
    assert explanation.missing == ()
    assert remedies(explanation)[-1] == f"{NOW}with an active deadline of at most 9 min"
    pool.submit(rigid("short", 1, run=RunPolicy(active_deadline_s=540)))
    assert pool.placed() == ["short"]


def test_the_first_job_of_a_strict_queue_blocks_also_a_job_that_fits_nowhere(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="q", policy=QueuePolicy.STRICT_FIFO))
    pool.run(pool.job("x", 8, queue="q"))
    pool.submit(pool.job("first", 1, queue="q"))
    pool.after(1)
    pool.submit(pool.job("second", 3, floor=3, queue="q"))
    explanation = explained(pool, "second")
    assert (explanation.reason.code, explanation.ahead, explanation.position) == (
        "BehindFirst",
        ("first",),
        2,
    )


def test_the_first_jobs_ahead_are_named_and_all_are_counted(pool: ScenarioPool) -> None:
    for number in range(30):
        pool.submit(pool.job(f"j{number:02}", 9, floor=9))
        pool.after(1)
    explanation = explained(pool, "j29")
    assert explanation.position == 30
    assert explanation.ahead == tuple(f"j{number:02}" for number in range(20))


def test_the_expected_start_follows_from_an_active_deadline(pool: ScenarioPool) -> None:
    run = RunPolicy(active_deadline_s=600)
    pool.run(pool.job("r", 8, floor=8, run=run))
    pool.submit(pool.job("b", 2, floor=2))
    explanation = explained(pool, "b")
    assert explanation.expected_from.startswith(
        "unknown: the job starts as soon as it fits; after 30 s of waiting"
    )
    pool.after(30)
    explanation = explained(pool, "b")
    assert explanation.expected_start == pool.record("r").started_at + 600_000_000
    assert explanation.expected_from == "when r ends, estimated from its active deadline"
    assert explanation.reserved_since == pool.now
    pool.after(5)
    assert explained(pool, "b").reserved_since == pool.now - 5_000_000


def test_the_expected_start_follows_from_earlier_runs(pool: ScenarioPool) -> None:
    pool.run(pool.job("r", 8, floor=8))
    pool.after(100)
    pool.finish("r")
    again = pool.submit(pool.job("r", 8, floor=8), job_id="r-again")
    pool.decide()
    pool.report(again, ReplicaState.RUNNING)
    pool.submit(pool.job("b", 2, floor=2))
    pool.decide()
    pool.after(31)
    explanation = explained(pool, "b")
    assert explanation.expected_start == pool.record(again).running_at + 100_000_000
    assert explanation.expected_from == "when r ends, estimated from its earlier runs"


def test_a_job_without_a_runtime_estimate_is_named(pool: ScenarioPool) -> None:
    pool.run(pool.job("r", 8, floor=8))
    pool.submit(pool.job("b", 2, floor=2))
    pool.decide()
    pool.after(31)
    explanation = explained(pool, "b")
    assert explanation.expected_start is None
    assert explanation.expected_from == (
        "unknown: r has neither an active deadline nor an earlier run of that name"
    )


def test_only_the_first_job_of_a_queue_gets_a_reservation(pool: ScenarioPool) -> None:
    pool.run(pool.job("r", 8, floor=8))
    for name in ("b", "c"):
        pool.submit(pool.job(name, 2, floor=2))
        pool.after(31)
    assert explained(pool, "c").expected_from == (
        "unknown: the job starts as soon as it fits; b gets a reservation first"
    )


def test_a_draining_job_waits_for_its_last_attempt(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="q", preempts_within=True))
    pool.run(pool.job("low", 8, floor=8, queue="q"))
    pool.submit(pool.job("high", 8, floor=8, queue="q", priority=5))
    pool.decide()
    explanation = pool.explain("low")
    assert explanation.reason.code == "Preempted"
    assert explanation.notes == ("waits for 9 replicas of its last attempt to end",)


@pytest.mark.parametrize(("most", "gpu", "can_add"), [(8, 4, 4), (6, 4, 2), (8, 2, 0)])
def test_a_running_job_shows_its_surplus_and_how_far_it_can_grow(
    empty: ScenarioPool, most: int, gpu: int, can_add: int
) -> None:
    empty.add_node("n1", gpu=4)
    empty.run(empty.job("a", 4, floor=2, most=most))
    empty.add_node("n2", gpu=gpu)
    if gpu < 4:
        empty.run(empty.job("x", gpu, floor=gpu, servers=0))
    explanation = empty.explain("a")
    ps, worker = explanation.roles
    assert (ps.size, ps.surplus, ps.can_add) == (1, 0, 0)
    assert (worker.size, worker.min, worker.wanted, worker.max) == (4, 2, 4, most)
    assert (worker.surplus, worker.can_add) == (2, can_add)


def test_reserved_capacity_does_not_count_for_growth(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 1, most=4, servers=0))
    pool.run(pool.job("b", 4, floor=4, servers=0))
    pool.submit(pool.job("whole", 8, floor=8, servers=0))
    pool.decide()
    pool.after(31)
    pool.decide()
    explanation = pool.explain("a")
    assert explanation.roles[0].can_add == 0


@pytest.mark.parametrize("cpu", [100, 0])
def test_explaining_changes_nothing(pool: ScenarioPool, cpu: int) -> None:
    pool.run(pool.job("other", 8, floor=2))
    pool.submit(pool.job("b", 2 + cpu, floor=2 + cpu))
    pool.decide()
    pool.after(31)
    decided = pool.state.decide(pool.now)
    first = pool.state.explain("b")
    assert pool.state.explain("b") == first
    assert pool.state.decide(pool.now) == decided
    pool.state.check_invariants()
