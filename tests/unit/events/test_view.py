"""The records in memory: begun from the bucket, kept by the events behind it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from muster_bus.errors import Poison
from muster_bus.key_value import Entry
from muster_bus.messages import Incoming
from muster_core import events
from muster_core.models import Job, JobRecord, Phase, Reason
from muster_events.codec import encode_record
from muster_events.subjects import job_subject, live_record_key
from muster_events.view import JobsView, restore

if TYPE_CHECKING:
    from .conftest import Wire

JOB_ID = "j-abcdefghijklmnop"
OTHER = "j-ponmlkjihgfedcba"
SUBMITTED = events.JobSubmitted(job_id=JOB_ID, request_id="r")
VALIDATED = events.JobValidated(job=Job(name="demo", roles=()))
CANCELLED = events.JobFinished(outcome=events.Outcome.CANCELLED, reason=Reason(code="Cancelled"))


def entry(record: JobRecord, revision: int = 1) -> Entry:
    """The record in its bucket."""
    return Entry(key=live_record_key(record.job_id), value=encode_record(record), revision=revision)


def test_events_add_up_to_a_record(wire: Wire) -> None:
    view = JobsView()

    first = view.apply(wire.send(SUBMITTED))
    second = view.apply(wire.send(VALIDATED))

    assert (first.before, first.after) == (None, second.before)
    assert second.after is view.records[JOB_ID]
    assert second.stored.event == VALIDATED
    assert view.records[JOB_ID].phase is Phase.QUEUED


def test_a_view_from_the_bucket_is_the_view_that_read_everything(wire: Wire) -> None:
    stream = [wire.send(event) for event in (SUBMITTED, VALIDATED, CANCELLED)]
    whole, kept = JobsView(), JobsView()
    for incoming in stream:
        whole.apply(incoming)
    for incoming in stream[:2]:
        kept.apply(incoming)

    restored = JobsView()
    restored.load([entry(record) for record in kept.records.values()])
    changes = [restored.apply(incoming) for incoming in stream]

    assert restored.records == whole.records
    assert [change.before is change.after for change in changes] == [True, True, False]
    assert restored.invalid_transitions == 0


def test_loading_adds_to_what_is_there() -> None:
    view = JobsView()
    one, other = JobRecord(job_id=JOB_ID, applied_sequence=1), JobRecord(job_id=OTHER, applied_sequence=2)

    view.load([entry(one)])
    view.load([entry(other)])

    assert view.records == {JOB_ID: one, OTHER: other}


def test_a_record_that_cannot_be_read_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    good = JobRecord(job_id=JOB_ID, applied_sequence=1)
    bad = Entry(key="3.j-bad", value=b"{", revision=9)

    with caplog.at_level(logging.ERROR):
        records = restore([bad, entry(good)])

    assert records == [good]
    assert "record 3.j-bad at revision 9 cannot be read" in caplog.text


def test_records_that_are_of_no_interest_are_not_kept(wire: Wire) -> None:
    view = JobsView(keep=lambda record: not record.terminal)
    ended = JobRecord(job_id=OTHER, applied_sequence=1, phase=Phase.SUCCEEDED, finished_at=1)
    view.load([entry(ended)])
    assert not view.records

    view.apply(wire.send(SUBMITTED))
    assert set(view.records) == {JOB_ID}
    change = view.apply(wire.send(CANCELLED))

    assert not view.records
    assert change.after is not None
    assert change.after.phase is Phase.CANCELLED


def test_an_invalid_transition_is_counted_and_logged(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    view = JobsView()
    view.apply(wire.send(SUBMITTED))

    with caplog.at_level(logging.WARNING):
        change = view.apply(wire.send(events.JobEvicted(attempt=1, reason=Reason(code="Why"))))

    assert change.invalid == "JobEvicted in phase Submitted"
    assert view.invalid_transitions == 1
    assert JOB_ID in caplog.text


def test_a_late_event_of_a_job_that_is_forgotten_is_no_mistake(wire: Wire) -> None:
    view = JobsView()

    change = view.apply(wire.send(VALIDATED))

    assert (change.before, change.after) == (None, None)
    assert change.invalid is not None
    assert (view.records, view.invalid_transitions) == ({}, 0)


def test_what_is_no_event_is_poison_and_changes_nothing(wire: Wire) -> None:
    view = JobsView()
    view.apply(wire.send(SUBMITTED))
    before = dict(view.records)

    with pytest.raises(Poison, match="at 7"):
        view.apply(Incoming(subject=job_subject(JOB_ID, "JobPlaced"), data=b"?", stream_sequence=7))

    assert view.records == before
