"""What an operator's change makes of the tree, and what keeps it from being made."""

from __future__ import annotations

import pytest

from muster_core.models import QueueChangeKind, QueueSpec, Resources
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


def test_queues_are_created_changed_and_left_alone() -> None:
    change = change_queues([A, B], given=[HEAVY, B, C], use=use())

    assert change.queues == (HEAVY, B, C)
    assert change.kinds == {
        "a": QueueChangeKind.CHANGED,
        "b": QueueChangeKind.UNCHANGED,
        "c": QueueChangeKind.CREATED,
    }
    assert change.changed
    assert not change_queues([A, B], given=[B], use=use()).changed


def test_those_that_are_not_given_go_only_when_pruned() -> None:
    assert change_queues([A, B, C], given=[A], use=use()).queues == (A, B, C)
    pruned = change_queues([A, B, C], given=[A], prune=True, use=use())
    assert pruned.queues == (A,)
    assert pruned.kinds["b"] is QueueChangeKind.DELETED
    assert not pruned.refused


@pytest.mark.parametrize(
    ("deleted", "refused"),
    [
        ("a", "queue a has queues below it: b"),
        ("b", "queue b has 2 jobs running and 1 job waiting in it"),
    ],
)
def test_a_queue_that_is_needed_stays(deleted: str, refused: str) -> None:
    busy = use(report("a", running=2, waiting=1), report("b", parent="a", running=2, waiting=1), report("c"))
    change = change_queues([A, B, C], deleted=[deleted], use=busy)

    assert change.refused == (refused,)
    assert not change.errors


def test_a_parent_goes_with_its_children_where_its_own_jobs_do_not_stop_it() -> None:
    assert not change_queues(
        [A, B], given=[C], prune=True, use=use(report("a"), report("b", parent="a"))
    ).refused


def test_the_default_queue_goes_back_to_what_it_was_with_its_jobs() -> None:
    applied = QueueSpec(name="default", weight=3)
    change = change_queues([applied], deleted=["default"], use=use(report("default", running=4)))

    assert (change.queues, change.refused) == ((), ())


@pytest.mark.parametrize("current", [(), (A, B)])
def test_the_default_queue_as_it_is_listed_is_there_already(current: tuple[QueueSpec, ...]) -> None:
    change = change_queues(current, given=[QueueSpec(name="default")], use=use())

    assert (change.queues, change.changed) == (current, False)


def test_what_is_not_there_cannot_be_deleted() -> None:
    assert change_queues([A], deleted=["x"], use=use()).unknown == ("x",)


def test_a_tree_that_cannot_be_is_said_with_all_that_is_wrong() -> None:
    change = change_queues([A], given=[QueueSpec(name="x", parent="y", weight=0)], use=use())

    assert change.errors
    assert [problem.path for problem in change.problems] == ["x.parent", "x.weight"]


def test_what_is_odd_is_a_warning() -> None:
    given = [
        QueueSpec(name="a", guaranteed=Resources(gpu=6000), limit=Resources(gpu=7000)),
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
