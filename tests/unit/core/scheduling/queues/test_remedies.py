"""What is said to let a job start now does let it start: every remedy is tried here as a user would."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from muster_core.models import (
    Job,
    PlacementPolicy,
    QueuePolicy,
    QueueSpec,
    ReplicaState,
    Resources,
    Role,
    RunPolicy,
    Taint,
    Template,
    Toleration,
)
from muster_core.scheduling import Explanation, remedy_text

if TYPE_CHECKING:
    from conftest import World

NOW = "would start now "


def remedies(explanation: Explanation) -> list[str]:
    """The remedies in words."""
    return [remedy_text(one) for one in explanation.remedies]


def explained(world: World, job_id: str) -> Explanation:
    """The explanation after a decision that did not place the job."""
    world.decide()
    assert world.record(job_id).phase.value == "Queued"
    said = world.pool.explain(job_id)
    assert said is not None
    return said


def asking(world: World, name: str, workers: int, **template: object) -> Job:
    """A rigid job of ``workers`` whose template asks so of its nodes."""
    job = world.job(name, workers, floor=workers, servers=0)
    role = job.roles[0]
    changed = msgspec.structs.replace(role.template, **template)
    return msgspec.structs.replace(
        job,
        roles=(msgspec.structs.replace(role, template=changed),),
    )


def test_fewer_workers(world: World) -> None:
    world.submit(world.job("a", 10, floor=9))
    assert f"{NOW}with 8 workers instead of 9" in remedies(explained(world, "a"))
    world.submit(world.job("b", 10, floor=8))
    assert world.placed() == ["b"]


def test_of_several_roles_only_those_that_would_be_smaller_are_named(world: World) -> None:
    job = world.job("a", 9, floor=9)
    evaluator = Role(
        name="evaluator", replicas=2, min=2, max=2, template=Template(requests=Resources(cpu=1000))
    )
    world.submit(msgspec.structs.replace(job, roles=(*job.roles, evaluator)))
    assert f"{NOW}with 8 workers instead of 9" in remedies(explained(world, "a"))


def test_room_on_a_node_that_it_would_have_to_gain(world: World) -> None:
    world.submit(world.job("a", 9, floor=9))
    assert f"{NOW}with 1 more GPU on n1" in remedies(explained(world, "a"))
    world.node("n1", gpu=5)
    assert world.placed() == ["a"]


def test_room_on_a_node_that_only_has_to_become_free(world: World) -> None:
    world.run(world.job("x", 3, floor=3, servers=0))
    world.submit(world.job("a", 6, floor=6, servers=0))
    said = explained(world, "a")
    assert f"{NOW}with 1 more GPU free on n1" in remedies(said)
    assert not said.nearest_miss.startswith("room")
    world.finish("x")
    assert world.placed() == ["a"]


def test_several_resources_of_one_node(world: World) -> None:
    world.submit(world.job("a", 1, worker=Resources(cpu=20_000, memory=2**31, gpu=5000), servers=0))
    assert f"{NOW}with 4 more CPU and 1 more GPU and 2 more GiB of memory on n1" in remedies(
        explained(world, "a")
    )


def test_a_share_of_a_gpu(empty: World) -> None:
    half = Resources(cpu=1000, gpu=500)
    empty.node("n1", gpu=1)
    empty.run(empty.job("x", 1, worker=Resources(cpu=1000, gpu=700), servers=0))
    empty.submit(empty.job("a", 1, worker=half, servers=0))
    assert f"{NOW}with 1 more GPU free on n1" in remedies(explained(empty, "a"))


def test_less_for_another_job_and_no_more_of_it_than_needed(world: World) -> None:
    world.run(world.job("other", 8, floor=2))
    world.submit(world.job("b", 2, floor=2))
    assert f"{NOW}if other shrank by 2 workers" in remedies(explained(world, "b"))
    world.scale("other", 6)
    world.decide()
    assert world.indices("other") == [0, 1, 2, 3, 4, 5]
    world.leave("other", ("worker", 6), ("worker", 7))
    assert world.placed() == ["b"]


def test_two_jobs_where_one_does_not_have_enough(world: World) -> None:
    for name in ("x", "y"):
        world.run(world.job(name, 4, floor=3, servers=0))
    world.submit(asking(world, "b", 2))
    assert f"{NOW}if x shrank by 1 worker and y shrank by 1 worker" in remedies(explained(world, "b"))


def test_nobody_is_named_whose_shrinking_would_not_help(world: World) -> None:
    world.run(world.job("other", 8, floor=2))
    world.submit(world.job("b", 7, floor=7))
    assert not any("shrank" in one for one in remedies(explained(world, "b")))


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"tolerations": (Toleration(key="gpu", operator="Exists"),)}, "if it tolerated gpu=true:NoSchedule"),
        ({"node_selector": {}}, "without its node selector disk=ssd"),
        ({"node_affinity": {}}, "without its required node affinity"),
    ],
)
def test_fewer_rules_about_nodes(empty: World, change: dict[str, object], remedy: str) -> None:
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
    empty.node("n1", taints=(Taint(key="gpu", value="true"),) if field == "tolerations" else ())
    empty.submit(asking(empty, "a", 2, **asked[field]))
    said = explained(empty, "a")
    assert said.reason.code == "NoMatchingNode"
    assert remedies(said)[0] == f"{NOW}{remedy}"
    empty.submit(asking(empty, "b", 2, **change))
    assert empty.placed() == ["b"]


def test_a_domain_that_is_required_and_too_small(empty: World) -> None:
    for zone in ("a", "b"):
        empty.node(f"n-{zone}", labels={"zone": zone})
    policy = PlacementPolicy(topology="zone", topology_required=True)
    empty.submit(msgspec.structs.replace(asking(empty, "a", 6), placement=policy))
    said = explained(empty, "a")
    assert said.nearest_miss.startswith("of 2 domains of zone, the best (a) has room for 4 of the 6 replicas")
    assert f"{NOW}if one domain of zone were preferred and not required" in remedies(said)
    preferred = msgspec.structs.replace(policy, topology_required=False)
    empty.submit(msgspec.structs.replace(asking(empty, "b", 6), placement=preferred))
    assert empty.placed() == ["b"]


def test_nodes_that_are_closed(empty: World) -> None:
    empty.node("n1", unschedulable=True)
    empty.node("n2", ready=False)
    empty.submit(asking(empty, "a", 2))
    said = explained(empty, "a")
    assert [one.constraint for one in said.ruled_out] == ["NotReady", "Unschedulable"]
    assert remedies(said)[:2] == [f"{NOW}if n1 were uncordoned", f"{NOW}if n2 were ready"]
    empty.node("n1")
    assert empty.placed() == ["a"]


def test_a_higher_limit_or_fewer_or_less_for_others_of_the_queue(world: World) -> None:
    limited = QueueSpec(name="q", limit=Resources(gpu=3000))
    world.queues(limited)
    world.run(world.job("x", 2, queue="q"))
    world.submit(world.job("y", 2, floor=2, queue="q"))
    assert remedies(explained(world, "y")) == [
        f"{NOW}with the limit of queue q raised to 4 GPU",
        f"{NOW}with 1 worker instead of 2",
        f"{NOW}if x shrank by 1 worker",
    ]
    world.queues(msgspec.structs.replace(limited, limit=Resources(gpu=4000)))
    assert world.placed() == ["y"]


def test_a_limit_that_is_not_all_that_keeps_it(world: World) -> None:
    world.queues(QueueSpec(name="q", limit=Resources(gpu=9000)))
    world.submit(world.job("y", 10, floor=10, queue="q"))
    assert remedies(explained(world, "y"))[0] == (
        "raise the limit of queue q to 10 GPU; the pool lacks free capacity as well"
    )


def test_a_deadline_that_ends_before_kept_room_is_needed(world: World) -> None:
    def rigid(name: str, size: int, **rest: object) -> Job:
        return msgspec.structs.replace(world.job(name, size, floor=size, servers=0), **rest)

    world.run(rigid("r", 4, run=RunPolicy(active_deadline_s=600)))
    world.submit(rigid("whole", 8))
    world.decide()
    world.after(30)
    world.submit(rigid("small", 1))
    said = explained(world, "small")
    assert said.blocked_by is not None
    assert (said.blocked_by.job_id, said.blocked_by.nodes, said.blocked_since) == (
        "whole",
        ("n1", "n2"),
        world.now,
    )
    assert said.missing == ()
    assert remedies(said)[-1] == f"{NOW}with an active deadline of at most 9 min"
    world.submit(rigid("short", 1, run=RunPolicy(active_deadline_s=540)))
    assert world.placed() == ["short"]


def test_the_first_of_a_strict_queue_is_named_also_to_one_that_fits_nowhere(world: World) -> None:
    world.queues(QueueSpec(name="q", policy=QueuePolicy.STRICT_FIFO))
    world.run(world.job("x", 8, queue="q"))
    world.submit(world.job("first", 1, queue="q"))
    world.after(1)
    world.submit(world.job("second", 3, floor=3, queue="q"))
    said = explained(world, "second")
    assert (said.reason.code, said.ahead, said.position) == ("BehindFirst", ("first",), 2)


def test_who_is_ahead_is_named_from_the_front_and_counted_in_all(world: World) -> None:
    for number in range(30):
        world.submit(world.job(f"j{number:02}", 9, floor=9))
        world.after(1)
    said = explained(world, "j29")
    assert said.position == 30
    assert said.ahead == tuple(f"j{number:02}" for number in range(20))


def test_the_start_is_expected_from_the_ends_that_are_known(world: World) -> None:
    run = RunPolicy(active_deadline_s=600)
    world.run(world.job("r", 8, floor=8, run=run))
    world.submit(world.job("b", 2, floor=2))
    said = explained(world, "b")
    assert said.expected_from.startswith("unknown: the job starts as soon as it fits; after 30 s of waiting")
    world.after(30)
    said = explained(world, "b")
    assert said.expected_start == world.record("r").started_at + 600_000_000
    assert said.expected_from == "when r ends, estimated from its active deadline"
    assert said.reserved_since == world.now
    world.after(5)
    assert explained(world, "b").reserved_since == world.now - 5_000_000


def test_the_start_is_expected_from_how_long_earlier_runs_took(world: World) -> None:
    world.run(world.job("r", 8, floor=8))
    world.after(100)
    world.finish("r")
    again = world.submit(world.job("r", 8, floor=8), "r-again")
    world.decide()
    world.change(again, ReplicaState.RUNNING)
    world.submit(world.job("b", 2, floor=2))
    world.decide()
    world.after(31)
    said = explained(world, "b")
    assert said.expected_start == world.record(again).running_at + 100_000_000
    assert said.expected_from == "when r ends, estimated from its earlier runs"


def test_whose_end_nobody_knows_is_named(world: World) -> None:
    world.run(world.job("r", 8, floor=8))
    world.submit(world.job("b", 2, floor=2))
    world.decide()
    world.after(31)
    said = explained(world, "b")
    assert said.expected_start is None
    assert said.expected_from == ("unknown: r has neither an active deadline nor an earlier run of that name")


def test_only_the_first_of_a_queue_has_room_kept(world: World) -> None:
    world.run(world.job("r", 8, floor=8))
    for name in ("b", "c"):
        world.submit(world.job(name, 2, floor=2))
        world.after(31)
    assert explained(world, "c").expected_from == (
        "unknown: the job starts as soon as it fits; b gets a reservation first"
    )


def test_what_waits_for_the_end_of_an_earlier_attempt_says_so(world: World) -> None:
    world.queues(QueueSpec(name="q", preempts_within=True))
    world.run(world.job("low", 8, floor=8, queue="q"))
    world.submit(world.job("high", 8, floor=8, queue="q", priority=5))
    world.decide()
    said = world.pool.explain("low")
    assert said is not None
    assert said.reason.code == "Preempted"
    assert said.notes == ("waits for 9 replicas of its last attempt to end",)


@pytest.mark.parametrize(("most", "gpu", "can_add"), [(8, 4, 4), (6, 4, 2), (8, 2, 0)])
def test_a_running_job_says_what_it_may_lose_and_could_gain(
    empty: World, most: int, gpu: int, can_add: int
) -> None:
    empty.node("n1", gpu=4)
    empty.run(empty.job("a", 4, floor=2, most=most))
    empty.node("n2", gpu=gpu)
    if gpu < 4:
        empty.run(empty.job("x", gpu, floor=gpu, servers=0))
    said = empty.pool.explain("a")
    assert said is not None
    ps, worker = said.roles
    assert (ps.size, ps.surplus, ps.can_add) == (1, 0, 0)
    assert (worker.size, worker.min, worker.wanted, worker.max) == (4, 2, 4, most)
    assert (worker.surplus, worker.can_add) == (2, can_add)


def test_a_running_job_does_not_count_on_room_that_is_kept_for_another(world: World) -> None:
    world.run(world.job("a", 1, most=4, servers=0))
    world.run(world.job("b", 4, floor=4, servers=0))
    world.submit(world.job("whole", 8, floor=8, servers=0))
    world.decide()
    world.after(31)
    world.decide()
    said = world.pool.explain("a")
    assert said is not None
    assert said.roles[0].can_add == 0


@pytest.mark.parametrize("cpu", [100, 0])
def test_asking_changes_nothing(world: World, cpu: int) -> None:
    world.run(world.job("other", 8, floor=2))
    world.submit(world.job("b", 2 + cpu, floor=2 + cpu))
    world.decide()
    world.after(31)
    decided = world.pool.decide(world.now)
    first = world.pool.explain("b")
    assert world.pool.explain("b") == first
    assert world.pool.decide(world.now) == decided
    world.pool.check_invariants()
