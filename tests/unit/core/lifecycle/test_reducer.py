"""What each event changes in the record besides its phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core import events
from muster_core.lifecycle import apply_event
from muster_core.models import CleanPodPolicy, Phase, Problem, Reason, ReplicaState, RunPolicy, Severity

if TYPE_CHECKING:
    from .conftest import NewJobLog

S = ReplicaState
SECOND = 1_000_000


def test_a_submission_creates_the_record(new_log: NewJobLog) -> None:
    log = new_log().log(Phase.SUBMITTED)

    record = log.record
    assert (record.job_id, record.applied_sequence, record.submitted_at) == ("j-1", 1, log.now)
    assert record.reason is not None
    assert record.reason.code == "Submitted"


def test_a_later_part_of_a_document_begins_with_its_validation(new_log: NewJobLog) -> None:
    log = new_log()
    log.apply(
        events.JobValidated(
            job=log.job, part=1, parts=2, submission_id="j-0", submitter="ann", submitted_at=log.now - 5
        )
    )

    record = log.record
    assert (record.phase, record.submission_id, record.submitter) == (Phase.QUEUED, "j-0", "ann")
    assert (record.submitted_at, record.validated_at, record.queued_at) == (
        log.now - SECOND - 5,
        log.now,
        log.now,
    )
    assert [entry.event for entry in record.history] == ["JobValidated"]


def test_the_first_part_of_a_document_does_not_begin_with_its_validation(new_log: NewJobLog) -> None:
    log = new_log()
    log.sequence += 1
    transition = apply_event(None, log.stored(events.JobValidated(job=log.job, parts=2)))

    assert transition.record is None
    assert transition.invalid == "JobValidated of a job that was never submitted"


def test_a_rejection_keeps_every_problem_and_counts_the_errors(new_log: NewJobLog) -> None:
    log = new_log().log(Phase.SUBMITTED)
    problems = (
        Problem(code="a", path="x", message="bad"),
        Problem(code="b", path="y", message="odd", severity=Severity.WARNING),
    )

    log.apply(events.JobRejected(problems=problems, name="demo"))

    record = log.record
    assert (record.name, record.problems, record.finished_at) == ("demo", problems, log.now)
    assert record.reason == Reason(code="Rejected", message="the document has 1 error", numbers={"errors": 1})
    assert record.settled


def test_a_job_launches_with_its_first_replica_and_runs_with_its_last(new_log: NewJobLog) -> None:
    log = new_log().queued().place()

    log.see("ps", 0, S.RUNNING)
    first_ran = log.now
    assert log.record.phase is Phase.LAUNCHING
    log.see("worker", 0, S.RUNNING)
    log.see("worker", 1, S.RUNNING)

    record = log.record
    assert record.phase is Phase.RUNNING
    assert (record.started_at, record.running_at) == (first_ran, log.now)
    assert record.reason is not None
    assert record.reason.message == "all 3 replicas have started"


def test_a_replica_that_exits_before_it_is_observed_running_has_run(new_log: NewJobLog) -> None:
    log = new_log(1, ps=0).queued().place()

    log.end("worker", 0)

    assert log.record.phase is Phase.RUNNING
    assert log.replica("worker", 0).running_at == log.now


def test_the_start_time_is_that_of_the_first_attempt(new_log: NewJobLog) -> None:
    log = new_log().running()
    started = log.record.started_at

    log.evict()
    log.place().see("worker", 0, S.RUNNING)

    assert log.record.started_at == started


def test_a_replica_never_goes_backwards(new_log: NewJobLog) -> None:
    log = new_log().running()
    log.end("worker", 1, 3)
    ended = log.replica("worker", 1)

    for state in (S.LAUNCHED, S.RUNNING, S.LOST, S.REMOVED, S.REJECTED):
        log.see("worker", 1, state)

    assert log.replica("worker", 1) == ended


def test_several_states_of_one_run_in_one_report_are_all_applied(new_log: NewJobLog) -> None:
    log = new_log().queued().place()
    seen = [
        events.ReplicaChange(role="worker", index=0, attempt=1, state=S.RUNNING, at=log.now + 1),
        events.ReplicaChange(role="worker", index=0, attempt=1, state=S.EXITED, exit_code=0, at=log.now + 2),
    ]

    log.apply(events.ReplicasChanged(changes=tuple(seen)))

    replica = log.replica("worker", 0)
    assert (replica.state, replica.exit_code) == (S.EXITED, 0)
    assert (replica.running_at, replica.ended_at) == (seen[0].at, seen[1].at)


@pytest.mark.parametrize("state", [S.REJECTED, S.LOST, S.REMOVED])
def test_a_replica_that_ends_before_its_launch_has_no_launch_time(
    new_log: NewJobLog, state: ReplicaState
) -> None:
    log = new_log().queued().place()

    log.see("worker", 0, state)

    replica = log.replica("worker", 0)
    assert (replica.launched_at, replica.running_at, replica.ended_at) == (0, 0, log.now)


def test_a_report_of_an_earlier_attempt_changes_only_its_replica(new_log: NewJobLog) -> None:
    log = new_log().running()
    log.evict()
    log.place()
    old = events.ReplicaChange(role="worker", index=0, attempt=1, state=S.EXITED, exit_code=143)

    log.apply(events.ReplicasChanged(changes=(old,)))

    states = {(r.attempt, r.state) for r in log.record.replicas if r.key == ("worker", 0)}
    assert states == {(1, S.EXITED), (2, S.PLACED)}
    assert log.record.phase is Phase.PLACED


def test_a_report_of_an_earlier_run_does_not_change_the_restarted_one(new_log: NewJobLog) -> None:
    log = new_log().running().end("worker", 1, 1)
    log.restart(("worker", 1))
    old = events.ReplicaChange(role="worker", index=1, attempt=1, restart=0, state=S.EXITED, exit_code=1)

    log.apply(events.ReplicasChanged(changes=(old,)))

    assert log.replica("worker", 1).state is S.PLACED


def test_a_placement_drops_ended_replicas_and_keeps_the_others(new_log: NewJobLog) -> None:
    log = new_log().running()
    log.evict()
    log.see("ps", 0, S.REMOVED)

    log.place()

    earlier = [(r.role, r.index, r.terminating) for r in log.record.replicas if r.attempt == 1]
    assert earlier == [("worker", 0, True), ("worker", 1, True)]
    assert {m.attempt for m in log.record.gang()} == {2}


def test_growth_adds_replicas_of_the_new_generation(new_log: NewJobLog) -> None:
    log = new_log(2, most=4).running()

    log.resize(add=(("worker", 2), ("worker", 3)))

    assert log.record.generation == 2
    assert log.record.phase is Phase.RUNNING
    joined = [m for m in log.record.gang() if m.generation == 2]
    assert [(m.key, m.node, m.state) for m in joined] == [
        (("worker", 2), "n2", S.PLACED),
        (("worker", 3), "n2", S.PLACED),
    ]


def test_a_removed_replica_leaves_the_gang_but_keeps_its_allocation(new_log: NewJobLog) -> None:
    log = new_log(2, most=4).running()

    log.resize(remove=(("worker", 1),))

    assert [m.key for m in log.record.gang()] == [("ps", 0), ("worker", 0)]
    terminating = log.replica("worker", 1)
    assert (terminating.terminating, terminating.ended) == (True, False)


def test_an_index_is_reused_after_its_end_is_confirmed(new_log: NewJobLog) -> None:
    log = new_log(2, most=4).running()
    log.resize(remove=(("worker", 1),))

    too_early = log.resize(add=(("worker", 1),))
    log.see("worker", 1, S.REMOVED)
    in_time = log.resize(add=(("worker", 1),))

    assert too_early.invalid == "JobResized adds a replica that still exists"
    assert in_time.invalid is None
    again = log.replica("worker", 1)
    assert (again.restart, again.generation, again.terminating, again.state) == (1, 3, False, S.PLACED)


def test_an_eviction_terminates_all_replicas_and_is_no_failure(new_log: NewJobLog) -> None:
    log = new_log().running()

    log.evict()

    record = log.record
    assert (record.evictions, record.failures, record.waiting_since) == (1, 0, log.now)
    assert not record.gang()
    assert all(r.terminating for r in record.replicas)


def test_a_gang_restart_terminates_all_replicas_and_delays_the_job(new_log: NewJobLog) -> None:
    log = new_log().running()

    log.restart_gang(delay_ms=4000)

    record = log.record
    assert (record.failures, record.not_before) == (1, log.now + 4_000_000)
    assert not record.gang()

    log.place()
    assert log.record.not_before == 0


def test_a_restarted_replica_keeps_its_node_and_address(new_log: NewJobLog) -> None:
    log = new_log().running()
    log.see("worker", 1, S.EXITED, exit_code=1, address="10.0.0.1:2222")

    log.restart(("worker", 1), delay_ms=2000)

    again = log.replica("worker", 1)
    assert (again.node, again.address, again.restart, again.state) == ("n1", "10.0.0.1:2222", 1, S.PLACED)
    assert again.not_before == log.now + 2_000_000
    assert (again.exit_code, again.ended_at) == (None, 0)
    assert (log.record.failures, log.record.phase) == (1, Phase.RUNNING)


def test_a_restart_of_a_running_replica_is_invalid(new_log: NewJobLog) -> None:
    log = new_log().running().end("worker", 1, 1)

    transition = log.restart(("worker", 0), ("worker", 1))

    assert transition.invalid == "JobRestarting of a replica that has not ended"
    assert log.replica("worker", 1).state is S.EXITED
    assert log.record.failures == 0


def test_a_restart_of_a_removed_replica_is_invalid(new_log: NewJobLog) -> None:
    log = new_log(3, most=4).running().end("worker", 2, 1)
    log.resize(remove=(("worker", 2),))

    assert log.restart(("worker", 2)).invalid is not None
    assert log.replica("worker", 2).terminating


@pytest.mark.parametrize("policy", [CleanPodPolicy.ALL, CleanPodPolicy.RUNNING])
@pytest.mark.parametrize("outcome", events.Outcome)
def test_the_end_of_a_job_terminates_its_replicas(
    new_log: NewJobLog, policy: CleanPodPolicy, outcome: events.Outcome
) -> None:
    log = new_log(run=RunPolicy(clean_pod_policy=policy)).running().end("worker", 0)

    log.finish(outcome)

    assert [r.terminating for r in log.record.replicas] == [True, False, True]
    assert log.record.finished_at == log.now
    assert not log.record.settled


@pytest.mark.parametrize(
    ("outcome", "kept"),
    [
        (events.Outcome.SUCCEEDED, True),
        (events.Outcome.FAILED, True),
        (events.Outcome.CANCELLED, False),
        (events.Outcome.TIMED_OUT, False),
    ],
)
def test_clean_pod_policy_none_keeps_replicas_unless_the_job_was_cancelled(
    new_log: NewJobLog, outcome: events.Outcome, kept: bool
) -> None:
    log = new_log(run=RunPolicy(clean_pod_policy=CleanPodPolicy.NONE)).running()

    log.finish(outcome)

    assert all(r.terminating is not kept for r in log.record.replicas)


def test_a_delete_terminates_kept_replicas(new_log: NewJobLog) -> None:
    log = new_log(run=RunPolicy(clean_pod_policy=CleanPodPolicy.NONE)).running()
    log.finish(events.Outcome.SUCCEEDED)

    log.command(events.Command.DELETE)

    assert log.record.phase is Phase.SUCCEEDED
    assert all(r.terminating for r in log.record.replicas)


def test_the_history_has_a_bounded_number_of_entries(new_log: NewJobLog) -> None:
    log = new_log().running()
    for _ in range(300):
        log.apply(
            events.CommandRequested(command=events.Command.SCALE, request_id="c", by="ann", message="grow")
        )

    history = log.record.history
    assert len(history) == 200
    assert history[0].event == "JobSubmitted"
    assert (history[-1].at, history[-1].source) == (log.now, "test")
    assert (history[-1].reason, history[-1].message) == ("scale", "by ann grow")


def test_the_history_names_nodes_and_exits(new_log: NewJobLog) -> None:
    log = new_log(5).running()
    log.end("worker", 0, signal=9)
    log.see("worker", 1, S.EXITED, exit_code=3, reason="Error")

    words = {entry.event: entry.message for entry in log.record.history if entry.event == "JobPlaced"}
    assert words == {"JobPlaced": "attempt 1; n1: ps-0, worker-0, worker-1, worker-2 and 2 more"}
    assert log.record.history[-2].message == "worker-0 exited by signal 9"
    assert log.record.history[-1].message == "worker-1 exited with 3 (Error)"
