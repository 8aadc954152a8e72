"""The parts of a document: the first begins with JobSubmitted, the others with JobValidated; then all have the same life cycle."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from muster_core import events
from muster_core.lifecycle import apply_event, begins_record
from muster_core.models import Job, JobRecord, Reason, ReplicaState, Role, RunPolicy, Template
from muster_testing.record_invariants import check_record

START = 1_700_000_000_000_000
WHY = Reason(code="Why", message="because")
JOB = Job(
    name="train", roles=(Role(name="worker", replicas=2, min=1, max=3, template=Template(command=("true",))),)
)
_gang = tuple(events.Assignment(role="worker", index=index, node="n1") for index in range(2))

later = st.lists(
    st.sampled_from(
        [
            events.JobWaiting(reason=WHY),
            events.JobPlaced(attempt=1, generation=1, pool="local", replicas=_gang),
            events.JobPlaced(attempt=2, generation=1, pool="local", replicas=_gang),
            events.JobEvicted(attempt=1, reason=WHY),
            events.ReplicasChanged(
                changes=tuple(
                    events.ReplicaChange(role="worker", index=index, attempt=1, state=ReplicaState.RUNNING)
                    for index in range(2)
                )
            ),
            *(
                events.CommandRequested(command=command, request_id=command.value)
                for command in (events.Command.CANCEL, events.Command.SUSPEND, events.Command.RESUME)
            ),
            events.JobFinished(outcome=events.Outcome.CANCELLED, reason=WHY),
        ]
    ),
    max_size=12,
)


def record_of(sequence: int, *transition: events.JobEvent) -> JobRecord | None:
    """Return the record after consecutive events from ``sequence``, a second apart."""
    record: JobRecord | None = None
    for position, event in enumerate(transition, start=sequence):
        at = START + position * 1_000_000
        stored = events.StoredEvent(job_id="j-1", event=event, sequence=position, at=at, source="test")
        record = apply_event(record, stored).record
        if record is not None:
            check_record(record)
    return record


@settings(deadline=None, max_examples=100)
@given(later, st.booleans())
def test_a_later_part_has_the_same_life_cycle_as_the_first(
    transition: Sequence[events.JobEvent], suspended: bool
) -> None:
    job = replace(JOB, run=RunPolicy(suspend=suspended))
    submitted = events.JobSubmitted(job_id="j-1", request_id="r", submitter="ann")
    part = events.JobValidated(
        job=job, part=1, parts=2, submission_id="j-0", submitter="ann", submitted_at=START + 1_000_000
    )

    first = record_of(1, submitted, events.JobValidated(job=job, parts=2), *transition)
    other = record_of(2, part, *transition)

    assert first is not None
    assert other is not None
    assert replace(other, submission_id="", history=()) == replace(first, history=())
    assert other.history == first.history[1:]


@given(later)
def test_a_later_part_begins_with_its_validation(transition: Sequence[events.JobEvent]) -> None:
    assert not any(begins_record(event) for event in transition)
    assert record_of(1, *transition) is None
