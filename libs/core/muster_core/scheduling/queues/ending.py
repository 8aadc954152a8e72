"""What runs, in the order in which it is expected to end: what a starved gang can wait for.

A gang waits for the first few of thousands. So they are looked up one after the other, as far as they are asked for.
"""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections.abc import Container, Sequence
from typing import overload

from muster_core.scheduling.placement import AllocationKey
from muster_core.scheduling.queues.durations import Durations
from muster_core.scheduling.queues.index import PoolIndex
from muster_core.scheduling.queues.leavers import Leaver


class _Gradual(Sequence[Leaver]):
    """``length`` leavers, each made when it is asked for and then kept."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._made: list[Leaver] = []

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, at: int) -> Leaver: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Leaver]: ...
    def __getitem__(self, at: int | slice) -> Leaver | Sequence[Leaver]:
        last = at.indices(self._length)[1] if isinstance(at, slice) else at + 1
        if last > self._length:
            raise IndexError(at)
        while len(self._made) < last:
            self._made.append(self._make())
        return self._made[at]

    @abstractmethod
    def _make(self) -> Leaver:
        """The one after those that are made."""
        ...


class Ending(_Gradual):
    """Running jobs by their expected end; those of whom nobody knows come last, the oldest of them first.

    Services stay up, and what a finished job has left behind may stay as long as it likes: nobody waits for those. ``until`` is the
    instant (µs) up to which the order and the ends stay as they are without any event, None: for ever.
    """

    def __init__(self, index: PoolIndex, durations: Durations, now: int) -> None:
        super().__init__(len(index.departures))
        self._index = index
        self._known: list[tuple[int, str]] = []
        fixed = True
        for job_id in (*index.departures.bounded, *index.departures.called(durations.names)):
            record = index.records[job_id]
            end = durations.expected_end(record, now)
            if end is not None:
                self._known.append((end, job_id))
                fixed = fixed and durations.is_fixed(record)
        heapq.heapify(self._known)
        self._with_end = {job_id for _, job_id in self._known}
        self._without_end = (job_id for _, job_id in index.departures.by_age if job_id not in self._with_end)
        self.until: int | None = None
        if self._known:
            self.until = max(self._known[0][0], now + 1) if fixed else now + 1

    def _make(self) -> Leaver:
        end = None
        if self._known:
            end, job_id = heapq.heappop(self._known)
        else:
            job_id = next(self._without_end)
        return Leaver(self._index.records[job_id], self._index.departures.of(job_id).ending, end)


class StillHeld(_Gradual):
    """The same leavers with what of their holds is in ``held`` when each is looked up first."""

    def __init__(self, leavers: Sequence[Leaver], held: Container[AllocationKey]) -> None:
        super().__init__(len(leavers))
        self._leavers = leavers
        self._held = held

    def _make(self) -> Leaver:
        one = self._leavers[len(self._made)]
        if all(key in self._held for key, _ in one.holds):
            return one
        return one._replace(holds=tuple((key, hold) for key, hold in one.holds if key in self._held))
