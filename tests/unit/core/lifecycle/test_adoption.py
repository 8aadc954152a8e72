"""A record continues from the replicas of a runtime, after an older store was restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from muster_core import events
from muster_core.lifecycle import (
    HeldJob,
    OrphanMark,
    RetainedJob,
    RetainedMembership,
    adoption_of,
    begins_record,
    is_behind,
    retained_job,
)
from muster_core.models import Job, Phase, Reason, ReplicaRecord, ReplicaState

if TYPE_CHECKING:
    from .conftest import NewJobLog

SECOND = 1_000_000
WHY = Reason(code="Adopted", message="an older store was restored")
RUNNING = {"state": ReplicaState.RUNNING, "running_at": 5 * SECOND}


def run(index: int = 0, **fields: object) -> ReplicaRecord:
    replica = ReplicaRecord(role="worker", index=index, attempt=1, generation=1, node="n1")
    return msgspec.structs.replace(replica, **{**RUNNING, **fields})


def members(*indices: int, attempt: int = 1, generation: int = 1) -> RetainedMembership:
    addresses = {str(index): "" for index in indices}
    return RetainedMembership(attempt=attempt, generation=generation, members={"worker": addresses})


def held(*runs: ReplicaRecord, membership: RetainedMembership | None = None) -> HeldJob:
    return HeldJob(job_id="j-1", runs=runs, membership=membership)


def adoption(
    *runs: ReplicaRecord, membership: RetainedMembership | None = None, job: Job | None = None
) -> events.JobAdopted:
    """Return the adoption of an orphan with ``job``, or of a job that has a record."""
    retained = RetainedJob(job=job, submitter="ann", submitted_at=3 * SECOND) if job else None
    found = msgspec.structs.replace(held(*runs, membership=membership), retained=retained)
    event = adoption_of(found, reason=WHY, has_record=job is None)
    assert event is not None
    return event


def test_an_orphan_becomes_a_running_job_with_its_submitter_and_its_replicas(new_log: NewJobLog) -> None:
    log = new_log(workers=2, ps=0)

    event = adoption(run(0), run(1, node="n2"), membership=members(0, 1), job=log.job)

    assert begins_record(event)
    assert log.apply(event).invalid is None
    assert (log.record.phase, log.record.submitter, log.record.submitted_at) == (
        Phase.RUNNING,
        "ann",
        3 * SECOND,
    )
    assert [(one.key, one.node) for one in log.record.gang()] == [
        (("worker", 0), "n1"),
        (("worker", 1), "n2"),
    ]


def test_an_adopted_orphan_whose_replicas_have_exited_with_0_succeeds(new_log: NewJobLog) -> None:
    log = new_log(workers=2, ps=0)
    log.apply(adoption(*(run(i, state=ReplicaState.EXITED, exit_code=0) for i in (0, 1)), job=log.job))

    finished = log.decided()

    assert isinstance(finished, events.JobFinished)
    assert finished.outcome is events.Outcome.SUCCEEDED


def test_a_member_without_a_replica_counts_as_lost_with_its_node(new_log: NewJobLog) -> None:
    log = new_log(workers=2, ps=0)

    log.apply(adoption(run(0), membership=members(0, 1), job=log.job))

    lost = log.replica("worker", 1)
    assert (lost.state, lost.node_lost) == (ReplicaState.LOST, True)


def test_a_replica_that_a_resize_removed_is_terminating_until_it_has_ended() -> None:
    event = adoption(run(0), run(1), run(2, state=ReplicaState.EXITED), membership=members(0, generation=2))

    assert event.generation == 2
    assert {one.index: one.terminating for one in event.replicas} == {0: False, 1: True}


def test_a_record_behind_its_replicas_continues_at_their_attempt(new_log: NewJobLog) -> None:
    log = new_log(workers=2, ps=0).running()
    runs = [run(i, attempt=3, node="n2") for i in (0, 1)]

    assert is_behind(log.record, held(*runs))
    log.apply(adoption(*runs))

    assert (log.record.attempt, log.record.phase) == (3, Phase.RUNNING)
    assert {one.node for one in log.record.gang()} == {"n2"}
    # Those of the first attempt end, as far as they have not ended.
    assert all(one.terminating for one in log.record.replicas if one.attempt == 1)
    assert not is_behind(log.record, held(*runs))


@pytest.mark.parametrize(
    "change",
    [{"generation": 2}, {"restart": 1}, {"node": "n2"}, {"attempt": 2, "state": ReplicaState.EXITED}],
)
def test_a_record_is_behind_a_later_generation_restart_attempt_or_another_node(
    new_log: NewJobLog, change: dict[str, object]
) -> None:
    log = new_log(workers=1, ps=0).running()

    ahead = run(0, **change)

    assert is_behind(log.record, held(ahead))
    log.apply(adoption(ahead))
    assert not is_behind(log.record, held(ahead))


def test_a_record_is_behind_a_membership_without_a_removed_replica(new_log: NewJobLog) -> None:
    log = new_log(workers=2, ps=0).running()
    shrunk = members(0, generation=2)
    runs = (run(0), run(1, state=ReplicaState.EXITED, exit_code=143))

    assert is_behind(log.record, held(*runs, membership=shrunk))
    log.apply(adoption(*runs, membership=shrunk))

    # The removed replica has not failed.
    assert [one.key for one in log.record.gang()] == [("worker", 0)]
    assert log.decided() is None
    assert not is_behind(log.record, held(*runs, membership=shrunk))


def test_a_job_of_which_nothing_is_retained_cannot_be_adopted_without_a_record() -> None:
    assert adoption_of(held(run(0)), reason=WHY, has_record=False) is None


def test_a_queued_job_that_was_placed_after_the_backup_runs_where_it_runs(new_log: NewJobLog) -> None:
    log = new_log(workers=1, ps=0).queued()

    log.apply(adoption(run(0, node="n7")))
    placed_again = events.Assignment(role="worker", index=0, node="n1")
    late = log.apply(events.JobPlaced(attempt=1, generation=1, pool="local", replicas=(placed_again,)))

    assert late.invalid
    assert (log.record.phase, log.replica("worker", 0).node) == (Phase.RUNNING, "n7")


def test_a_job_that_is_placed_again_before_its_adoption_runs_where_it_runs(new_log: NewJobLog) -> None:
    log = new_log(workers=1, ps=0).queued().place()
    found = run(0, node="n7", gpus=(3,))

    assert is_behind(log.record, held(found))
    log.apply(adoption(found))

    replica = log.replica("worker", 0)
    assert (log.record.phase, replica.node, replica.gpus) == (Phase.RUNNING, "n7", (3,))


def test_an_adoption_that_the_record_is_ahead_of_changes_nothing(new_log: NewJobLog) -> None:
    log = new_log(workers=2, ps=0).running()
    log.apply(adoption(*(run(i, attempt=2) for i in (0, 1))))
    before = log.record

    assert log.apply(adoption(run(0), run(1))).invalid
    assert log.record.replicas == before.replicas


def test_an_adoption_by_an_outdated_instance_ends_no_replica_that_is_about_to_start(
    new_log: NewJobLog,
) -> None:
    log = new_log(workers=2, ps=0).queued().place()

    log.apply(adoption(run(0), membership=members(0, 1)))

    assert log.replica("worker", 1).state is ReplicaState.PLACED


def test_an_ended_job_is_never_behind(new_log: NewJobLog) -> None:
    log = new_log(workers=1, ps=0).running()
    log.apply(events.JobFinished(outcome=events.Outcome.CANCELLED, reason=WHY))

    assert not is_behind(log.record, held(run(0, attempt=2)))


def test_the_retained_job_survives_its_encoding(new_log: NewJobLog) -> None:
    log = new_log(workers=2, ps=0).running()

    retained = retained_job(log.record)

    assert retained is not None
    assert msgspec.json.decode(msgspec.json.encode(retained), type=RetainedJob) == retained
    assert retained.submitter == "ann"


def test_an_orphan_is_removed_after_its_grace_or_on_request() -> None:
    mark = OrphanMark(found_at=5 * SECOND)

    assert mark.removal_at(60 * SECOND) == 65 * SECOND
    assert msgspec.structs.replace(mark, removal_requested=True).removal_at(60 * SECOND) == 0
