"""Ten thousand events, delivered late, twice and to readers that restart, give the same records as the same events in order."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from muster_core.events import StoredEvent
from muster_core.lifecycle import apply_event
from muster_core.models import JobRecord, Phase
from muster_events.codec import decode_record, encode_record
from muster_testing.random_events import RandomEvents
from muster_testing.record_invariants import check_record

EVENTS = 10_000
JOBS = 250
_LATEST = 40


class Reader:
    """Reads like a partition reader: after a gap it reads the missing events from the stream, and applies events that it
    already knows again.
    """

    def __init__(self, stream: list[StoredEvent]) -> None:
        self.records: dict[str, JobRecord] = {}
        self.bucket: dict[str, bytes] = {}
        self.invalid = 0
        self._stream = stream
        self._position = 0

    def deliver(self, index: int) -> None:
        """Receive one message."""
        for due in range(self._position, index + 1):
            self._fold(self._stream[due])
        if index < self._position:
            self._fold(self._stream[index])
        self._position = max(self._position, index + 1)

    def restart(self, lag: int) -> None:
        """Restart: the successor has the stored records, and reads again from an earlier sequence."""
        self.records = {job_id: decode_record(kept) for job_id, kept in self.bucket.items()}
        for due in range(max(self._position - lag, 0), self._position):
            self._fold(self._stream[due])

    def keep(self) -> None:
        """Store the records."""
        self.bucket = {job_id: encode_record(record) for job_id, record in self.records.items()}

    def _fold(self, stored: StoredEvent) -> None:
        before = self.records.get(stored.job_id)
        transition = apply_event(before, stored)
        self.invalid += transition.invalid is not None
        if transition.record is not None:
            check_record(transition.record)
            self.records[stored.job_id] = transition.record


@pytest.mark.parametrize("seed", [1, 2])
def test_late_and_duplicate_events_give_the_same_record_as_ordered_ones(seed: int) -> None:
    random_events = RandomEvents(seed=seed, jobs=JOBS, length=EVENTS)
    rng = Random(seed)
    late = sorted(range(EVENTS), key=lambda index: index + rng.uniform(0, _LATEST))
    reader = Reader(random_events.stream)
    kept_at = 0
    for number, index in enumerate(late):
        reader.deliver(index)
        if rng.random() < 0.3:
            reader.deliver(max(index - rng.randint(0, 500), 0))
        if number % 400 == 399:
            reader.keep()
            kept_at = number
        if number % 1500 == 1499:
            reader.restart(lag=number - kept_at + 3 * _LATEST)

    assert reader.records == random_events.records


def test_the_walk_reaches_every_phase_and_counts_invalid_transitions() -> None:
    random_events = RandomEvents(seed=1, jobs=JOBS, length=EVENTS)
    transition = Counter(type(stored.event).__name__ for stored in random_events.stream)
    reader = Reader(random_events.stream)
    phases: Counter[Phase] = Counter()
    for index in range(EVENTS):
        reader.deliver(index)
        record = reader.records.get(random_events.stream[index].job_id)
        if record is not None:
            phases[record.phase] += 1

    assert len(transition) == 14
    assert min(transition.values()) >= 50
    assert set(phases) == set(Phase)
    assert reader.invalid == random_events.invalid > 300
