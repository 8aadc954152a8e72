"""Every phase with every event: a valid transition follows the table; an invalid one changes nothing and is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import msgspec
import pytest

from muster_core import events
from muster_core.lifecycle.transitions import VALID_PHASES
from muster_core.models import (
    TERMINAL_PHASES,
    Job,
    JobRecord,
    Phase,
    Reason,
    ReplicaRecord,
    ReplicaState,
    RestartScope,
)

if TYPE_CHECKING:
    from .conftest import NewJobLog

WHY = Reason(code="Why")
WAITING = (Phase.QUEUED, Phase.EVICTED, Phase.RESTARTING)
ACTIVE = (Phase.PLACED, Phase.LAUNCHING, Phase.RUNNING)
LIVING = (Phase.SUBMITTED, *WAITING, Phase.SUSPENDED, *ACTIVE)

TRANSITIONS: dict[str, dict[Phase, Phase]] = {
    "JobSubmitted": {},
    "JobValidated": {Phase.SUBMITTED: Phase.QUEUED},
    "JobRejected": {Phase.SUBMITTED: Phase.REJECTED},
    "JobWaiting": dict.fromkeys(WAITING, Phase.QUEUED),
    "JobPlaced": dict.fromkeys(WAITING, Phase.PLACED),
    "JobResized": {phase: phase for phase in ACTIVE},
    "JobEvicted": dict.fromkeys(ACTIVE, Phase.EVICTED),
    "JobRestarting": dict.fromkeys(ACTIVE, Phase.RESTARTING),
    "JobAdopted": dict.fromkeys((*WAITING, Phase.SUSPENDED, *ACTIVE), Phase.RUNNING),
    "JobFinished": dict.fromkeys(LIVING, Phase.FAILED),
    "ReplicasChanged": {phase: phase for phase in Phase} | {Phase.PLACED: Phase.LAUNCHING},
    "CommandRequested": {phase: phase for phase in Phase},
    "ScaleProposed": {phase: phase for phase in Phase},
    "ProgressReported": {phase: phase for phase in Phase},
}
"""Event -> phase before -> phase after; a pair that is not here is invalid."""


def fitting(name: str, record: JobRecord) -> events.JobEvent:
    """Return the event of that name as its writer would make it from this record."""
    attempt, generation = record.attempt, record.generation
    placed = tuple(
        events.Assignment(role=role, index=i, node="n1")
        for role, i in (("ps", 0), ("worker", 0), ("worker", 1))
    )
    found = tuple(
        ReplicaRecord(
            role=one.role,
            index=one.index,
            attempt=attempt + 1,
            generation=1,
            node="n2",
            state=ReplicaState.RUNNING,
            running_at=7,
        )
        for one in placed
    )
    seen = events.ReplicaChange(role="worker", index=1, attempt=attempt, state=ReplicaState.LAUNCHED)
    samples: tuple[events.JobEvent, ...] = (
        events.JobSubmitted(job_id="j-1", request_id="again"),
        events.JobValidated(job=record.job or Job(name="demo", roles=())),
        events.JobRejected(problems=()),
        events.JobWaiting(reason=WHY),
        events.JobPlaced(attempt=attempt + 1, generation=1, pool="local", replicas=placed),
        events.JobResized(attempt=attempt, generation=generation + 1, reason=WHY),
        events.JobEvicted(attempt=attempt, reason=WHY),
        events.ScaleProposed(
            role="worker", size=2, target=3, policy="p", attempt=attempt, generation=generation, reason=WHY
        ),
        events.ProgressReported(role="worker", index=1, attempt=attempt, step=7, at=1),
        events.ReplicasChanged(changes=(seen,)),
        events.CommandRequested(command=events.Command.CANCEL, request_id="c"),
        events.JobRestarting(scope=RestartScope.GANG, attempt=attempt, reason=WHY),
        events.JobAdopted(attempt=attempt + 1, generation=1, replicas=found, reason=WHY),
        events.JobFinished(outcome=events.Outcome.FAILED, reason=WHY, attempt=attempt),
    )
    return next(event for event in samples if type(event).__name__ == name)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("name", TRANSITIONS)
def test_transitions_follow_the_table(new_log: NewJobLog, phase: Phase, name: str) -> None:
    log = new_log().log(phase)
    before = log.record

    transition = log.apply(fitting(name, before))

    after = log.record
    assert after.applied_sequence == log.sequence
    if phase in TRANSITIONS[name]:
        assert transition.invalid is None
        assert after.phase is TRANSITIONS[name][phase]
        if name == "ProgressReported":
            assert after.history == before.history
        else:
            assert after.history[:-1] == before.history
            assert after.history[-1].event == name
    else:
        assert transition.invalid is not None
        assert name in transition.invalid
        assert msgspec.structs.replace(after, applied_sequence=before.applied_sequence) == before


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("name", TRANSITIONS)
def test_a_redelivered_event_changes_nothing(new_log: NewJobLog, phase: Phase, name: str) -> None:
    log = new_log().log(phase)
    log.apply(fitting(name, log.record))
    once = log.record

    log.sequence -= 1
    transition = log.apply(fitting(name, once))

    assert transition.record is once
    assert transition.invalid is None


@pytest.mark.parametrize("name", [name for name in TRANSITIONS if name != "JobSubmitted"])
def test_an_event_of_a_job_that_was_never_submitted_is_invalid(new_log: NewJobLog, name: str) -> None:
    transition = new_log().apply(fitting(name, JobRecord(job_id="j-1", applied_sequence=0)))

    assert transition.record is None
    assert transition.invalid == f"{name} of a job that was never submitted"


@pytest.mark.parametrize("phase", sorted(TERMINAL_PHASES))
@pytest.mark.parametrize("name", TRANSITIONS)
def test_a_terminal_phase_never_changes(new_log: NewJobLog, phase: Phase, name: str) -> None:
    log = new_log().log(phase)
    before = log.record

    log.apply(fitting(name, before))

    after = log.record
    assert (after.phase, after.reason, after.finished_at) == (phase, before.reason, before.finished_at)


def test_the_table_covers_every_job_event() -> None:
    known = {kind.__name__ for kind in get_args(events.JobEvent)}

    assert set(TRANSITIONS) == known
    assert {kind.__name__ for kind in VALID_PHASES} == known


@pytest.mark.parametrize("attempt", [0, 1, 3])
def test_a_placement_for_another_attempt_than_the_next_is_invalid(new_log: NewJobLog, attempt: int) -> None:
    log = new_log().log(Phase.EVICTED)

    transition = log.apply(events.JobPlaced(attempt=attempt, generation=1, pool="local", replicas=()))

    assert transition.invalid == f"JobPlaced for attempt {attempt} after attempt 1"
    assert log.record.phase is Phase.EVICTED


@pytest.mark.parametrize(("attempt", "generation"), [(0, 2), (2, 2), (1, 1), (1, 3)])
def test_a_resize_of_another_membership_is_invalid(new_log: NewJobLog, attempt: int, generation: int) -> None:
    log = new_log().running()
    before = log.record

    transition = log.apply(events.JobResized(attempt=attempt, generation=generation, reason=WHY))

    assert transition.invalid is not None
    assert msgspec.structs.replace(log.record, applied_sequence=before.applied_sequence) == before


@pytest.mark.parametrize("attempt", [0, 2])
def test_an_eviction_or_restart_of_another_attempt_is_invalid(new_log: NewJobLog, attempt: int) -> None:
    log = new_log().running()

    evicted = log.apply(events.JobEvicted(attempt=attempt, reason=WHY))
    restarted = log.apply(events.JobRestarting(scope=RestartScope.GANG, attempt=attempt, reason=WHY))

    assert evicted.invalid == f"JobEvicted for attempt {attempt} at attempt 1"
    assert restarted.invalid == f"JobRestarting for attempt {attempt} at attempt 1"
    assert log.record.phase is Phase.RUNNING
