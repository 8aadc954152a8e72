"""The state of one pool's scheduler: events in, instructions out, and nothing else.

State, stimulus, instructions: events change the state through ``observe`` and ``observe_node``; ``decide`` says what should
happen and changes nothing, because a decision counts only once its events are committed and come back.

How many wait that could start if there were room, and since when: what tells a scaler that growing others can wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from muster_core.events import CapacityChanged, JobPlaced, JobResized, JobWaiting, NodeChanged, StoredEvent
from muster_core.lifecycle import apply_event
from muster_core.models import JobRecord, Problem, QueueSpec
from muster_core.scheduling.cycle import SchedulingCycle
from muster_core.scheduling.explain import DIAGNOSIS_US_PER_CLASS, Explainer, Explanation
from muster_core.scheduling.placement import Gang, Snapshot, feasible_when_empty, gang_of
from muster_core.scheduling.queues import (
    QueueReport,
    QueueTree,
    SchedulingClass,
    gang_amounts,
    minimum_gang,
    problems_of,
    queue_reports,
)
from muster_core.scheduling.reservations import Reservation, ReservationCache, RuntimeEstimates
from muster_core.scheduling.resizing import ResizeRequests
from muster_core.scheduling.state import Instruction, InvariantBroken, PoolIndex, violations

_SETTLED_KEPT = 50_000


class PoolState:
    """The jobs that are not settled, the nodes of ``pool``, and what follows from both. Instants are microseconds.

    ``start_timeout_s`` is how long a gang, or who joins it, may take to start after its placement, where its job does not say; 0 is no
    bound. ``diagnosis_interval_us`` is how long why a shape finds no room is not looked at again, for each shape that waits; with 0 every
    decision looks at all of them.
    """

    def __init__(
        self, *, pool: str, start_timeout_s: int = 0, diagnosis_interval_us: int = DIAGNOSIS_US_PER_CLASS
    ) -> None:
        self.pool = pool
        self._look_every_us = diagnosis_interval_us
        self._snapshot = Snapshot()
        self._index = PoolIndex(self._snapshot, start_timeout_s=start_timeout_s)
        self._requests = ResizeRequests()
        self._settled: dict[str, None] = {}
        self._shrunk: frozenset[str] = frozenset()
        self._lowered: frozenset[str] = frozenset()
        self._feasible: dict[Gang, bool] = {}
        self._told_at: dict[str, int] = {}
        self._wake_at: int | None = None
        self._reservations: dict[str, Reservation] = {}
        self._kept_since: dict[str, int] = {}
        self._now = 0
        self._durations = RuntimeEstimates()
        self.remembered = ReservationCache()
        self._decided_at = 0

    @property
    def index(self) -> PoolIndex:
        """What the records say, as decisions look it up; to be read, and tried on inside a transaction that is rolled back."""
        return self._index

    @property
    def feasible(self) -> dict[Gang, bool]:
        """Which gangs the empty pool could hold, as far as anybody has asked."""
        return self._feasible

    @property
    def runtime_estimates(self) -> RuntimeEstimates:
        """How long jobs took."""
        return self._durations

    @property
    def decided_at(self) -> int:
        """The instant (µs) of the last placement or change of size, 0 where there was none."""
        return self._decided_at

    @property
    def records(self) -> dict[str, JobRecord]:
        """The records of the jobs that are not settled, by job id."""
        return dict(self._index.records)

    @property
    def rejected_proposals(self) -> int:
        """How many proposals were dropped: stale, out of bounds, superseded, or without room."""
        return self._requests.refused

    def record(self, job_id: str) -> JobRecord | None:
        """The record of a job, or None where it is not known or settled."""
        return self._index.records.get(job_id)

    def restore(self, records: Iterable[JobRecord]) -> None:
        """Start from the records that were folded elsewhere; events up to each record's sequence then change nothing.

        Of the settled ones only builds are of interest: others may wait for them.
        """
        for record in records:
            if record.settled:
                self._index.note_build(record)
                self._durations.note(record)
                continue
            self._decided_at = max(self._decided_at, record.placed_at, record.resized_at)
            self._put(record)
        self._lowered = self._index.ledger.over_limit()

    def observe(self, stored: StoredEvent) -> str | None:
        """Fold one event. Events of a job come in the order of their sequences; one that was seen before changes nothing.

        Returns why the event moved nothing where it should not have been, else None.
        """
        job_id = stored.job_id
        before = self._index.records.get(job_id)
        if job_id in self._settled or (before is not None and stored.sequence <= before.applied_sequence):
            return None
        applied_sequence = apply_event(before, stored)
        if applied_sequence.record is None:
            return applied_sequence.illegal
        if applied_sequence.illegal is None:
            self._note(stored)
        self._put(applied_sequence.record)
        return applied_sequence.illegal

    def take(self, record: JobRecord) -> None:
        """Take in what a job has become, however many events have made it so; for those who look, and do not decide."""
        self._decided_at = max(self._decided_at, record.placed_at, record.resized_at)
        self._put(record)

    def observe_node(self, changed: NodeChanged) -> None:
        """Take in what a node of this pool offers; events of other pools change nothing."""
        if changed.pool != self.pool:
            return
        if changed.gone:
            self._snapshot.drop_node(changed.node.name)
        else:
            self._snapshot.put_node(changed.node)
        self._feasible.clear()
        self._index.note_node()
        overfull = frozenset(self._snapshot.overfull())
        self._shrunk = (self._shrunk & overfull) | (overfull & {changed.node.name})

    def apply_queues(self, specs: Iterable[QueueSpec]) -> tuple[Problem, ...]:
        """Take ``specs`` as all the queues that there are; answers what is wrong with them, and then changes nothing.

        Jobs go to their queues of the new tree at once; nothing that runs is disturbed, also where it is above a new limit.
        """
        applied = tuple(specs)
        problems = problems_of(applied)
        if not problems:
            self._index.apply(QueueTree(applied))
            self._lowered = self._index.ledger.over_limit()
        return problems

    def decide(self, now: int) -> list[Instruction]:
        """What should happen now; the same state and instant give the same instructions, however often they are asked for.

        A proposal that finds no room is dropped and counted, since it would be refused again.
        """
        outcome = SchedulingCycle(
            index=self._index,
            requests=self._requests,
            feasible=self._feasible,
            reported_at=self._told_at,
            runtime_estimates=self._durations,
            now=now,
            diagnosis_interval_us=self._look_every_us,
            remembered=self.remembered,
        ).run()
        for job_id in outcome.refused:
            self._requests.refuse(job_id)
        self._wake_at = outcome.wake_at
        self._reservations = outcome.reservations
        self._kept_since = {job_id: self._kept_since.get(job_id, now) for job_id in outcome.reservations}
        self._now = now
        return list(outcome.instructions)

    def next_wake(self, now: int) -> int | None:
        """The next instant at which ``decide`` may say something new without any event, or None; it may lie in the past."""
        # What was due at the last decision has been decided on, unless the clock was set back since.
        decided = min(self._now, now)
        instants = [ready for ready in self._index.delayed.values() if ready > decided]
        instants += [due for due in self._index.starting.values() if due > decided]
        if self._wake_at is not None:
            instants.append(self._wake_at)
        return min(instants, default=None)

    def capacity(self, now: int) -> CapacityChanged:
        """The pool in totals, over the nodes that take new replicas."""
        number, oldest = backlog(self._index, self._could_start)
        return CapacityChanged(
            pool=self.pool,
            free=self._snapshot.free_total(),
            allocatable=self._snapshot.allocatable_total(),
            waiting=len(self._index.waiting),
            waiting_feasible=number,
            oldest_wait_at=0 if oldest is None else min(oldest, now),
            decided_at=self._decided_at,
        )

    def explain(self, job_id: str) -> Explanation | None:
        """Why the job is where it is, as of the last decision, or None where it is not known or settled."""
        return Explainer(
            index=self._index,
            reservations=self._reservations,
            since=self._kept_since,
            runtime_estimates=self._durations,
            feasible=self._feasible,
            now=self._now,
            remembered=self.remembered,
        ).explain(job_id)

    def queue_report(self) -> tuple[QueueReport, ...]:
        """What every queue holds, is due and waits for, by name."""
        index = self._index
        queue = {job_id: index.tree.account_of(record)[0] for job_id, record in index.records.items()}
        return queue_reports(
            index.ledger,
            (queue[job_id] for job_id in index.allocations),
            (
                (queue[job_id], index.records[job_id].waiting_since)
                for job_id in index.waiting
                if job_id not in index.unknown_queue
            ),
        )

    def queue_of(self, record: JobRecord) -> str:
        """The queue that a validated job is in, whatever it names; ``default`` answers for those whose queue is not there."""
        return self._index.tree.account_of(record)[0]

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """The room that the last decision keeps, in the order in which it was given."""
        return tuple(self._reservations.values())

    def violations(self) -> list[str]:
        """Every invariant that does not hold, in words; empty where all do."""
        return violations(self._index, shrunk=self._shrunk, lowered=self._lowered)

    def check_invariants(self) -> None:
        """Raise InvariantBroken where an invariant does not hold."""
        found = self.violations()
        if found:
            raise InvariantBroken("\n".join(found))

    def _put(self, record: JobRecord) -> None:
        self._index.put(record)
        if self._lowered:
            self._lowered &= self._index.ledger.over_limit()
        self._requests.settle(record)
        if record.settled:
            self._durations.note(record)
            self._told_at.pop(record.job_id, None)
            self._settled[record.job_id] = None
            if len(self._settled) > _SETTLED_KEPT:
                del self._settled[next(iter(self._settled))]

    def _note(self, stored: StoredEvent) -> None:
        match stored.event:
            case JobPlaced() | JobResized():
                self._decided_at = max(self._decided_at, stored.at)
            case JobWaiting():
                self._told_at[stored.job_id] = stored.at
            case _:
                pass
        self._requests.note(stored)

    def _could_start(self, gang: Gang) -> bool:
        known = self._feasible.get(gang)
        if known is None:
            known = self._feasible[gang] = feasible_when_empty(gang, self._snapshot)
        return known


class Backlog(NamedTuple):
    """``number`` jobs, the longest waiting of them since ``oldest`` (µs, None: nobody waits)."""

    number: int
    oldest: int | None


def backlog(index: PoolIndex, is_feasible: Callable[[Gang], bool]) -> Backlog:
    """The jobs that only wait for room, or for an end of their own, and that the empty pool could hold (``is_feasible``)."""
    number = 0
    since: list[int] = []
    for line in index.classes:
        needed = gang_amounts(minimum_gang(line.shape.gang))
        if is_feasible(line.shape.gang) and index.ledger.exceeded_limit(line.shape.queue, needed) is None:
            one = _of_line(line, index)
            number += one.number
            since += [] if one.oldest is None else [one.oldest]
    for job_id in index.draining:
        record = index.records[job_id]
        if record.job is not None and is_feasible(gang_of(record.job)):
            number += 1
            since.append(record.waiting_since)
    return Backlog(number, min(since, default=None))


def _of_line(line: SchedulingClass, index: PoolIndex) -> Backlog:
    if line.oldest is not None:
        return Backlog(len(line.keys), line.oldest)
    records = [index.records[job_id] for _, _, job_id in line.keys]
    waiting = [record for record in records if index.holder_of_name(record) is None]
    oldest = min((record.waiting_since for record in waiting), default=None)
    if len(waiting) == len(records):
        line.oldest = oldest
    return Backlog(len(waiting), oldest)
