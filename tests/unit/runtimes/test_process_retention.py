"""Which runs of a live job the process runtime keeps."""

from __future__ import annotations

from muster_core.models import ReplicaState
from muster_runtimes import Observation, ReplicaId
from muster_runtimes.process.retention import KEPT_RUNS, KEPT_US, may_be_deleted, superseded

EXITED, RUNNING = ReplicaState.EXITED, ReplicaState.RUNNING


def run(restart: int, *, attempt: int = 1, index: int = 0) -> ReplicaId:
    return ReplicaId(job_id="job", attempt=attempt, role="worker", index=index, restart=restart)


def seen(replica: ReplicaId, state: ReplicaState = EXITED, *, at: int = 0) -> Observation:
    return Observation(replica=replica, state=state, at=at)


def test_the_newest_runs_of_each_replica_are_kept():
    many = [seen(run(number)) for number in range(KEPT_RUNS + 2)]
    few = [seen(run(number, index=1)) for number in range(KEPT_RUNS)]
    assert superseded([*reversed(many), *few], now=KEPT_US + 1) == [run(0), run(1)]


def test_runs_that_ended_lately_or_not_at_all_are_kept():
    later = [seen(run(number)) for number in range(2, KEPT_RUNS + 2)]
    runs = [seen(run(0), RUNNING), seen(run(1), at=10), *later]
    assert superseded(runs, now=KEPT_US + 10) == []
    assert superseded(runs, now=KEPT_US + 11) == [run(1)]


def test_only_a_run_with_many_successors_may_be_deleted():
    successors = [seen(run(number, attempt=2), RUNNING) for number in range(KEPT_RUNS)]
    assert may_be_deleted(run(7), successors)
    assert not may_be_deleted(run(7), successors[1:])
    assert not may_be_deleted(run(7, index=1), successors)
    assert not may_be_deleted(run(7, attempt=3), successors)
