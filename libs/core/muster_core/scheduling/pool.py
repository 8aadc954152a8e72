"""The state of one pool's scheduler: events in, instructions out.

``observe`` and ``observe_node`` change the state. ``decide`` returns what should happen and changes nothing: an instruction
takes effect when its event is committed and observed.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster_core.events import (
    CapacityChanged,
    JobAdopted,
    JobPlaced,
    JobResized,
    JobWaiting,
    NodeChanged,
    StoredEvent,
)
from muster_core.lifecycle import apply_event
from muster_core.models import JobRecord, Problem, QueueSpec
from muster_core.scheduling.cycle import SchedulingCycle
from muster_core.scheduling.explain import DIAGNOSIS_US_PER_CLASS, Explanation, JobExplainer
from muster_core.scheduling.placement import Gang, Snapshot, gang_of
from muster_core.scheduling.queues import (
    QueueReport,
    QueueTree,
    SchedulingClass,
    gang_amounts,
    minimum_gang,
    queue_reports,
    validate_queues,
)
from muster_core.scheduling.reservations import Reservation, ReservationCache, RuntimeEstimates
from muster_core.scheduling.resizing import ResizeRequests
from muster_core.scheduling.state import Instruction, InvariantBroken, PoolIndex, Transaction, violations

_MOST_SETTLED = 50_000


class PoolState:
    """The unsettled jobs and the nodes of ``pool``. Instants are in µs.

    Args:
        pool: The name of the pool.
        start_timeout_s: How long a gang, or a replica added to it, may take to start if its job does not specify it; 0 for
            no limit.
        diagnosis_interval_us: How long a diagnosis is valid, for each scheduling class; 0 diagnoses all in every cycle.
    """

    def __init__(
        self, *, pool: str, start_timeout_s: int = 0, diagnosis_interval_us: int = DIAGNOSIS_US_PER_CLASS
    ) -> None:
        self.pool = pool
        self._diagnosis_interval_us = diagnosis_interval_us
        self._snapshot = Snapshot()
        #: To be read, and to be changed in transactions that are rolled back.
        self.index = PoolIndex(self._snapshot, start_timeout_s=start_timeout_s)
        self._requests = ResizeRequests()
        self._settled: dict[str, None] = {}
        self._shrunk_nodes: frozenset[str] = frozenset()
        self._lowered_queues: frozenset[str] = frozenset()
        #: Which gangs the empty pool could hold, as far as they were asked for.
        self.feasible: dict[Gang, bool] = {}
        self._reported_at: dict[str, int] = {}
        self._wake_at: int | None = None
        self._reservations: dict[str, Reservation] = {}
        self._reserved_since: dict[str, int] = {}
        self._now = 0
        #: How long jobs are expected to run.
        self.runtime_estimates = RuntimeEstimates()
        #: The reservations planned last, for cycles, explanations and autoscaling.
        self.reservation_cache = ReservationCache()
        #: The instant of the last placement or resize, 0 for none.
        self.decided_at = 0

    @property
    def records(self) -> dict[str, JobRecord]:
        """The unsettled records by job id."""
        return dict(self.index.records)

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """The reservations of the last cycle, in the order in which they were given."""
        return tuple(self._reservations.values())

    @property
    def rejected_proposals(self) -> int:
        """How many proposals were rejected: stale, out of bounds, superseded, or without capacity."""
        return self._requests.rejected

    def record(self, job_id: str) -> JobRecord | None:
        """Return the record of a job, or None if it is unknown or settled."""
        return self.index.records.get(job_id)

    def restore(self, records: Iterable[JobRecord]) -> None:
        """Start from ``records``; events up to the sequence of a record then change nothing.

        Settled records matter as builds only.
        """
        for record in records:
            if record.settled:
                self.observe_settled(record)
            else:
                self.put_record(record)
        self._lowered_queues = self.index.ledger.over_limit()

    def observe_settled(self, record: JobRecord) -> None:
        """Take note of a settled job of the past: of its run time, and of its end if other jobs wait for it as their build."""
        self.index.observe_build(record)
        self.runtime_estimates.observe(record)

    def observe(self, stored: StoredEvent) -> str | None:
        """Apply one event; events of a job arrive in the order of their sequences, and repeated ones change nothing.

        Returns:
            Why the event is an invalid transition, or None.
        """
        job_id = stored.job_id
        before = self.index.records.get(job_id)
        if job_id in self._settled or (before is not None and stored.sequence <= before.applied_sequence):
            return None
        applied = apply_event(before, stored)
        if applied.record is None:
            return applied.invalid
        if applied.invalid is None:
            self._observe_decision(stored)
        self._put(applied.record)
        if isinstance(stored.event, JobAdopted):
            # Its replicas run already: they may exceed what their nodes and its queue have free.
            nodes = {replica.node for replica in applied.record.replicas}
            self._shrunk_nodes |= nodes.intersection(self._snapshot.overcommitted())
            self._lowered_queues |= self.index.ledger.over_limit()
        return applied.invalid

    def put_record(self, record: JobRecord) -> None:
        """Replace the record of a job as a whole, however many events that takes."""
        self.decided_at = max(self.decided_at, record.placed_at, record.resized_at)
        self._put(record)

    def observe_node(self, changed: NodeChanged) -> None:
        """Apply the change of a node; nodes of other pools change nothing."""
        if changed.pool != self.pool:
            return
        if changed.gone:
            self._snapshot.drop_node(changed.node.name)
        else:
            self._snapshot.put_node(changed.node)
        self.feasible.clear()
        self.index.node_changed()
        overcommitted = frozenset(self._snapshot.overcommitted())
        self._shrunk_nodes = (self._shrunk_nodes & overcommitted) | (overcommitted & {changed.node.name})

    def apply_queues(self, specs: Iterable[QueueSpec]) -> tuple[Problem, ...]:
        """Replace the queues of the pool, and return the problems of ``specs``; with a problem nothing changes.

        Waiting jobs move to their new queues at once. Running jobs continue, even above a new limit.
        """
        applied = tuple(specs)
        problems = validate_queues(applied)
        if not problems:
            self.index.apply_tree(QueueTree(applied))
            self._lowered_queues = self.index.ledger.over_limit()
        return problems

    def decide(self, now: int) -> list[Instruction]:
        """Run a scheduling cycle; the same state and instant give the same instructions, however often it runs.

        Proposals that do not fit are rejected and counted.
        """
        result = SchedulingCycle(
            index=self.index,
            requests=self._requests,
            feasible=self.feasible,
            reported_at=self._reported_at,
            runtime_estimates=self.runtime_estimates,
            reservation_cache=self.reservation_cache,
            now=now,
            diagnosis_interval_us=self._diagnosis_interval_us,
        ).run()
        for job_id in result.rejected:
            self._requests.reject(job_id)
        self._wake_at = result.wake_at
        self._reservations = result.reservations
        self._reserved_since = {
            job_id: self._reserved_since.get(job_id, now) for job_id in result.reservations
        }
        self._now = now
        return list(result.instructions)

    def next_wake(self, now: int) -> int | None:
        """Return when ``decide`` may give new instructions without any event, or None; it may be in the past."""
        # What was due at the last cycle was decided then, unless the clock was set back since.
        decided = min(self._now, now)
        instants = [ready for ready in self.index.delayed.values() if ready > decided]
        instants += [due for due in self.index.starting.values() if due > decided]
        if self._wake_at is not None:
            instants.append(self._wake_at)
        return min(instants, default=None)

    def capacity(self, now: int) -> CapacityChanged:
        """Return the totals of the pool, over the nodes that take new replicas."""
        number, oldest = self._waiting_feasible(now)
        return CapacityChanged(
            pool=self.pool,
            free=self._snapshot.free_total(),
            allocatable=self._snapshot.allocatable_total(),
            waiting=len(self.index.waiting),
            waiting_feasible=number,
            oldest_wait_at=0 if oldest is None else min(oldest, now),
            decided_at=self.decided_at,
        )

    def explain(self, job_id: str) -> Explanation | None:
        """Explain a job as of the last cycle, or return None if it is unknown or settled."""
        return JobExplainer(
            index=self.index,
            reservations=self._reservations,
            reserved_since=self._reserved_since,
            runtime_estimates=self.runtime_estimates,
            reservation_cache=self.reservation_cache,
            feasible=self.feasible,
            now=self._now,
        ).explain(job_id)

    def queue_report(self) -> tuple[QueueReport, ...]:
        """Report on every queue, by name."""
        index = self.index
        queue = {job_id: self.queue_of(record) for job_id, record in index.records.items()}
        waiting = (job_id for job_id in index.waiting if job_id not in index.unknown_queue)
        return queue_reports(
            index.ledger,
            (queue[job_id] for job_id in index.allocations),
            ((queue[job_id], index.records[job_id].waiting_since) for job_id in waiting),
        )

    def queue_of(self, record: JobRecord) -> str:
        """Return the queue to which a validated job is charged; ``default`` if it names an unknown queue."""
        return self.index.tree.account_of(record)[0]

    def violations(self) -> list[str]:
        """Return every invariant that does not hold, in words."""
        return violations(self.index, shrunk_nodes=self._shrunk_nodes, lowered_queues=self._lowered_queues)

    def check_invariants(self) -> None:
        """Check every invariant.

        Raises:
            InvariantBroken: An invariant does not hold.
        """
        found = self.violations()
        if found:
            raise InvariantBroken("\n".join(found))

    def _put(self, record: JobRecord) -> None:
        self.index.put(record)
        if self._lowered_queues:
            self._lowered_queues &= self.index.ledger.over_limit()
        self._requests.update(record)
        if record.settled:
            self.runtime_estimates.observe(record)
            self._reported_at.pop(record.job_id, None)
            self._settled[record.job_id] = None
            if len(self._settled) > _MOST_SETTLED:
                del self._settled[next(iter(self._settled))]

    def _observe_decision(self, stored: StoredEvent) -> None:
        match stored.event:
            case JobPlaced() | JobResized():
                self.decided_at = max(self.decided_at, stored.at)
            case JobWaiting():
                self._reported_at[stored.job_id] = stored.at
            case _:
                pass
        self._requests.observe(stored)

    def _waiting_feasible(self, now: int) -> tuple[int, int | None]:
        """Return how many jobs wait for capacity only and fit the empty pool, and since when the first waits (µs).

        A scaler postpones growth while there are any.
        """
        index = self.index
        transaction = Transaction(index=index, feasible=self.feasible, now=now)
        number = 0
        since: list[int] = []
        for one in index.classes:
            needed = gang_amounts(minimum_gang(one.key.gang))
            within_limits = index.ledger.exceeded_limit(one.key.queue, needed) is None
            if transaction.is_feasible(one.key.gang) and within_limits:
                jobs, oldest = self._oldest_wait(one)
                number += jobs
                since += [] if oldest is None else [oldest]
        for job_id in index.draining:
            record = index.records[job_id]
            if record.job is not None and transaction.is_feasible(gang_of(record.job)):
                number += 1
                since.append(record.waiting_since)
        return number, min(since, default=None)

    def _oldest_wait(self, one: SchedulingClass) -> tuple[int, int | None]:
        """Return how many jobs of a class hold their name, and the start of the longest wait among them (µs)."""
        if one.oldest_wait is not None:
            return len(one.jobs), one.oldest_wait
        records = [self.index.records[job_id] for _, _, job_id in one.jobs]
        waiting = [record for record in records if self.index.holder_of_name(record) is None]
        oldest = min((record.waiting_since for record in waiting), default=None)
        if len(waiting) == len(records):
            one.oldest_wait = oldest
        return len(waiting), oldest
