"""Changes of queues by operators, and what prevents them."""

from __future__ import annotations

import pytest

from muster_core.models import QueueChangeKind, QueueSpec, ResourceLimits, Resources
from muster_core.scheduling import PoolUse, QueueReport, change_queues

A, B, C = QueueSpec(name="a"), QueueSpec(name="b", parent="a"), QueueSpec(name="c")
HEAVY = QueueSpec(name="a", weight=2)


def report(name: str, *, parent: str = "", running: int = 0, waiting: int = 0, gpu: int = 0) -> QueueReport:
    return QueueReport(
        spec=QueueSpec(name=name, parent=parent),
        allocated=Resources(gpu=gpu),
        borrowed=Resources(),
        guaranteed_in_use=Resources(),
        share=0,
        fair_share=0,
        due=Resources(),
        running=running,
        waiting=waiting,
        oldest_wait_at=0,
    )


def use(*reports: QueueReport, gpu: int = 8000) -> PoolUse:
    return PoolUse(reports=reports, records=(), offered=Resources(gpu=gpu))


def test_queues_are_created_changed_or_unchanged() -> None:
    change = change_queues([A, B], given=[HEAVY, B, C], use=use())

    assert change.queues == (HEAVY, B, C)
    assert change.kinds == {
        "a": QueueChangeKind.CHANGED,
        "b": QueueChangeKind.UNCHANGED,
        "c": QueueChangeKind.CREATED,
    }
    assert change.changed
    assert not change_queues([A, B], given=[B], use=use()).changed


def test_unlisted_queues_are_deleted_only_by_prune() -> None:
    assert change_queues([A, B, C], given=[A], use=use()).queues == (A, B, C)
    pruned = change_queues([A, B, C], given=[A], prune=True, use=use())
    assert pruned.queues == (A,)
    assert pruned.kinds["b"] is QueueChangeKind.DELETED
    assert not pruned.refused


@pytest.mark.parametrize(
    ("deleted", "refused"),
    [("a", "queue a has queues below it: b"), ("b", "queue b has 2 jobs running and 1 job waiting in it")],
)
def test_a_queue_with_children_or_jobs_is_not_deleted(deleted: str, refused: str) -> None:
    busy = use(report("a", running=2, waiting=1), report("b", parent="a", running=2, waiting=1), report("c"))
    change = change_queues([A, B, C], deleted=[deleted], use=busy)

    assert change.refused == (refused,)
    assert not change.errors


def test_a_parent_without_own_jobs_is_deleted_with_its_children() -> None:
    assert not change_queues(
        [A, B], given=[C], prune=True, use=use(report("a"), report("b", parent="a"))
    ).refused


def test_deleting_the_default_queue_restores_its_defaults() -> None:
    applied = QueueSpec(name="default", weight=3)
    change = change_queues([applied], deleted=["default"], use=use(report("default", running=4)))

    assert (change.queues, change.refused) == ((), ())


@pytest.mark.parametrize("current", [(), (A, B)])
def test_the_listed_default_queue_can_be_applied_again(current: tuple[QueueSpec, ...]) -> None:
    change = change_queues(current, given=[QueueSpec(name="default")], use=use())

    assert (change.queues, change.changed) == (current, False)


def test_deleting_an_unknown_queue_is_reported() -> None:
    assert change_queues([A], deleted=["x"], use=use()).unknown == ("x",)


def test_an_invalid_tree_is_reported_with_every_problem() -> None:
    change = change_queues([A], given=[QueueSpec(name="x", parent="y", weight=0)], use=use())

    assert change.errors
    assert [problem.path for problem in change.problems] == ["x.parent", "x.weight"]


def test_overcommitted_guarantees_and_exceeded_limits_are_warnings() -> None:
    given = [
        QueueSpec(name="a", guaranteed=Resources(gpu=6000), limit=ResourceLimits(gpu=7000)),
        QueueSpec(name="c", guaranteed=Resources(gpu=4000)),
    ]
    change = change_queues([], given=given, use=use(report("a", gpu=7500)))

    assert not change.errors
    assert [(one.path, one.message) for one in change.problems] == [
        (
            "c.guaranteed.gpu",
            "with this queue 10 GPU are guaranteed, and the pool has 8: not all queues can use their guarantee at once",
        ),
        ("a.limit.gpu", "its jobs use 7.5 GPU, above the limit: they continue, and no other job starts"),
    ]
