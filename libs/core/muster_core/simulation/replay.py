"""The same events decided again: whether a scheduler that is given them says what was said.

The stream of a running system and the journal of a simulated one are read alike: what the scheduler said is taken out of the stream
and has to come out of the decisions. A running scheduler may have decided before it had read the latest events; it never decides again
before it has read its own.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from muster_core import events
from muster_core.models import QueueSpec
from muster_core.scheduling import PoolState
from muster_core.simulation.journal import Entry, NodeSaid

DECISIONS = (events.JobPlaced, events.JobResized, events.JobEvicted, events.JobWaiting)
"""The events whose writer is the scheduler."""

Said = tuple[str, events.JobEvent]
"""A job's id, and what was said of it."""


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """At entry ``position`` (from 0) the scheduler ``said`` what the same events do not give (None: it left out what they give).

    ``decided`` is what they give.
    """

    position: int
    said: Said | None
    decided: tuple[Said, ...]


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """How many decisions there were, and those that come out otherwise."""

    decisions: int
    divergences: tuple[Divergence, ...]


def replay(entries: Iterable[Entry], *, pool: str, queues: Iterable[QueueSpec] = ()) -> Replayed:
    """Decide again at every instant at which the scheduler said something.

    Reasons to wait that were decided and not said are no divergence: they are said again only so often.
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
        # At other instants than the scheduler, so it may have looked at a line when this has just done so: this one looks always.
        self._state = PoolState(pool=pool, diagnosis_interval_us=0)
        if queues:
            self._state.apply_queues(queues)
        self._unread: list[Entry] = []
        self._open: list[list[Said]] = []

    def read(self, position: int, entry: Entry) -> None:
        """Take in an entry."""
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
            # What the last decision left unsaid may be said by the next one, which may have been worked out before the latest events.
            fresh = self._alternatives(entry.at)
            open_ += _with(said, fresh)
            if not open_:
                self.divergences.append(Divergence(position=position, said=said, decided=tuple(fresh[-1])))
        self._open = open_
        self._catch_up()
        self._state.observe(entry)

    def close(self, position: int) -> None:
        """Nothing more is said of the last decision."""
        left_out = [_must_be_said(decided) for decided in self._open]
        if left_out and all(left_out):
            self.divergences.append(Divergence(position=position, said=None, decided=left_out[-1]))
        self._open = []

    def _alternatives(self, at: int) -> list[list[Said]]:
        """What is decided on none of the unread events, on the first, on the first two, ...; afterwards all of them are read."""
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
    """The alternatives that have ``said``, without it."""
    return [[one for one in decided if one != said] for decided in alternatives if said in decided]
