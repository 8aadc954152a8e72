"""What each event does to the record beyond its phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster_core import events
from muster_core.lifecycle import apply_event
from muster_core.models import CleanPodPolicy, Phase, Problem, Reason, ReplicaState, RunPolicy, Severity

if TYPE_CHECKING:
    from .conftest import Stories

S = ReplicaState
SECOND = 1_000_000


def test_a_submission_begins_the_record(story: Stories) -> None:
    told = story().told(Phase.SUBMITTED)

    record = told.record
    assert (record.job_id, record.applied_sequence, record.submitted_at) == ("j-1", 1, told.now)
    assert record.reason is not None
    assert record.reason.code == "Submitted"


def test_a_later_part_of_a_document_begins_with_its_validation(story: Stories) -> None:
    told = story()
    told.tell(
        events.JobValidated(
            job=told.job, part=1, parts=2, submission_id="j-0", submitter="ann", submitted_at=told.now - 5
        )
    )

    record = told.record
    assert (record.phase, record.submission_id, record.submitter) == (Phase.QUEUED, "j-0", "ann")
    assert (record.submitted_at, record.validated_at, record.queued_at) == (
        told.now - SECOND - 5,
        told.now,
        told.now,
    )
    assert [entry.event for entry in record.history] == ["JobValidated"]


def test_the_first_part_of_a_document_does_not_begin_with_its_validation(story: Stories) -> None:
    told = story()
    told.sequence += 1
    folded = apply_event(None, told.stored(events.JobValidated(job=told.job, parts=2)))

    assert folded.record is None
    assert folded.illegal == "JobValidated of a job that was never submitted"


def test_a_rejection_keeps_every_problem_and_counts_the_errors(story: Stories) -> None:
    told = story().told(Phase.SUBMITTED)
    problems = (
        Problem(code="a", path="x", message="bad"),
        Problem(code="b", path="y", message="odd", severity=Severity.WARNING),
    )

    told.tell(events.JobRejected(problems=problems, name="demo"))

    record = told.record
    assert (record.name, record.problems, record.finished_at) == ("demo", problems, told.now)
    assert record.reason == Reason(code="Rejected", message="the document has 1 error", numbers={"errors": 1})
    assert record.settled


def test_a_job_launches_with_its_first_replica_and_runs_with_its_last(story: Stories) -> None:
    told = story().queued().place()

    told.see("ps", 0, S.RUNNING)
    first_ran = told.now
    assert told.record.phase is Phase.LAUNCHING
    told.see("worker", 0, S.RUNNING)
    told.see("worker", 1, S.RUNNING)

    record = told.record
    assert record.phase is Phase.RUNNING
    assert (record.started_at, record.running_at) == (first_ran, told.now)
    assert record.reason is not None
    assert record.reason.message == "all 3 replicas have started"


def test_a_replica_that_was_too_quick_to_be_seen_running_has_run(story: Stories) -> None:
    told = story(1, ps=0).queued().place()

    told.end("worker", 0)

    assert told.record.phase is Phase.RUNNING
    assert told.replica("worker", 0).running_at == told.now


def test_the_start_is_the_first_attempts(story: Stories) -> None:
    told = story().running()
    started = told.record.started_at

    told.evict()
    told.place().see("worker", 0, S.RUNNING)

    assert told.record.started_at == started


def test_a_replica_never_goes_backwards(story: Stories) -> None:
    told = story().running()
    told.end("worker", 1, 3)
    ended = told.replica("worker", 1)

    for state in (S.LAUNCHED, S.RUNNING, S.LOST, S.REMOVED, S.REJECTED):
        told.see("worker", 1, state)

    assert told.replica("worker", 1) == ended


def test_several_states_of_one_run_in_one_report_are_all_applied(story: Stories) -> None:
    told = story().queued().place()
    seen = [
        events.ReplicaChange(role="worker", index=0, attempt=1, state=S.RUNNING, at=told.now + 1),
        events.ReplicaChange(role="worker", index=0, attempt=1, state=S.EXITED, exit_code=0, at=told.now + 2),
    ]

    told.tell(events.ReplicasChanged(changes=tuple(seen)))

    replica = told.replica("worker", 0)
    assert (replica.state, replica.exit_code) == (S.EXITED, 0)
    assert (replica.running_at, replica.ended_at) == (seen[0].at, seen[1].at)


@pytest.mark.parametrize("state", [S.REJECTED, S.LOST, S.REMOVED])
def test_what_ended_before_it_was_launched_was_never_launched(story: Stories, state: ReplicaState) -> None:
    told = story().queued().place()

    told.see("worker", 0, state)

    replica = told.replica("worker", 0)
    assert (replica.launched_at, replica.running_at, replica.ended_at) == (0, 0, told.now)


def test_a_report_on_an_earlier_attempt_ends_only_that_ones_replica(story: Stories) -> None:
    told = story().running()
    told.evict()
    told.place()
    old = events.ReplicaChange(role="worker", index=0, attempt=1, state=S.EXITED, exit_code=143)

    told.tell(events.ReplicasChanged(changes=(old,)))

    states = {(r.attempt, r.state) for r in told.record.replicas if r.key == ("worker", 0)}
    assert states == {(1, S.EXITED), (2, S.PLACED)}
    assert told.record.phase is Phase.PLACED


def test_a_report_on_an_earlier_run_does_not_touch_the_restarted_one(story: Stories) -> None:
    told = story().running().end("worker", 1, 1)
    told.restart(("worker", 1))
    old = events.ReplicaChange(role="worker", index=1, attempt=1, restart=0, state=S.EXITED, exit_code=1)

    told.tell(events.ReplicasChanged(changes=(old,)))

    assert told.replica("worker", 1).state is S.PLACED


def test_replicas_that_ended_are_dropped_with_the_next_placement_and_the_others_kept(story: Stories) -> None:
    told = story().running()
    told.evict()
    told.see("ps", 0, S.REMOVED)

    told.place()

    earlier = [(r.role, r.index, r.leaving) for r in told.record.replicas if r.attempt == 1]
    assert earlier == [("worker", 0, True), ("worker", 1, True)]
    assert {m.attempt for m in told.record.members()} == {2}


def test_growth_adds_members_of_the_new_generation(story: Stories) -> None:
    told = story(2, most=4).running()

    told.resize(add=(("worker", 2), ("worker", 3)))

    assert told.record.generation == 2
    assert told.record.phase is Phase.RUNNING
    joined = [m for m in told.record.members() if m.generation == 2]
    assert [(m.key, m.node, m.state) for m in joined] == [
        (("worker", 2), "n2", S.PLACED),
        (("worker", 3), "n2", S.PLACED),
    ]


def test_a_shrink_takes_a_replica_from_the_membership_but_not_its_room(story: Stories) -> None:
    told = story(2, most=4).running()

    told.resize(remove=(("worker", 1),))

    assert [m.key for m in told.record.members()] == [("ps", 0), ("worker", 0)]
    leaving = told.replica("worker", 1)
    assert (leaving.leaving, leaving.ended) == (True, False)


def test_an_index_is_used_again_once_its_end_is_confirmed(story: Stories) -> None:
    told = story(2, most=4).running()
    told.resize(remove=(("worker", 1),))

    too_early = told.resize(add=(("worker", 1),))
    told.see("worker", 1, S.REMOVED)
    in_time = told.resize(add=(("worker", 1),))

    assert too_early.illegal == "JobResized adds a replica that still exists"
    assert in_time.illegal is None
    again = told.replica("worker", 1)
    assert (again.restart, again.generation, again.leaving, again.state) == (1, 3, False, S.PLACED)


def test_an_eviction_sends_everyone_away_and_is_no_failure(story: Stories) -> None:
    told = story().running()

    told.evict()

    record = told.record
    assert (record.evictions, record.failures, record.waiting_since) == (1, 0, told.now)
    assert not record.members()
    assert all(r.leaving for r in record.replicas)


def test_a_gang_restart_sends_everyone_away_and_holds_the_job_back(story: Stories) -> None:
    told = story().running()

    told.restart_gang(delay_ms=4000)

    record = told.record
    assert (record.failures, record.not_before) == (1, told.now + 4_000_000)
    assert not record.members()

    told.place()
    assert told.record.not_before == 0


def test_a_replicas_restart_keeps_its_place_and_its_address(story: Stories) -> None:
    told = story().running()
    told.see("worker", 1, S.EXITED, exit_code=1, address="10.0.0.1:2222")

    told.restart(("worker", 1), delay_ms=2000)

    again = told.replica("worker", 1)
    assert (again.node, again.address, again.restart, again.state) == ("n1", "10.0.0.1:2222", 1, S.PLACED)
    assert again.not_before == told.now + 2_000_000
    assert (again.exit_code, again.ended_at) == (None, 0)
    assert (told.record.failures, told.record.phase) == (1, Phase.RUNNING)


def test_a_restart_of_a_replica_that_still_runs_moves_nothing(story: Stories) -> None:
    told = story().running().end("worker", 1, 1)

    applied_sequence = told.restart(("worker", 0), ("worker", 1))

    assert applied_sequence.illegal == "JobRestarting of a replica that has not ended"
    assert told.replica("worker", 1).state is S.EXITED
    assert told.record.failures == 0


def test_a_restart_of_a_replica_that_was_removed_meanwhile_moves_nothing(story: Stories) -> None:
    told = story(3, most=4).running().end("worker", 2, 1)
    told.resize(remove=(("worker", 2),))

    assert told.restart(("worker", 2)).illegal is not None
    assert told.replica("worker", 2).leaving


@pytest.mark.parametrize("policy", [CleanPodPolicy.ALL, CleanPodPolicy.RUNNING])
@pytest.mark.parametrize("outcome", events.Outcome)
def test_the_end_of_a_job_sends_away_what_still_runs(
    story: Stories, policy: CleanPodPolicy, outcome: events.Outcome
) -> None:
    told = story(run=RunPolicy(clean_pod_policy=policy)).running().end("worker", 0)

    told.finish(outcome)

    assert [r.leaving for r in told.record.replicas] == [True, False, True]
    assert told.record.finished_at == told.now
    assert not told.record.settled


@pytest.mark.parametrize(
    ("outcome", "kept"),
    [
        (events.Outcome.SUCCEEDED, True),
        (events.Outcome.FAILED, True),
        (events.Outcome.CANCELLED, False),
        (events.Outcome.TIMED_OUT, False),
    ],
)
def test_clean_pod_policy_none_keeps_what_runs_unless_the_job_was_ended_from_outside(
    story: Stories, outcome: events.Outcome, kept: bool
) -> None:
    told = story(run=RunPolicy(clean_pod_policy=CleanPodPolicy.NONE)).running()

    told.finish(outcome)

    assert all(r.leaving is not kept for r in told.record.replicas)


def test_a_delete_removes_even_what_was_to_be_kept(story: Stories) -> None:
    told = story(run=RunPolicy(clean_pod_policy=CleanPodPolicy.NONE)).running()
    told.finish(events.Outcome.SUCCEEDED)

    told.command(events.Command.DELETE)

    assert told.record.phase is Phase.SUCCEEDED
    assert all(r.leaving for r in told.record.replicas)


def test_the_history_tells_every_event_and_stays_bounded(story: Stories) -> None:
    told = story().running()
    for _ in range(300):
        told.tell(
            events.CommandRequested(command=events.Command.SCALE, request_id="c", by="ann", message="grow")
        )

    history = told.record.history
    assert len(history) == 200
    assert history[0].event == "JobSubmitted"
    assert (history[-1].at, history[-1].source) == (told.now, "test")
    assert (history[-1].reason, history[-1].message) == ("scale", "by ann grow")


def test_the_history_names_nodes_and_ends(story: Stories) -> None:
    told = story(5).running()
    told.end("worker", 0, signal=9)
    told.see("worker", 1, S.EXITED, exit_code=3, reason="Error")

    words = {entry.event: entry.message for entry in told.record.history if entry.event == "JobPlaced"}
    assert words == {"JobPlaced": "attempt 1; n1: ps-0, worker-0, worker-1, worker-2 and 2 more"}
    assert told.record.history[-2].message == "worker-0 exited by signal 9"
    assert told.record.history[-1].message == "worker-1 exited with 3 (Error)"
