"""Decide a stream of events again and compare the decisions.

Works on the stream of a running system and on the journal of a simulation: the scheduler's events are taken out and must
result from the decisions. A running scheduler may have decided before it read the latest events, but never before it read
its own.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from muster_core import events
from muster_core.models import QueueSpec
from muster_core.scheduling import PoolState
from muster_core.simulation.journal import Entry, NodeSaid

DECISIONS = (events.JobPlaced, events.JobResized, events.JobEvicted, events.JobWaiting)
"""The events that the scheduler writes."""

Said = tuple[str, events.JobEvent]
"""A job id, and what was decided about it."""


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """At entry ``position`` (from 0) the scheduler ``said`` what the same events do not give (None: it omitted what they
    give).

    ``decided`` is what they give.
    """

    position: int
    said: Said | None
    decided: tuple[Said, ...]


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """The number of decisions, and the ones that differ."""

    decisions: int
    divergences: tuple[Divergence, ...]


def replay(entries: Iterable[Entry], *, pool: str, queues: Iterable[QueueSpec] = ()) -> Replayed:
    """Decide again at every time at which the scheduler decided something.

    Waiting reasons that were computed but not published are no divergence: they are published at limited rates.
    """
    replaying = _Replaying(pool, tuple(queues))
    position = -1
    for position, entry in enumerate(entries):
        replaying.read(position, entry)
    replaying.close(position)
    return Replayed(decisions=replaying.decisions, divergences=tuple(replaying.divergences))


class _Replaying:
    def __init__(self, pool: str, queues: tuple[QueueSpec, ...]) -> None:
        self.decisions = 0
        self.divergences: list[Divergence] = []
        self._pool = pool
        # The scheduler may have diagnosed a class at other times, so this one always does.
        self._state = PoolState(pool=pool, diagnosis_interval_us=0)
        if queues:
            self._state.apply_queues(queues)
        self._unread: list[Entry] = []
        self._open: list[list[Said]] = []

    def read(self, position: int, entry: Entry) -> None:
        """Apply an entry."""
        if isinstance(entry, NodeSaid) or not isinstance(entry.event, DECISIONS):
            self._unread.append(entry)
            return
        self.decisions += 1
        said = (entry.job_id, entry.event)
        open_ = _with(said, self._open)
        could_be_over = not self._open or any(not _must_be_said(decided) for decided in self._open)
        if not open_:
            self.close(position)
        if not open_ or (could_be_over and self._unread):
            # What the last decision omitted may follow in the next one, which may have been computed before the latest
            # events.
            fresh = self._alternatives(entry.at)
            open_ += _with(said, fresh)
            if not open_:
                self.divergences.append(Divergence(position=position, said=said, decided=tuple(fresh[-1])))
        self._open = open_
        self._catch_up()
        self._state.observe(entry)

    def close(self, position: int) -> None:
        """Finish the last decision."""
        left_out = [_must_be_said(decided) for decided in self._open]
        if left_out and all(left_out):
            self.divergences.append(Divergence(position=position, said=None, decided=left_out[-1]))
        self._open = []

    def _alternatives(self, at: int) -> list[list[Said]]:
        """Yield the decisions on none of the unread events, on the first, on the first two, ...; afterwards all are read."""
        found = [self._decided(at)]
        while self._unread:
            self._observe(self._unread.pop(0))
            decided = self._decided(at)
            if decided != found[-1]:
                found.append(decided)
        return found

    def _decided(self, at: int) -> list[Said]:
        return [(one.job_id, one.to_event(self._pool)) for one in self._state.decide(at)]

    def _catch_up(self) -> None:
        while self._unread:
            self._observe(self._unread.pop(0))

    def _observe(self, entry: Entry) -> None:
        if isinstance(entry, NodeSaid):
            self._state.observe_node(entry.event)
        else:
            self._state.observe(entry)


def _must_be_said(decided: list[Said]) -> tuple[Said, ...]:
    return tuple(one for one in decided if not isinstance(one[1], events.JobWaiting))


def _with(said: Said, alternatives: list[list[Said]]) -> list[list[Said]]:
    """Return the alternatives that contain ``said``, without it."""
    return [[one for one in decided if one != said] for decided in alternatives if said in decided]
