"""The records in memory: begun from the bucket, kept by the events behind it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from muster_bus.errors import Poison
from muster_bus.key_value import Entry, KeyValueStore
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


class Records:
    """A bucket that has what was delivered."""

    async def read(self, entry: Entry, decode: Callable[[bytes], JobRecord]) -> JobRecord | None:
        try:
            return decode(entry.value)
        except ValueError:
            return None


RECORDS = cast("KeyValueStore", Records())


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


async def test_a_view_from_the_bucket_is_the_view_that_read_everything(wire: Wire) -> None:
    stream = [wire.send(event) for event in (SUBMITTED, VALIDATED, CANCELLED)]
    whole, kept = JobsView(), JobsView()
    for incoming in stream:
        whole.apply(incoming)
    for incoming in stream[:2]:
        kept.apply(incoming)

    restored = JobsView()
    await restored.load(RECORDS, [entry(record) for record in kept.records.values()])
    changes = [restored.apply(incoming) for incoming in stream]

    assert restored.records == whole.records
    assert [change.before is change.after for change in changes] == [True, True, False]
    assert restored.invalid_transitions == 0


async def test_loading_adds_to_what_is_there() -> None:
    view = JobsView()
    one, other = JobRecord(job_id=JOB_ID, applied_sequence=1), JobRecord(job_id=OTHER, applied_sequence=2)

    await view.load(RECORDS, [entry(one)])
    await view.load(RECORDS, [entry(other)])

    assert view.records == {JOB_ID: one, OTHER: other}


async def test_a_record_that_cannot_be_read_or_is_of_another_job_holds_up_no_other() -> None:
    good = JobRecord(job_id=JOB_ID, applied_sequence=1)
    bad = Entry(key=live_record_key(OTHER), value=b"{", revision=9)
    damaged = msgspec.structs.replace(entry(good), key=live_record_key(OTHER))

    records = await restore(RECORDS, [bad, damaged, entry(good)])

    assert records == [good]


async def test_records_that_are_of_no_interest_are_not_kept(wire: Wire) -> None:
    view = JobsView(keep=lambda record: not record.terminal)
    ended = JobRecord(job_id=OTHER, applied_sequence=1, phase=Phase.SUCCEEDED, finished_at=1)
    await view.load(RECORDS, [entry(ended)])
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
