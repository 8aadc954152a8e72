"""The ``dragon`` policy's growth: what stays idle goes to the oldest job that can use it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from muster_core.elasticity import DragonSettings, PoolView, dragon, none, view_of
from muster_core.facts import CapacityChanged
from muster_core.models import (
    ElasticPolicy,
    Job,
    JobRecord,
    Node,
    Phase,
    ReplicaRecord,
    ReplicaState,
    Resources,
    Role,
    Template,
)

SECOND = 1_000_000
SETTINGS = DragonSettings()
PLACED_AT = 100 * SECOND
QUIET = PLACED_AT + 60 * SECOND


def _node(name: str, *, gpu: int, cpu: int = 16) -> Node:
    return Node(name=name, allocatable=Resources(cpu=cpu * 1000, gpu=gpu * 1000))


def _running(
    name: str,
    *,
    node: str = "n1",
    gpus: int = 1,
    first_gpu: int = 0,
    most: int = 4,
    age: int = 0,
    elastic: ElasticPolicy | None = None,
    **rest: object,
) -> JobRecord:
    """A job of one ps and one worker of ``gpus`` GPUs, both running on ``node``."""
    request = Resources(cpu=1000, gpu=gpus * 1000)
    roles = (
        Role(name="ps", replicas=1, min=1, max=1, template=Template(requests=Resources(cpu=1000))),
        Role(name="worker", replicas=1, min=1, max=most, template=Template(requests=request)),
    )
    job = Job(name=name, roles=roles, elastic=elastic or ElasticPolicy())

    def replica(role: str, used: tuple[int, ...] = ()) -> ReplicaRecord:
        return ReplicaRecord(
            role=role,
            index=0,
            attempt=1,
            generation=1,
            node=node,
            gpus=used,
            state=ReplicaState.RUNNING,
        )

    record = JobRecord(
        job_id=name,
        folded=1,
        phase=Phase.RUNNING,
        name=name,
        job=job,
        attempt=1,
        generation=1,
        submitted_at=10 * SECOND - age,
        placed_at=PLACED_AT,
        replicas=(replica("ps"), replica("worker", tuple(range(first_gpu, first_gpu + gpus)))),
    )
    return msgspec.structs.replace(record, **rest)


def _targets(view: PoolView, now: int = QUIET) -> dict[str, tuple[int, int]]:
    return {one.job_id: (one.size, one.target) for one in dragon.plan(view, now, SETTINGS)}


def _view(records: Sequence[JobRecord], *nodes: Node, capacity: CapacityChanged | None = None) -> PoolView:
    return view_of(records=records, nodes=nodes, capacity=capacity)


def test_16_a_job_grows_by_three_at_once() -> None:
    view = _view([_running("a")], _node("n1", gpu=5))
    assert _targets(view) == {"a": (1, 4)}


def test_17_the_older_job_takes_three_and_the_newer_what_is_left() -> None:
    newer = _running("a", first_gpu=1)
    older = _running("b", age=SECOND)
    view = _view([newer, older], _node("n1", gpu=6))
    assert _targets(view) == {"b": (1, 4), "a": (1, 2)}


def test_18_a_job_never_outgrows_its_maximum() -> None:
    view = _view([_running("a")], _node("n1", gpu=3), _node("n2", gpu=2))
    assert _targets(view) == {"a": (1, 4)}


def test_19_who_does_not_fit_leaves_the_room_to_others() -> None:
    wide = _running("a", gpus=2, age=SECOND)
    slim = _running("b", node="n2")
    view = _view([wide, slim], _node("n1", gpu=3), _node("n2", gpu=2))
    assert _targets(view) == {"b": (1, 3)}


def test_a_proposal_says_what_was_idle_in_numbers() -> None:
    (proposal,) = dragon.plan(_view([_running("a", gpus=0)], _node("n1", gpu=0, cpu=5)), QUIET, SETTINGS)
    assert proposal.reason.message == "3 CPU idle for 60 s on 1 node: grow worker from 1 to 4 (max 4)"
    assert proposal.reason.numbers == {
        "idle.cpu": 3000,
        "nodes": 1,
        "quiet_s": 60,
        "from": 1,
        "to": 4,
        "max": 4,
    }
    fact = proposal.to_fact()
    assert (fact.role, fact.size, fact.target, fact.policy) == ("worker", 1, 4, "dragon")
    assert (fact.attempt, fact.generation) == (1, 1)


def test_nobody_grows_before_the_pool_was_quiet() -> None:
    view = _view([_running("a")], _node("n1", gpu=5))
    assert _targets(view, QUIET - 1) == {}
    assert dragon.next_check(view, PLACED_AT, SETTINGS) == QUIET
    assert dragon.next_check(view, QUIET, SETTINGS) is None
    sooner = DragonSettings(quiet_s=5)
    assert dragon.plan(view, PLACED_AT + 5 * SECOND, sooner)


def test_a_decision_elsewhere_in_the_pool_is_no_quiet() -> None:
    capacity = CapacityChanged(
        pool="here", free=Resources(), allocatable=Resources(), waiting=0, decided_at=QUIET
    )
    view = _view([_running("a")], _node("n1", gpu=5), capacity=capacity)
    assert _targets(view) == {}
    assert dragon.next_check(view, QUIET, SETTINGS) == QUIET + 60 * SECOND


@pytest.mark.parametrize(("feasible", "targets"), [(1, {}), (0, {"a": (1, 4)})])
def test_nobody_grows_while_a_job_waits_that_the_pool_could_hold(
    feasible: int, targets: dict[str, tuple[int, int]]
) -> None:
    capacity = CapacityChanged(
        pool="here", free=Resources(), allocatable=Resources(), waiting=1, waiting_feasible=feasible
    )
    view = _view([_running("a")], _node("n1", gpu=5), capacity=capacity)
    assert _targets(view) == targets
    assert dragon.next_check(view, PLACED_AT, SETTINGS) == (None if feasible else QUIET)


@pytest.mark.parametrize(
    "record",
    [
        _running("a", most=1),
        _running("a", phase=Phase.LAUNCHING),
        _running("a", cancel_requested=True),
        _running("a", elastic=ElasticPolicy(policy="none")),
    ],
    ids=["at its maximum", "not running yet", "being cancelled", "of another policy"],
)
def test_some_never_grow(record: JobRecord) -> None:
    assert _targets(_view([record], _node("n1", gpu=5))) == {}


def test_a_step_bounds_one_growth() -> None:
    view = _view([_running("a", elastic=ElasticPolicy(step=2))], _node("n1", gpu=5))
    assert _targets(view) == {"a": (1, 3)}


def test_a_job_cools_down_after_a_resize() -> None:
    record = _running("a", elastic=ElasticPolicy(cool_down_s=300), resized_at=PLACED_AT)
    view = _view([record], _node("n1", gpu=5))
    assert _targets(view) == {}
    cooled = PLACED_AT + 300 * SECOND
    assert dragon.next_check(view, QUIET, SETTINGS) == cooled
    assert _targets(view, cooled) == {"a": (1, 4)}


def test_planning_changes_nothing() -> None:
    view = _view([_running("a")], _node("n1", gpu=5))
    assert _targets(view) == _targets(view)


def test_none_leaves_every_job_alone() -> None:
    view = _view([_running("a")], _node("n1", gpu=5))
    assert none.plan(view, QUIET) == []
    assert none.next_check(view, QUIET) is None
