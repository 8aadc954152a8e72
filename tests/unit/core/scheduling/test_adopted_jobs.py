"""A job that the scheduler did not place, because its record was restored from its replicas, holds what they hold."""

from __future__ import annotations

from muster_core.events import JobAdopted
from muster_core.models import Phase, Reason, ReplicaRecord, ReplicaState
from muster_testing.pool import ScenarioPool

WHY = Reason(code="Adopted", message="an older store was restored")


def adopted(pool: ScenarioPool, *, replicas: int) -> JobAdopted:
    running = ReplicaState.RUNNING
    found = (
        ReplicaRecord(
            role="worker",
            index=index,
            attempt=1,
            generation=1,
            node="n1",
            gpus=(index,),
            state=running,
            running_at=1,
        )
        for index in range(replicas)
    )
    job = pool.rigid("orphan", replicas)
    return JobAdopted(attempt=1, generation=1, replicas=tuple(found), reason=WHY, job=job)


def test_an_adopted_orphan_keeps_a_waiting_gang_from_its_nodes() -> None:
    pool = ScenarioPool()
    pool.add_node("n1", gpu=2)
    pool.publish("j-orphan", adopted(pool, replicas=2))
    waiting = pool.submit(pool.rigid("late", 1))

    pool.decide()

    assert pool.record("j-orphan").phase is Phase.RUNNING
    assert pool.record(waiting).phase is Phase.QUEUED


def test_an_adopted_orphan_may_exceed_the_capacity_of_its_node() -> None:
    pool = ScenarioPool()
    pool.add_node("n1", gpu=2)
    pool.submit(pool.rigid("early", 2))
    pool.decide()

    pool.publish("j-orphan", adopted(pool, replicas=1))

    # The pool checks its invariants after each event.
    assert pool.record("j-orphan").phase is Phase.RUNNING
