"""Job records in memory, kept up to date by applying events.

A cache, rebuilt at every start from the ``jobs`` bucket and the events after it. The status-tracker writes the bucket;
others only read it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from muster_bus.errors import Poison
from muster_bus.key_value import Entry, KeyValueStore
from muster_bus.messages import Incoming
from muster_core.events import StoredEvent
from muster_core.lifecycle import apply_event
from muster_core.models import JobRecord
from muster_events.codec import UnreadableEvent, decode_record_at, read_job_event

log = logging.getLogger(__name__)


class Change(msgspec.Struct, frozen=True):
    """The effect of one event on a job's record."""

    stored: StoredEvent
    before: JobRecord | None
    after: JobRecord | None
    invalid: str | None


async def restore(records: KeyValueStore, entries: Iterable[Entry]) -> list[JobRecord]:
    """Return the records of a bucket; one that was damaged on its way is read again, an unreadable one is logged and left out."""
    found = [await records.read(entry, partial(decode_record_at, entry.key)) for entry in entries]
    return [record for record in found if record is not None]


def stamp(incoming: Incoming) -> StoredEvent:
    """Return the event in a message; raises ``Poison`` if it cannot be decoded, so that it is dead-lettered."""
    try:
        return read_job_event(incoming)
    except UnreadableEvent as error:
        raise Poison(str(error)) from error


class JobsView:
    """Job id -> record.

    ``keep`` selects the records of interest; others are dropped as soon as an event makes them so.
    """

    def __init__(self, keep: Callable[[JobRecord], bool] = lambda _: True) -> None:
        self.records: dict[str, JobRecord] = {}
        self.invalid_transitions = 0
        self._keep = keep

    async def load(self, records: KeyValueStore, entries: Iterable[Entry]) -> None:
        """Start from a bucket."""
        restored = await restore(records, entries)
        self.records |= {record.job_id: record for record in restored if self._keep(record)}

    def apply(self, incoming: Incoming) -> Change:
        """Apply one message; raises ``Poison`` if it is not an event."""
        stored = stamp(incoming)
        before = self.records.get(stored.job_id)
        transition = apply_event(before, stored)
        if transition.invalid:
            self._note_invalid(stored, transition.invalid)
        if transition.record is not None and self._keep(transition.record):
            self.records[stored.job_id] = transition.record
        else:
            self.records.pop(stored.job_id, None)
        return Change(stored, before, transition.record, transition.invalid)

    def _note_invalid(self, stored: StoredEvent, invalid: str) -> None:
        # A late event of a deleted job is normal after a rebuild from an early position.
        if stored.job_id in self.records:
            self.invalid_transitions += 1
            log.warning("invalid transition of %s at %d: %s", stored.job_id, stored.sequence, invalid)
