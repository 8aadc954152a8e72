"""Replay a stream of events: repeat the decisions, and compare them with the scheduler's.

The stream is that of a running system, or the journal of a simulation. The scheduler's events are taken out and must result
from the decisions. A running scheduler may have decided before it read the latest events, but never before it read its own.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from muster_core import events
from muster_core.models import QueueSpec
from muster_core.scheduling import PoolState

_DECISIONS = (events.JobPlaced, events.JobResized, events.JobEvicted, events.JobWaiting)

Decision = tuple[str, events.JobEvent]
"""A job id, and what the scheduler decided about it."""


class NodeObserved(msgspec.Struct, frozen=True):
    """A node event, and the time (µs since the epoch) at which it was read."""

    at: int
    event: events.NodeChanged


JournalEntry = events.StoredEvent | NodeObserved
"""An event of a pool; a journal has all of them in total order."""


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """A difference at entry ``position`` (from 0).

    ``published`` is what the scheduler published and the replay did not decide, or None if the scheduler omitted what
    the replay ``decided``.
    """

    position: int
    published: Decision | None
    decided: tuple[Decision, ...]


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True):
    """The number of decisions, and the ones that differ."""

    decisions: int
    divergences: tuple[Divergence, ...]


def replay(entries: Iterable[JournalEntry], *, pool: str, queues: Iterable[QueueSpec] = ()) -> ReplayResult:
    """Decide again at every time at which the scheduler decided something.

    Waiting reasons that were computed but not published are no divergence: they are published at limited rates.
    """
    replayer = _Replayer(pool, tuple(queues))
    position = -1
    for position, entry in enumerate(entries):
        replayer.read(position, entry)
    replayer.close(position)
    return ReplayResult(decisions=replayer.decisions, divergences=tuple(replayer.divergences))


class _Replayer:
    """``_open`` has the alternatives of the last decision, each without what was published of it already."""

    def __init__(self, pool: str, queues: tuple[QueueSpec, ...]) -> None:
        self.decisions = 0
        self.divergences: list[Divergence] = []
        self._pool = pool
        # The scheduler may have diagnosed a class at other times, so this one always does.
        self._state = PoolState(pool=pool, diagnosis_interval_us=0)
        if queues:
            self._state.apply_queues(queues)
        self._unread: list[JournalEntry] = []
        self._open: list[list[Decision]] = []

    def read(self, position: int, entry: JournalEntry) -> None:
        """Apply an entry."""
        if isinstance(entry, NodeObserved) or not isinstance(entry.event, _DECISIONS):
            self._unread.append(entry)
            return
        self.decisions += 1
        published = (entry.job_id, entry.event)
        remaining = _without(published, self._open)
        may_be_complete = not self._open or any(not _mandatory(decided) for decided in self._open)
        if not remaining:
            self.close(position)
        if not remaining or (may_be_complete and self._unread):
            # What the last decision omitted may follow in the next one, which may have been computed before the latest
            # events.
            alternatives = self._alternatives(entry.at)
            remaining += _without(published, alternatives)
            if not remaining:
                self.divergences.append(
                    Divergence(position=position, published=published, decided=tuple(alternatives[-1]))
                )
        self._open = remaining
        while self._unread:
            self._observe(self._unread.pop(0))
        self._state.observe(entry)

    def close(self, position: int) -> None:
        """Finish the last decision."""
        omitted = [_mandatory(decided) for decided in self._open]
        if omitted and all(omitted):
            self.divergences.append(Divergence(position=position, published=None, decided=omitted[-1]))
        self._open = []

    def _alternatives(self, at: int) -> list[list[Decision]]:
        """Return the decisions on none of the unread events, on the first, on the first two, ...; afterwards all are read."""
        alternatives = [self._decide(at)]
        while self._unread:
            self._observe(self._unread.pop(0))
            decided = self._decide(at)
            if decided != alternatives[-1]:
                alternatives.append(decided)
        return alternatives

    def _decide(self, at: int) -> list[Decision]:
        return [(one.job_id, one.to_event(self._pool)) for one in self._state.decide(at)]

    def _observe(self, entry: JournalEntry) -> None:
        if isinstance(entry, NodeObserved):
            self._state.observe_node(entry.event)
        else:
            self._state.observe(entry)


def _mandatory(decided: list[Decision]) -> tuple[Decision, ...]:
    """Return the decisions that the scheduler must publish."""
    return tuple(one for one in decided if not isinstance(one[1], events.JobWaiting))


def _without(published: Decision, alternatives: list[list[Decision]]) -> list[list[Decision]]:
    """Return the alternatives that contain ``published``, without it."""
    return [[one for one in decided if one != published] for decided in alternatives if published in decided]
