"""The records of many jobs in memory, kept by folding their events.

A cache, rebuilt at every start from the ``jobs`` bucket and the events behind it. Status-tracker writes the bucket; everyone else
only reads it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import msgspec

from muster_bus.errors import Poison
from muster_bus.messages import Incoming
from muster_bus.records import Entry
from muster_core.events import Stamped
from muster_core.lifecycle import fold
from muster_core.models import JobRecord
from muster_events.codec import UnreadableEvent, decode_record, read_job_event

log = logging.getLogger(__name__)


class Change(msgspec.Struct, frozen=True):
    """What one event did to a job's record."""

    stamped: Stamped
    before: JobRecord | None
    after: JobRecord | None
    illegal: str | None


def restore(entries: Iterable[Entry]) -> list[JobRecord]:
    """The records in a bucket; one that cannot be read is logged and left out, so that it holds up no other."""
    records: list[JobRecord] = []
    for entry in entries:
        try:
            records.append(decode_record(entry.value))
        except UnreadableEvent as error:
            log.error("record %s at revision %d cannot be read: %s", entry.key, entry.revision, error)
    return records


def stamp(incoming: Incoming) -> Stamped:
    """The event in a message; raises ``Poison`` when there is none to be read, so that it is set aside."""
    try:
        return read_job_event(incoming)
    except UnreadableEvent as error:
        raise Poison(str(error)) from error


class JobsView:
    """Job id -> record.

    ``keep`` says which records are still of interest; the others are dropped as soon as an event makes them so.
    """

    def __init__(self, keep: Callable[[JobRecord], bool] = lambda _: True) -> None:
        self.records: dict[str, JobRecord] = {}
        self.illegal_moves = 0
        self._keep = keep

    def load(self, entries: Iterable[Entry]) -> None:
        """Start from a bucket."""
        self.records |= {record.job_id: record for record in restore(entries) if self._keep(record)}

    def apply(self, incoming: Incoming) -> Change:
        """Fold one message; raises ``Poison`` when it is no event."""
        stamped = stamp(incoming)
        before = self.records.get(stamped.job_id)
        folded = fold(before, stamped)
        if folded.illegal:
            self._note_illegal(stamped, folded.illegal)
        if folded.record is not None and self._keep(folded.record):
            self.records[stamped.job_id] = folded.record
        else:
            self.records.pop(stamped.job_id, None)
        return Change(stamped, before, folded.record, folded.illegal)

    def _note_illegal(self, stamped: Stamped, illegal: str) -> None:
        # A late event about a job that is forgotten is what a rebuild from an early position looks like, no mistake.
        if stamped.job_id in self.records:
            self.illegal_moves += 1
            log.warning("illegal move of %s at %d: %s", stamped.job_id, stamped.sequence, illegal)
