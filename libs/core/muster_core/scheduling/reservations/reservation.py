"""Reservations: which waiting jobs get one, and the free capacity that it withholds from others.

Reservations go to jobs with a guarantee or a higher priority (see ``preemption``), to jobs for which others released
replicas, and to jobs that have waited past the starvation threshold. A job that certainly ends before the expected start of a
reservation may use its capacity: EASY backfill (Lifka, 1995), on nodes and GPUs. Everything follows from the events and the
clock, so that a new leader reserves the same capacity for the same jobs.
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
    find_placement,
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
    terminating_releases,
)
from muster_core.scheduling.reservations.preemption import Preemptor, preempt, preemptors
from muster_core.scheduling.state import Transaction

LAUNCH_MARGIN_US = 30_000_000
"""What launching and terminating may add to the active deadline of a job."""

_US = 1_000_000
_MOST_RESERVATIONS = 8
"""Per cycle: more reservations withhold nothing more, because nothing is left, but cost time."""


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """Capacity on ``nodes`` is reserved for a job. ``expected_at`` is its expected start (µs), None if unknown.

    ``freed`` is True if other jobs release the capacity for it (preemption, reclaim, scale-down), and False if the job has
    waited past the starvation threshold.
    """

    job_id: str
    queue: str
    nodes: tuple[str, ...]
    expected_at: int | None
    freed: bool


class _Remainder(NamedTuple):
    """What of a node is left for others once the gang has started: by resource, and by GPU index."""

    amounts: dict[str, int]
    gpus: tuple[int, ...]
    gpu_memory: tuple[int, ...]


class ReservedCapacity:
    """The capacity of one reservation.

    Args:
        reservation: The reservation.
        key: What the job asks for.
        found: Where the gang will start.
        snapshot: The nodes at that time: without the jobs that it waits for, and with the gang.
    """

    def __init__(
        self, reservation: Reservation, key: SchedulingKey, found: Placement, snapshot: Snapshot
    ) -> None:
        self.reservation = reservation
        resources = {
            name for role in key.gang.roles for request in role.requests for name, _ in request.demand.amounts
        }
        self._remainders: dict[str, _Remainder] = {}
        for node in sorted({one.node for one in found.replicas}):
            capacity = snapshot.free_capacity(node)
            amounts = {name: snapshot.free_of(capacity, name) for name in sorted(resources)}
            self._remainders[node] = _Remainder(amounts, capacity.gpus, capacity.gpu_memory)

    def permits(self, bound_s: int | None, now: int) -> bool:
        """Return whether a job that starts now, and runs for at most ``bound_s``, ends before the reservation starts."""
        at = self.reservation.expected_at
        return bound_s is not None and at is not None and now + bound_s * _US + LAUNCH_MARGIN_US <= at

    def concerns(self, job_id: str, key: SchedulingKey, now: int) -> bool:
        """Return whether a job must not use the capacity: it belongs to another job and is needed too soon."""
        return self.reservation.job_id != job_id and not self.permits(key.bound_s, now)

    def allocations(self, snapshot: Snapshot) -> Iterator[tuple[AllocationKey, Allocation]]:
        """Yield what to withhold of the free capacity in ``snapshot``."""
        name = f"reserved/{self.reservation.job_id}"
        for node, remainder in self._remainders.items():
            capacity = snapshot.free_capacity(node)
            reserved = {
                what: snapshot.free_of(capacity, what) - amount for what, amount in remainder.amounts.items()
            }
            amounts = tuple((what, amount) for what, amount in sorted(reserved.items()) if amount > 0)
            if amounts:
                yield (name, 0, node, -1), Allocation(node, Demand(amounts=amounts))
            for gpu, milli in enumerate(capacity.gpus):
                demand = _gpu_demand(
                    milli - remainder.gpus[gpu], capacity.gpu_memory[gpu] - remainder.gpu_memory[gpu]
                )
                # The memory of a GPU without free compute cannot be allocated anyway.
                if milli > 0 and demand is not None:
                    yield (name, 0, node, gpu), Allocation(node, demand, (gpu,))


class Reservations:
    """The reservations of a scheduling cycle. Enforced ones withhold their capacity in ``snapshot``; lifted ones do not."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._by_job: dict[str, ReservedCapacity] = {}
        self._enforced: dict[str, list[AllocationKey]] = {}

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """The reservations in the order in which they were given."""
        return tuple(one.reservation for one in self._by_job.values())

    @property
    def all(self) -> tuple[ReservedCapacity, ...]:
        """The capacity of each reservation, in the same order."""
        return tuple(self._by_job.values())

    def add(self, reserved: ReservedCapacity) -> None:
        """Add a reservation; it is enforced from the next ``enforce`` on."""
        self._by_job[reserved.reservation.job_id] = reserved

    def replace(self, reserved: Sequence[ReservedCapacity]) -> None:
        """Replace all reservations by ``reserved``; they are enforced from the next ``enforce`` on."""
        self.lift_all()
        self._by_job = {one.reservation.job_id: one for one in reserved}

    def remove(self, job_id: str) -> None:
        """Remove the reservation of a job that has started; call ``enforce`` afterwards."""
        self._by_job.pop(job_id, None)

    def lift(self, job_id: str, key: SchedulingKey, now: int) -> bool:
        """Lift the reservations that a job may ignore: its own, and those that start after its end.

        Returns:
            Whether any was lifted.
        """
        lifted = [
            name
            for name, reserved in self._by_job.items()
            if name in self._enforced and not reserved.concerns(job_id, key, now)
        ]
        for name in lifted:
            self._lift(name)
        return bool(lifted)

    def lift_all(self) -> None:
        """Lift every reservation."""
        for name in list(self._enforced):
            self._lift(name)

    def first_blocking(self, job_id: str, key: SchedulingKey, now: int) -> Reservation | None:
        """Return the first reservation that a job must respect."""
        blocking = (one.reservation for one in self._by_job.values() if one.concerns(job_id, key, now))
        return next(blocking, None)

    def enforce(self) -> None:
        """Withhold the capacity of every reservation, computed anew from what is free now."""
        self.lift_all()
        for name, reserved in self._by_job.items():
            allocations = list(reserved.allocations(self._snapshot))
            self._snapshot.allocate_all(allocations)
            self._enforced[name] = [key for key, _ in allocations]

    def _lift(self, name: str) -> None:
        for key in self._enforced.pop(name):
            self._snapshot.release(key)


def _gpu_demand(milli: int, memory: int) -> Demand | None:
    """Return the demand that takes ``milli`` of one GPU and ``memory`` bytes of it."""
    if milli <= 0 and memory <= 0:
        return None
    if milli >= GPU_MILLI:
        return Demand(amounts=(), gpus=1)
    return Demand(amounts=(), gpu_share=max(milli, 1), gpu_memory=max(memory, 0))


class ReservationCache:
    """The reservations of starved jobs from the last cycle, valid while nothing that they follow from has changed.

    Most cycles follow events that change no allocation. On 1,000 full nodes with 3,000 waiting jobs the cache saves 1.2 of
    3.3 ms of such a cycle.
    """

    def __init__(self) -> None:
        self._basis: Hashable = None
        self._at = 0
        self._until: int | None = None
        self._reserved: tuple[ReservedCapacity, ...] = ()

    def get(self, basis: Hashable, now: int) -> tuple[ReservedCapacity, ...] | None:
        """Return what the same ``basis`` gave, if that is still valid at ``now`` (µs)."""
        if basis != self._basis or now < self._at or (self._until is not None and now >= self._until):
            return None
        return self._reserved

    def put(
        self, basis: Hashable, *, at: int, until: int | None, reserved: Sequence[ReservedCapacity]
    ) -> None:
        """Store what ``basis`` gives from ``at`` (µs) to before ``until``; None: for as long as the basis is the same."""
        self._basis = basis
        self._at = at
        self._until = until
        self._reserved = tuple(reserved)


class ReservationPlanner:
    """Gives the reservations of a scheduling cycle, and emits the preemptions that they need."""

    def __init__(
        self,
        transaction: Transaction,
        reservations: Reservations,
        runtime_estimates: RuntimeEstimates,
        cache: ReservationCache,
    ) -> None:
        self._transaction = transaction
        self._reservations = reservations
        self._estimates = runtime_estimates
        self._cache = cache
        self._timeline: ReleaseTimeline | None = None
        self._has_released = False
        self._starving_at: list[tuple[int, str]] = []

    def run(self) -> None:
        """Plan the reservations and enforce them."""
        claims = preemptors(self._transaction, _MOST_RESERVATIONS)
        beneficiaries = self._beneficiaries()
        starved = self._starved()
        if claims or beneficiaries:
            self._plan(claims, beneficiaries, starved)
        elif starved:
            self._plan_starved(starved)
        self._reservations.enforce()

    def next_starvation_at(self) -> int | None:
        """Return when the next job without a start in this cycle passes the starvation threshold (µs), if any does."""
        decided = self._transaction.decided
        return min((at for at, job_id in self._starving_at if job_id not in decided), default=None)

    def _plan_starved(self, starved: Sequence[tuple[JobRecord, SchedulingKey]]) -> None:
        """Plan reservations of starved jobs only, which the cache may have."""
        cache, now = self._cache, self._transaction.now
        waiting = tuple((record.job_id, key) for record, key in starved)
        basis = (self._transaction.index.version, self._estimates.version, waiting)
        cached = cache.get(basis, now)
        if cached is not None:
            for reserved in cached:
                self._reservations.add(reserved)
            return
        self._plan((), (), starved)
        cache.put(basis, at=now, until=self._valid_until(), reserved=self._reservations.all)

    def _valid_until(self) -> int | None:
        """Return before which instant (µs) the same events give the same plan; None if time does not matter."""
        now = self._transaction.now
        if any(one.expected_at == now for one in self._reservations.reservations):
            return now + 1
        return self._timeline.valid_until if self._timeline else None

    def _plan(
        self,
        claims: Sequence[Preemptor],
        beneficiaries: Sequence[tuple[JobRecord, SchedulingKey]],
        starved: Sequence[tuple[JobRecord, SchedulingKey]],
    ) -> None:
        transaction = self._transaction
        mark = transaction.checkpoint()
        try:
            for release in terminating_releases(transaction.index, transaction.now):
                transaction.release(release.record, release.allocations)
            self._has_released = bool(claims)
            for claim in claims:
                if (found := preempt(claim, transaction)) is not None:
                    self._reserve(claim.record, claim.key, found, transaction.now, freed=True)
            for record, key in beneficiaries:
                self._reserve_freed(record, key)
            for position, (record, key) in enumerate(starved, 1):
                if len(self._reservations.reservations) < _MOST_RESERVATIONS:
                    self._reserve_earliest(record, key, is_last=position == len(starved))
        finally:
            transaction.rollback(mark)

    def _reserve_freed(self, record: JobRecord, key: SchedulingKey) -> None:
        """Reserve what donors released for a job, once all of it is free or terminating."""
        if not self._has_reservation(record):
            found = find_placement(minimum_gang(key.gang), self._transaction.snapshot)
            if found is not None:
                self._reserve(record, key, found, self._transaction.now, freed=True)

    def _reserve_earliest(self, record: JobRecord, key: SchedulingKey, *, is_last: bool) -> None:
        """Reserve where a starved job fits first, after the fewest expected releases."""
        if self._has_reservation(record):
            return
        transaction = self._transaction
        if self._timeline is None:
            self._timeline = ReleaseTimeline(transaction.index, self._estimates, transaction.now)
        releases: Sequence[ExpectedRelease] = self._timeline
        if self._has_released:
            releases = RemainingReleases(releases, transaction.snapshot.allocations)
        mark = transaction.checkpoint()
        gang = minimum_gang(key.gang)
        if has_equal_replicas(gang):
            found = self._earliest_counted(gang, releases, is_last=is_last)
        else:
            found = earliest_placement(
                transaction, releases, gang, lambda: find_placement(gang, transaction.snapshot)
            )
        if found is None:
            transaction.rollback(mark)
            return
        transaction.commit(mark)
        self._has_released = True
        number, placement = found
        at = releases[number - 1].at if number else transaction.now
        known = [one.expected_at for one in self._reservations.reservations]
        if at is not None and known and known[-1] is not None:
            at = max(at, known[-1])
        self._reserve(record, key, placement, None if None in known else at, freed=False)

    def _earliest_counted(
        self, gang: Gang, releases: Sequence[ExpectedRelease], *, is_last: bool
    ) -> tuple[int, Placement] | None:
        """Do as ``earliest_placement`` does; for the last starved job, release only what it needs."""
        fit = earliest_fit(gang, releases, self._transaction.snapshot)
        if fit is None:
            return None
        for release in releases[: fit.number]:
            relevant = [one for one in release.allocations if not is_last or one[1].node in fit.nodes]
            if relevant:
                self._transaction.release(release.record, relevant)
        found = find_placement(gang, self._transaction.snapshot)
        return None if found is None else (fit.number, found)

    def _reserve(
        self, record: JobRecord, key: SchedulingKey, found: Placement, at: int | None, *, freed: bool
    ) -> None:
        self._transaction.allocate(record, record.attempt + 1, found.replicas)
        reservation = Reservation(
            job_id=record.job_id,
            queue=key.queue,
            nodes=tuple(sorted({one.node for one in found.replicas})),
            expected_at=at,
            freed=freed,
        )
        self._reservations.add(ReservedCapacity(reservation, key, found, self._transaction.snapshot))

    def _has_reservation(self, record: JobRecord) -> bool:
        return any(one.job_id == record.job_id for one in self._reservations.reservations)

    def _beneficiaries(self) -> list[tuple[JobRecord, SchedulingKey]]:
        """Return the waiting jobs for which donors released replicas, the longest waiting first."""
        index = self._transaction.index
        found: dict[str, tuple[JobRecord, SchedulingKey]] = {}
        for donor, job_ids in index.beneficiaries.items():
            released_at = index.records[donor].resized_at
            for job_id in job_ids:
                if job_id in index.classes and self._transaction.is_eligible(job_id):
                    record = index.records[job_id]
                    if record.waiting_since <= released_at:
                        found[job_id] = (record, index.classes.class_of(job_id).key)
        return sorted(found.values(), key=lambda one: (one[0].waiting_since, one[0].job_id))

    def _starved(self) -> list[tuple[JobRecord, SchedulingKey]]:
        """Return the first job of every queue, if it is past the starvation threshold; the longest waiting first."""
        index, now = self._transaction.index, self._transaction.now
        first: dict[str, tuple[QueueKey, int, SchedulingClass]] = {}
        for one in index.classes:
            job = next((job for job in one.jobs if self._transaction.is_eligible(job[2])), None)
            if job is None:
                continue
            queue = one.key.queue
            threshold = index.tree.specs[queue].starvation_after_s * _US
            at = index.records[job[2]].waiting_since + threshold
            if (queue in first and first[queue][0] < job) or not self._waits_for_capacity(one.key):
                continue
            if at > now:
                self._starving_at.append((at, job[2]))
            else:
                first[queue] = (job, at, one)
        starved = sorted(first.values(), key=lambda one: (one[1], one[0]))
        return [(index.records[job[2]], one.key) for job, _, one in starved]

    def _waits_for_capacity(self, key: SchedulingKey) -> bool:
        """Return whether only free capacity keeps a job from starting, and the empty pool could hold it."""
        minimum = gang_amounts(minimum_gang(key.gang))
        within_limits = self._transaction.ledger.exceeded_limit(key.queue, minimum) is None
        return within_limits and self._transaction.is_feasible(key.gang)
