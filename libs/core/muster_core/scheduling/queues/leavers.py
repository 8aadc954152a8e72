"""Whose room becomes free, and in which order: what a waiting gang can wait for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from muster_core.models import JobRecord
from muster_core.scheduling.placement import Gang, Placement
from muster_core.scheduling.queues.departures import Allocations
from muster_core.scheduling.queues.index import PoolIndex
from muster_core.scheduling.queues.ledger import amounts_of
from muster_core.scheduling.queues.sizes import gang_amounts
from muster_core.scheduling.queues.transaction import Transaction


class Leaver(NamedTuple):
    """Room that a job gives back together: at ``end`` (µs), or nobody knows when."""

    record: JobRecord
    holds: Allocations
    end: int | None


def leaving(index: PoolIndex, now: int) -> list[Leaver]:
    """What is on its way out already."""
    departures = index.departures
    return [
        Leaver(index.records[job_id], departures.of(job_id).leaving, now) for job_id in departures.leaving
    ]


def first_fit(
    transaction: Transaction, leavers: Sequence[Leaver], gang: Gang, fits: Callable[[], Placement | None]
) -> tuple[int, Placement] | None:
    """The fewest of the first ``leavers`` after whom ``gang`` fits, and where; their room stays released inside the open transaction.

    None where it does not fit after all of them; what was released then is for the caller to roll back.
    """
    found = fits()
    if found is not None:
        return 0, found
    enough = _enough_in_all(transaction, leavers, gang)
    if enough is None:
        return None
    way = _Way(transaction, leavers)
    try:
        low, high, step = 0, enough, 1
        way.go_to(high)
        while (found := fits()) is None:
            if high == len(leavers):
                return None
            low, high, step = high, min(high + step, len(leavers)), step * 2
            way.go_to(high)
        low = max(low, enough - 1)
        while high - low > 1:
            way.back_to(low)
            middle = (low + high) // 2
            way.go_to(middle)
            better = fits()
            if better is None:
                low = middle
            else:
                high, found = middle, better
        way.back_to(high)
        way.go_to(high)
        return high, found
    finally:
        way.settle()


class _Way:
    """How far the leavers have been released, with the way back."""

    def __init__(self, transaction: Transaction, leavers: Sequence[Leaver]) -> None:
        self._trial = transaction
        self._leavers = leavers
        self._at = 0
        self._marks: list[tuple[int, tuple[int, int]]] = []

    def go_to(self, number: int) -> None:
        if number > self._at:
            self._marks.append((self._at, self._trial.checkpoint()))
            for leaver in self._leavers[self._at : number]:
                self._trial.release(leaver.record, leaver.holds)
            self._at = number

    def back_to(self, number: int) -> None:
        while self._at > number:
            self._at, mark = self._marks.pop()
            self._trial.rollback(mark)
        self.go_to(number)

    def settle(self) -> None:
        while self._marks:
            self._trial.commit(self._marks.pop()[1])


def _enough_in_all(transaction: Transaction, leavers: Sequence[Leaver], gang: Gang) -> int | None:
    """After how many leavers there is enough of everything in all, wherever it lies; None where there never is. At least 1."""
    free = transaction.snapshot.free_total().amounts()
    missing = {name: amount - free.get(name, 0) for name, amount in gang_amounts(gang).items()}
    missing = {name: amount for name, amount in missing.items() if amount > 0 and name != "gpu_memory"}
    for number, leaver in enumerate(leavers, 1):
        for name, amount in amounts_of(hold for _, hold in leaver.holds).items():
            if name in missing:
                missing[name] -= amount
                if missing[name] <= 0:
                    del missing[name]
        if not missing:
            return number
    return None
