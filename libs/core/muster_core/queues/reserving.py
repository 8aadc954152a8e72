"""Who gets a reservation: first those who may take room by force, then those who have waited too long.

Both are found from the facts and the clock alone, so that a new leader keeps the same room for the same jobs.
"""

from __future__ import annotations

from muster_core.models import JobRecord
from muster_core.placement import Placement, place
from muster_core.queues.claims import Claim, claims_of
from muster_core.queues.durations import Durations
from muster_core.queues.keeping import Kept, KeptRoom, Reservation
from muster_core.queues.leavers import Leaver, ending, first_fit, leaving
from muster_core.queues.lines import Line, Shape
from muster_core.queues.order import QueueKey
from muster_core.queues.preemption import make_room
from muster_core.queues.sizes import gang_amounts, smallest
from muster_core.queues.trial import Trial

_US = 1_000_000
_MOST = 8
"""Reservations at once: beyond a handful they keep no more room, since there is none, but cost time."""


class Reserving:
    """Gives the reservations of a pass."""

    def __init__(self, trial: Trial, kept: KeptRoom, durations: Durations) -> None:
        self._trial = trial
        self._kept = kept
        self._durations = durations
        self._ending: list[Leaver] | None = None
        self._patient: list[tuple[int, str]] = []

    def run(self) -> None:
        """Keep room for whoever is to have it; what is said is who must leave for it."""
        claims = claims_of(self._trial, _MOST)
        starved = self._starved()
        if not claims and not starved:
            return
        mark = self._trial.checkpoint()
        try:
            for leaver in leaving(self._trial.index, self._trial.now):
                self._trial.release(leaver.record, leaver.holds)
            for claim in claims:
                self._claim(claim)
            for record, shape in starved:
                if len(self._kept.reservations) < _MOST:
                    self._wait_for_room(record, shape)
        finally:
            self._trial.rollback(mark)
        self._kept.stand()

    def starves_at(self) -> int | None:
        """The next instant (µs) at which somebody who was not placed in this pass has waited too long, if any."""
        return min((at for at, job_id in self._patient if job_id not in self._trial.touched), default=None)

    def _claim(self, claim: Claim) -> None:
        found = make_room(claim, self._trial)
        if found is not None:
            self._keep(claim.record, claim.shape, found, self._trial.now, forced=True)

    def _wait_for_room(self, record: JobRecord, shape: Shape) -> None:
        if any(one.job_id == record.job_id for one in self._kept.reservations):
            return
        if self._ending is None:
            self._ending = ending(self._trial.index, self._durations, self._trial.now)
        held = self._trial.snapshot.holds
        leavers = [
            one._replace(holds=tuple((key, hold) for key, hold in one.holds if key in held))
            for one in self._ending
        ]
        mark = self._trial.checkpoint()
        gang = smallest(shape.gang)
        found = first_fit(self._trial, leavers, gang, lambda: self._room_for(shape))
        if found is None:
            self._trial.rollback(mark)
            return
        self._trial.commit(mark)
        number, placement = found
        at = leavers[number - 1].end if number else self._trial.now
        known = [one.expected_at for one in self._kept.reservations]
        if at is not None and known and known[-1] is not None:
            at = max(at, known[-1])
        self._keep(record, shape, placement, None if None in known else at, forced=False)

    def _keep(
        self, record: JobRecord, shape: Shape, found: Placement, at: int | None, *, forced: bool
    ) -> None:
        self._trial.hold(record, record.attempt + 1, found.replicas)
        reservation = Reservation(
            job_id=record.job_id,
            queue=shape.queue,
            nodes=tuple(sorted({one.node for one in found.replicas})),
            expected_at=at,
            forced=forced,
        )
        self._kept.add(Kept(reservation, shape, found, self._trial.snapshot))

    def _room_for(self, shape: Shape) -> Placement | None:
        found = place(smallest(shape.gang), self._trial.snapshot, feasible=True)
        return found if isinstance(found, Placement) else None

    def _starved(self) -> list[tuple[JobRecord, Shape]]:
        """The first of every queue that has waited too long, whoever waits longest first."""
        first: dict[str, tuple[QueueKey, int, Line]] = {}
        for line in self._trial.index.lines:
            key = next((key for key in line.keys if self._trial.may_start(key[2])), None)
            if key is None:
                continue
            queue = line.shape.queue
            patience = self._trial.index.tree.specs[queue].starvation_after_s * _US
            at = self._trial.index.records[key[2]].waiting_since + patience
            if (queue in first and first[queue][0] < key) or not self._waits_for_room(line.shape):
                continue
            if at > self._trial.now:
                self._patient.append((at, key[2]))
            else:
                first[queue] = (key, at, line)
        starved = sorted(first.values(), key=lambda one: (one[1], one[0]))
        return [(self._trial.index.records[key[2]], line.shape) for key, _, line in starved]

    def _waits_for_room(self, shape: Shape) -> bool:
        """Whether only room keeps it from starting, and the empty pool would have it."""
        floor = smallest(shape.gang)
        allowed = self._trial.ledger.barrier(shape.queue, gang_amounts(floor)) is None
        return allowed and self._trial.could_start(shape.gang)
