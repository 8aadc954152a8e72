"""Room that is kept for a waiting gang: on the nodes of its reservation, as much of what is free now as it will need then.

Who gets a reservation: who may take room by force, then for whom others gave it up, then who has waited too long.

All are found from the events and the clock alone, so that a new leader keeps the same room for the same jobs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from muster_core.models import GPU_MILLI, JobRecord
from muster_core.scheduling.placement import (
    Allocation,
    AllocationKey,
    Demand,
    Gang,
    Placement,
    Snapshot,
    find_room,
)
from muster_core.scheduling.queues import QueueKey, SchedulingClass, SchedulingKey, gang_amounts, minimum_gang
from muster_core.scheduling.reservations.expected_releases import (
    ExpectedRelease,
    ReleaseTimeline,
    RemainingReleases,
    RuntimeEstimates,
    earliest_fit,
    earliest_placement,
    has_equal_replicas,
    leaving,
)
from muster_core.scheduling.reservations.preemption import Preemptor, preempt, preemptors
from muster_core.scheduling.state import Transaction

LAUNCH_MARGIN_US = 30_000_000
"""What launching and ending may add to a job's own bound."""

_US = 1_000_000


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """Room on ``nodes`` is kept for a job; it is expected to start at ``expected_at`` (µs), None where nobody knows.

    ``forced`` says that the job is entitled to that room; otherwise it has waited too long for it.
    """

    job_id: str
    queue: str
    nodes: tuple[str, ...]
    expected_at: int | None
    forced: bool


class _Rest(NamedTuple):
    """What of a node is for others once the gang stands there: by resource, and by GPU index."""

    amounts: dict[str, int]
    gpus: tuple[int, ...]
    gpu_memory: tuple[int, ...]


class ReservedCapacity:
    """The room of one reservation, noted when everybody it waits for has left and the gang stands in ``snapshot``."""

    def __init__(
        self, reservation: Reservation, shape: SchedulingKey, found: Placement, snapshot: Snapshot
    ) -> None:
        self.reservation = reservation
        resources = {
            name
            for role in shape.gang.roles
            for slot in (role.slot, *(slot for _, slot in role.overrides))
            for name, _ in slot.demand.amounts
        }
        self._rests: dict[str, _Rest] = {}
        for node in sorted({one.node for one in found.replicas}):
            room = snapshot.room(node)
            amounts = {name: snapshot.free_of(room, name) for name in sorted(resources)}
            self._rests[node] = _Rest(amounts, room.gpus, room.gpu_memory)

    def outlasts(self, bound_s: int | None, now: int) -> bool:
        """Whether a job that starts now has certainly ended when the room is needed."""
        at = self.reservation.expected_at
        return bound_s is not None and at is not None and now + bound_s * _US + LAUNCH_MARGIN_US <= at

    def holds(self, snapshot: Snapshot) -> Iterator[tuple[AllocationKey, Allocation]]:
        """What must not be given to others of what is free in ``snapshot``."""
        name = f"reserved/{self.reservation.job_id}"
        for node, rest in self._rests.items():
            room = snapshot.room(node)
            kept = {what: snapshot.free_of(room, what) - amount for what, amount in rest.amounts.items()}
            amounts = tuple((what, amount) for what, amount in sorted(kept.items()) if amount > 0)
            if amounts:
                yield (name, 0, node, -1), Allocation(node, Demand(amounts=amounts))
            for gpu, milli in enumerate(room.gpus):
                demand = _of_gpu(milli - rest.gpus[gpu], room.gpu_memory[gpu] - rest.gpu_memory[gpu])
                # Of a GPU without free compute nobody can take the memory.
                if milli > 0 and demand is not None:
                    yield (name, 0, node, gpu), Allocation(node, demand, (gpu,))


class Reservations:
    """Every reservation of a pass, standing in ``snapshot`` but where it is lifted."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._kept: dict[str, ReservedCapacity] = {}
        self._standing: dict[str, list[AllocationKey]] = {}

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """Those that there are, in the order in which they were given."""
        return tuple(kept.reservation for kept in self._kept.values())

    @property
    def all(self) -> tuple[ReservedCapacity, ...]:
        """The room of each of them."""
        return tuple(self._kept.values())

    def add(self, kept: ReservedCapacity) -> None:
        """Keep room for one more; ``stand`` has to follow."""
        self._kept[kept.reservation.job_id] = kept

    def fulfil(self, job_id: str) -> None:
        """The job has started; ``stand`` has to follow."""
        self._kept.pop(job_id, None)

    def lift(self, job_id: str, shape: SchedulingKey, now: int) -> bool:
        """Lift what does not concern the job: its own reservation, and those before which it has ended. Answers whether any was."""
        lifted = [
            name
            for name, kept in self._kept.items()
            if name in self._standing and not _concerns(kept, job_id, shape, now)
        ]
        for name in lifted:
            self._release(name)
        return bool(lifted)

    def lift_all(self) -> None:
        """Lift whatever still stands."""
        for name in list(self._standing):
            self._release(name)

    def first_before(self, job_id: str, shape: SchedulingKey, now: int) -> Reservation | None:
        """The first reservation that concerns the job, None where none does."""
        concerning = (kept for kept in self._kept.values() if _concerns(kept, job_id, shape, now))
        first = next(concerning, None)
        return first.reservation if first is not None else None

    def stand(self) -> None:
        """Keep the room of every reservation, as it is now."""
        for name in list(self._standing):
            self._release(name)
        for name, kept in self._kept.items():
            holds = list(kept.holds(self._snapshot))
            self._snapshot.hold_all(holds)
            self._standing[name] = [key for key, _ in holds]

    def _release(self, name: str) -> None:
        for key in self._standing.pop(name):
            self._snapshot.release(key)


def _concerns(kept: ReservedCapacity, job_id: str, shape: SchedulingKey, now: int) -> bool:
    """Whether a job must leave this room alone: it is another's, and will be needed before the job has certainly ended."""
    return kept.reservation.job_id != job_id and not kept.outlasts(shape.bound_s, now)


def _of_gpu(milli: int, memory: int) -> Demand | None:
    """The demand that takes so much of one GPU."""
    if milli <= 0 and memory <= 0:
        return None
    if milli >= GPU_MILLI:
        return Demand(amounts=(), gpus=1)
    return Demand(amounts=(), gpu_share=max(milli, 1), gpu_memory=max(memory, 0))


_MOST = 8
"""Reservations at once: beyond a handful they keep no more room, since there is none, but cost time."""


class ReservationCache:
    """What was kept, and under which conditions."""

    def __init__(self) -> None:
        self._conditions: Hashable = None
        self._at = 0
        self._until: int | None = None
        self._kept: tuple[ReservedCapacity, ...] = ()

    def recall(self, conditions: Hashable, now: int) -> tuple[ReservedCapacity, ...] | None:
        """What is to be kept at ``now`` (µs) under the same ``conditions``, or None where that has to be derived."""
        if (
            conditions != self._conditions
            or now < self._at
            or (self._until is not None and now >= self._until)
        ):
            return None
        return self._kept

    def note(
        self, conditions: Hashable, *, at: int, until: int | None, kept: Sequence[ReservedCapacity]
    ) -> None:
        """At ``at`` (µs) this was derived; it holds to before ``until``, None: until the conditions change."""
        self._conditions = conditions
        self._at = at
        self._until = until
        self._kept = tuple(kept)


class ReservationPlanner:
    """Gives the reservations of a pass."""

    def __init__(
        self,
        transaction: Transaction,
        kept: Reservations,
        runtime_estimates: RuntimeEstimates,
        remembered: ReservationCache,
    ) -> None:
        self._trial = transaction
        self._kept = kept
        self._durations = runtime_estimates
        self._remembered = remembered
        self._ending: ReleaseTimeline | None = None
        self._may_have_left = False
        self._patient: list[tuple[int, str]] = []

    def run(self) -> None:
        """Keep room for whoever is to have it; what is said is who must leave for it."""
        claims = preemptors(self._trial, _MOST)
        promised = self._promised()
        starved = self._starved()
        if not claims and not promised:
            self._keep_for(starved)
        else:
            self._derive(claims, promised, starved)
        self._kept.stand()

    def _keep_for(self, starved: Sequence[tuple[JobRecord, SchedulingKey]]) -> None:
        """Keep room for the starved, where nobody else is entitled to any."""
        if not starved:
            return
        index, now = self._trial.index, self._trial.now
        waiting = tuple((record.job_id, shape) for record, shape in starved)
        conditions = (index.version, self._durations.version, waiting)
        remembered = self._remembered.recall(conditions, now)
        if remembered is not None:
            for kept in remembered:
                self._kept.add(kept)
            return
        self._derive((), (), starved)
        self._remembered.note(conditions, at=now, until=self._holds_until(), kept=self._kept.all)

    def _holds_until(self) -> int | None:
        """The instant (µs) before which the same would be derived from the same events, None where time does not matter."""
        now = self._trial.now
        if any(one.expected_at == now for one in self._kept.reservations):
            return now + 1
        return self._ending.until if self._ending else None

    def _derive(
        self,
        claims: Sequence[Preemptor],
        promised: Sequence[tuple[JobRecord, SchedulingKey]],
        starved: Sequence[tuple[JobRecord, SchedulingKey]],
    ) -> None:
        mark = self._trial.checkpoint()
        try:
            for leaver in leaving(self._trial.index, self._trial.now):
                self._trial.release(leaver.record, leaver.holds)
            self._may_have_left = bool(claims)
            for claim in claims:
                self._claim(claim)
            for record, shape in promised:
                self._redeem(record, shape)
            for position, (record, shape) in enumerate(starved, 1):
                if len(self._kept.reservations) < _MOST:
                    self._wait_for_room(record, shape, is_last=position == len(starved))
        finally:
            self._trial.rollback(mark)

    def starves_at(self) -> int | None:
        """The next instant (µs) at which somebody who was not placed in this pass has waited too long, if any."""
        return min((at for at, job_id in self._patient if job_id not in self._trial.decided), default=None)

    def _claim(self, claim: Preemptor) -> None:
        found = preempt(claim, self._trial)
        if found is not None:
            self._keep(claim.record, claim.shape, found, self._trial.now, forced=True)

    def _redeem(self, record: JobRecord, shape: SchedulingKey) -> None:
        """Keep what was given up for a job, once all of it is there."""
        if any(one.job_id == record.job_id for one in self._kept.reservations):
            return
        found = self._room_for(shape)
        if found is not None:
            self._keep(record, shape, found, self._trial.now, forced=True)

    def _wait_for_room(self, record: JobRecord, shape: SchedulingKey, *, is_last: bool) -> None:
        if any(one.job_id == record.job_id for one in self._kept.reservations):
            return
        if self._ending is None:
            self._ending = ReleaseTimeline(self._trial.index, self._durations, self._trial.now)
        leavers: Sequence[ExpectedRelease] = self._ending
        if self._may_have_left:
            leavers = RemainingReleases(leavers, self._trial.snapshot.holds)
        mark = self._trial.checkpoint()
        gang = minimum_gang(shape.gang)
        if has_equal_replicas(gang):
            found = self._counted(gang, leavers, is_last=is_last)
        else:
            found = earliest_placement(
                self._trial, leavers, gang, lambda: find_room(gang, self._trial.snapshot)
            )
        if found is None:
            self._trial.rollback(mark)
            return
        self._trial.commit(mark)
        self._may_have_left = True
        number, placement = found
        at = leavers[number - 1].end if number else self._trial.now
        known = [one.expected_at for one in self._kept.reservations]
        if at is not None and known and known[-1] is not None:
            at = max(at, known[-1])
        self._keep(record, shape, placement, None if None in known else at, forced=False)

    def _counted(
        self, gang: Gang, leavers: Sequence[ExpectedRelease], *, is_last: bool
    ) -> tuple[int, Placement] | None:
        """As ``earliest_placement``; for the last who waits the only room released is that in question, since nobody looks at the rest."""
        opening = earliest_fit(gang, leavers, self._trial.snapshot)
        if opening is None:
            return None
        for leaver in leavers[: opening.number]:
            given = [one for one in leaver.holds if not is_last or one[1].node in opening.nodes]
            if given:
                self._trial.release(leaver.record, given)
        found = find_room(gang, self._trial.snapshot)
        return None if found is None else (opening.number, found)

    def _keep(
        self, record: JobRecord, shape: SchedulingKey, found: Placement, at: int | None, *, forced: bool
    ) -> None:
        self._trial.allocate(record, record.attempt + 1, found.replicas)
        reservation = Reservation(
            job_id=record.job_id,
            queue=shape.queue,
            nodes=tuple(sorted({one.node for one in found.replicas})),
            expected_at=at,
            forced=forced,
        )
        self._kept.add(ReservedCapacity(reservation, shape, found, self._trial.snapshot))

    def _room_for(self, shape: SchedulingKey) -> Placement | None:
        return find_room(minimum_gang(shape.gang), self._trial.snapshot)

    def _promised(self) -> list[tuple[JobRecord, SchedulingKey]]:
        """The waiting jobs for whom others gave up replicas since they wait, whoever waits longest first."""
        index = self._trial.index
        promised: dict[str, tuple[JobRecord, SchedulingKey]] = {}
        for giver, takers in index.beneficiaries.items():
            given_at = index.records[giver].resized_at
            for taker in takers:
                if taker in index.classes and self._trial.is_eligible(taker):
                    record = index.records[taker]
                    if record.waiting_since <= given_at:
                        promised[taker] = (record, index.classes.class_of(taker).shape)
        return sorted(promised.values(), key=lambda one: (one[0].waiting_since, one[0].job_id))

    def _starved(self) -> list[tuple[JobRecord, SchedulingKey]]:
        """The first of every queue that has waited too long, whoever waits longest first."""
        first: dict[str, tuple[QueueKey, int, SchedulingClass]] = {}
        for line in self._trial.index.classes:
            key = next((key for key in line.keys if self._trial.is_eligible(key[2])), None)
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

    def _waits_for_room(self, shape: SchedulingKey) -> bool:
        """Whether only room keeps it from starting, and the empty pool would have it."""
        floor = minimum_gang(shape.gang)
        allowed = self._trial.ledger.exceeded_limit(shape.queue, gang_amounts(floor)) is None
        return allowed and self._trial.is_feasible(shape.gang)
