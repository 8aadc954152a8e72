"""Explanations: where a job is in its queue, why it has not started, and what would let it start.

An explanation is computed when a user asks for it, in a transaction that is rolled back, with the reservations of the last
scheduling cycle in force.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from muster_core.lifecycle import ACTIVE_PHASES
from muster_core.models import JobKind, JobRecord, Phase, QueuePolicy, Reason, Role
from muster_core.quantities import counted, listed
from muster_core.scheduling import reasons
from muster_core.scheduling.explain.remedies import Remedy, RemedyKind, remedies_for
from muster_core.scheduling.explain.what_if import WhatIf, WhatIfRun
from muster_core.scheduling.placement import (
    FILTERS,
    Gang,
    Miss,
    Placement,
    Shortfall,
    is_pinned,
    nearest_miss,
    place,
    place_more,
    to_reason,
)
from muster_core.scheduling.queues import (
    SchedulingKey,
    drained,
    exceeds_limit_alone,
    gang_within_limits,
    max_replica_amounts,
)
from muster_core.scheduling.reservations import (
    Reservation,
    ReservationCache,
    ReservationPlanner,
    Reservations,
    RuntimeEstimates,
)
from muster_core.scheduling.state import PoolIndex, Transaction, resizable, size_of, surplus

_AHEAD_NAMED = 20
_US = 1_000_000


class FilteredNodes(msgspec.Struct, frozen=True, kw_only=True):
    """``nodes`` nodes fail ``constraint`` before any other; ``message`` describes them."""

    constraint: str
    message: str
    nodes: int


class RoleSize(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a role of a running job: ``size`` replicas, ``wanted`` requested, between ``min`` and ``max``.

    ``surplus`` replicas may be removed while the job runs; ``can_add`` more fit now.
    """

    role: str
    size: int
    min: int
    wanted: int
    max: int
    surplus: int = 0
    can_add: int = 0


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is in its phase, and what would change that. Instants are in µs, 0 for none."""

    job_id: str
    name: str = ""
    phase: Phase
    reason: Reason
    queue: str = ""
    #: From 1, in the order in which the waiting jobs of the queue are tried; 0 if the job does not wait.
    position: int = 0
    #: The ids of the first jobs before it, of ``position - 1`` in all.
    ahead: tuple[str, ...] = ()
    #: The number of nodes in the pool.
    nodes: int = 0
    filtered: tuple[FilteredNodes, ...] = ()
    #: The resources of which the pool has too little free.
    missing: tuple[Miss, ...] = ()
    nearest_miss: str = ""
    #: Whether the empty pool could hold the job; None if it does not wait for capacity.
    feasible_when_empty: bool | None = None
    #: A restart is held back until then.
    not_before: int = 0
    #: The job's own reservation.
    reservation: Reservation | None = None
    reserved_since: int = 0
    #: The reservation of another job, in whose capacity the job would fit.
    blocked_by: Reservation | None = None
    blocked_since: int = 0
    expected_start: int | None = None
    #: What the expected start follows from, or why it is unknown.
    expected_from: str = ""
    #: The nearest first.
    remedies: tuple[Remedy, ...] = ()
    #: The roles of a running job.
    roles: tuple[RoleSize, ...] = ()
    notes: tuple[str, ...] = ()


class JobExplainer(msgspec.Struct, frozen=True, kw_only=True):
    """Explains jobs as of the last scheduling cycle, which ran at ``now`` (µs).

    ``reservations`` are those of that cycle, ``reserved_since`` (µs) is when each of them began, both by job id.
    """

    index: PoolIndex
    reservations: Mapping[str, Reservation]
    reserved_since: Mapping[str, int]
    runtime_estimates: RuntimeEstimates
    reservation_cache: ReservationCache
    feasible: dict[Gang, bool]
    now: int

    def explain(self, job_id: str) -> Explanation | None:
        """Explain a job; None if it is unknown or settled."""
        record = self.index.records.get(job_id)
        if record is None:
            return None
        explanation = Explanation(
            job_id=job_id,
            name=record.name,
            phase=record.phase,
            reason=_last_reason(record),
            queue=self._queue_of(record),
            nodes=len(self.index.snapshot.nodes),
            notes=tuple(_notes(record)),
        )
        if job_id in self.index.waiting:
            return self._explain_waiting(record, explanation)
        if record.phase in ACTIVE_PHASES:
            return msgspec.structs.replace(explanation, roles=self._role_sizes(record))
        if record.phase is Phase.SUSPENDED:
            return msgspec.structs.replace(explanation, remedies=(Remedy(kind=RemedyKind.RESUME),))
        return explanation

    def _explain_waiting(self, record: JobRecord, explanation: Explanation) -> Explanation:
        index = self.index
        own = index.waiting[record.job_id]
        before = [
            key
            for key in index.waiting.values()
            if key < own and self._queue_of(index.records[key[2]]) == explanation.queue
        ]
        explanation = msgspec.structs.replace(
            explanation,
            position=len(before) + 1,
            ahead=tuple(job_id for _, _, job_id in heapq.nsmallest(_AHEAD_NAMED, before)),
            not_before=index.delayed.get(record.job_id, 0),
        )
        reason = self._reason_other_than_capacity(record)
        if reason is None:
            return self._explain_capacity(record, explanation)
        queue = explanation.queue or (record.job.queue if record.job else "")
        return msgspec.structs.replace(explanation, reason=reason, remedies=remedies_for(reason, queue))

    def _reason_other_than_capacity(self, record: JobRecord) -> Reason | None:
        """Return what keeps a waiting job from being tried at all; None if only capacity, limits or reservations do."""
        job_id, index = record.job_id, self.index
        if job_id in index.builds.blocked:
            return index.builds.explain(record)
        if job_id in index.unknown_queue and record.job is not None:
            return reasons.no_such_queue(record.job.queue)
        if job_id not in index.classes:
            return _last_reason(record)
        holder = index.holder_of_name(record)
        if holder is not None:
            return reasons.name_in_use(record, holder)
        key = index.classes.class_of(job_id).key
        first = self._blocking_first(record, key)
        return reasons.behind_first(key.queue, first) if first is not None else None

    def _blocking_first(self, record: JobRecord, key: SchedulingKey) -> JobRecord | None:
        """Return the first job of a strict queue, if it is another one: it blocks the jobs behind it."""
        if self.index.tree.specs[key.queue].policy is not QueuePolicy.STRICT_FIFO:
            return None
        transaction = self._transaction()
        own = self.index.waiting[record.job_id]
        ahead = [
            job
            for one in self.index.classes
            if one.key.account == key.account
            and transaction.is_feasible(one.key.gang)
            and not exceeds_limit_alone(one.key, transaction.ledger)
            for job in one.jobs
            if job < own and transaction.is_eligible(job[2])
        ]
        return self.index.records[min(ahead)[2]] if ahead else None

    def _explain_capacity(self, record: JobRecord, explanation: Explanation) -> Explanation:
        """Explain a job that free capacity, a limit or a reservation keeps from starting."""
        transaction = self._transaction()
        key = self.index.classes.class_of(record.job_id).key
        mark = transaction.checkpoint()
        try:
            reservations = self._plan_reservations(transaction)
            run = WhatIfRun(transaction, reservations, record, key)
            contested = record.job_id not in self.reservations and (
                explanation.position > 1 or any(one.key.queue != key.queue for one in self.index.classes)
            )
            gang = gang_within_limits(key, transaction.ledger)
            if isinstance(gang, Reason):
                what_if = WhatIf(run, contested=contested)
                explanation = msgspec.structs.replace(
                    explanation, reason=gang, remedies=what_if.remedies(gang.code, None, None)
                )
                return self._with_reservation(explanation, None)
            found = run.diagnose(gang)
            if isinstance(found, Placement):
                return msgspec.structs.replace(explanation, feasible_when_empty=True)
            unreserved = place(gang, transaction.snapshot) if reservations.reservations else found
            blocked_by = None
            if isinstance(unreserved, Placement):
                nodes = {one.node for one in unreserved.replicas}
                blocked_by = max(reservations.reservations, key=lambda one: len(nodes & set(one.nodes)))
                holder = self.index.records[blocked_by.job_id].name
                reason = reasons.behind_reservation(holder, blocked_by.nodes)
            else:
                found = unreserved
                reason = to_reason(found)
                explanation = _with_shortfall(explanation, found)
            explanation = msgspec.structs.replace(
                explanation,
                reason=reason,
                feasible_when_empty=found.feasible_when_empty,
                remedies=WhatIf(run, contested=contested).remedies(reason.code, found, blocked_by),
            )
            return self._with_reservation(explanation, blocked_by)
        finally:
            transaction.rollback(mark)

    def _with_reservation(self, explanation: Explanation, blocked_by: Reservation | None) -> Explanation:
        record = self.index.records[explanation.job_id]
        own = self.reservations.get(record.job_id)
        return msgspec.structs.replace(
            explanation,
            reservation=own,
            reserved_since=self.reserved_since.get(record.job_id, 0) if own else 0,
            blocked_by=blocked_by,
            blocked_since=self.reserved_since.get(blocked_by.job_id, 0) if blocked_by else 0,
            expected_start=own.expected_at if own else None,
            expected_from=self._expected_from(record, explanation),
        )

    def _expected_from(self, record: JobRecord, explanation: Explanation) -> str:
        """Describe what the expected start of a job follows from, or why it is unknown."""
        if explanation.feasible_when_empty is None:
            return "unknown: the job starts when its queue is far enough below its limit"
        if not explanation.feasible_when_empty:
            return "never on the present nodes: the empty pool could not hold the job"
        own = self.reservations.get(record.job_id)
        if own is None:
            ahead = self.index.records[explanation.ahead[0]].name if explanation.ahead else ""
            return f"unknown: the job starts as soon as it fits; {self._why_not_reserved(record, ahead)}"
        if own.expected_at is None:
            return f"unknown: {self._why_unknown(own)}"
        if own.expected_at <= self.now:
            return "as soon as the terminating replicas have exited"
        return self._last_release(own, own.expected_at)

    def _why_not_reserved(self, record: JobRecord, ahead: str) -> str:
        threshold_s = self.index.tree.specs[self._queue_of(record)].starvation_after_s
        if record.waiting_since + threshold_s * _US > self.now:
            return f"after {threshold_s} s of waiting it gets a reservation"
        if ahead:
            return f"{ahead} gets a reservation first"
        return "no expected release frees enough capacity"

    def _why_unknown(self, reservation: Reservation) -> str:
        unknown = [record.name for record, end in self._expected_ends(reservation) if end is None]
        if unknown:
            have = "has" if len(unknown) == 1 else "have"
            return f"{listed(unknown)} {have} neither an active deadline nor an earlier run of that name"
        return "an earlier reservation has no expected start"

    def _last_release(self, reservation: Reservation, at: int) -> str:
        ends = [
            (end, record) for record, end in self._expected_ends(reservation) if end is not None and end <= at
        ]
        if not ends:
            return "when the jobs with earlier reservations start"
        end, last = max(ends, key=lambda one: (one[0], one[1].job_id))
        deadline = last.job.run.active_deadline_s if last.job else None
        by_deadline = deadline is not None and (last.active_from or self.now) + deadline * _US <= end
        source = "its active deadline" if by_deadline else "its earlier runs"
        others = f", after {counted(len(ends) - 1, 'other')} on its nodes" if len(ends) > 1 else ""
        return f"when {last.name} ends, estimated from {source}{others}"

    def _expected_ends(self, reservation: Reservation) -> Iterator[tuple[JobRecord, int | None]]:
        """Yield the jobs on the reserved nodes, except services, with their expected end."""
        nodes = frozenset(reservation.nodes)
        for job_id, allocations in sorted(self.index.allocations.items()):
            record = self.index.records[job_id]
            ends = record.phase in ACTIVE_PHASES and record.job and record.job.kind is not JobKind.SERVICE
            if ends and any(one.node in nodes for one in allocations.values()):
                yield record, self.runtime_estimates.expected_end(record, self.now)

    def _role_sizes(self, record: JobRecord) -> tuple[RoleSize, ...]:
        """Return the size of each role of an active job, and how far it may change."""
        if record.job is None:
            return ()
        transaction = self._transaction()
        mark = transaction.checkpoint()
        try:
            self._plan_reservations(transaction)
            spare = Counter(
                ref.role for ref, _ in surplus(record, self.index.allocations.get(record.job_id, {}))
            )
            return tuple(
                RoleSize(
                    role=role.name,
                    size=size_of(record, role.name),
                    min=role.min,
                    wanted=role.replicas,
                    max=role.max,
                    surplus=spare[role.name],
                    can_add=_can_add(record, role, transaction),
                )
                for role in record.job.roles
            )
        finally:
            transaction.rollback(mark)

    def _plan_reservations(self, transaction: Transaction) -> Reservations:
        """Enforce the reservations of the last cycle, if it gave any."""
        reservations = Reservations(transaction.snapshot)
        if self.reservations:
            ReservationPlanner(
                transaction, reservations, self.runtime_estimates, self.reservation_cache
            ).run()
        return reservations

    def _transaction(self) -> Transaction:
        return Transaction(index=self.index, feasible=self.feasible, now=self.now)

    def _queue_of(self, record: JobRecord) -> str:
        return (self.index.tree.queue_of(record.job) if record.job else None) or ""


def _can_add(record: JobRecord, role: Role, transaction: Transaction) -> int:
    """Return how many more replicas of ``role`` fit now, within the limits of the queue."""
    if record.job is None or is_pinned(role.name) or not resizable(record):
        return 0
    fits = len(place_more(record.job, record.replicas, role.name, role.max, transaction.snapshot))
    queue = transaction.index.tree.account_of(record)[0]
    needed = max_replica_amounts(role)
    while fits and transaction.ledger.exceeded_limit(queue, {k: v * fits for k, v in needed.items()}):
        fits -= 1
    return fits


def _with_shortfall(explanation: Explanation, shortfall: Shortfall) -> Explanation:
    return msgspec.structs.replace(
        explanation,
        filtered=tuple(
            FilteredNodes(constraint=name, message=FILTERS[name], nodes=nodes)
            for name, nodes in shortfall.filtered
        ),
        missing=() if shortfall.unmatched else shortfall.misses,
        nearest_miss=nearest_miss(shortfall),
    )


def _last_reason(record: JobRecord) -> Reason:
    return record.reason or Reason(code=record.phase.value)


def _notes(record: JobRecord) -> Iterator[str]:
    remaining = [one for one in record.replicas if not one.ended]
    if record.phase in ACTIVE_PHASES:
        terminating = sum(1 for one in remaining if one.terminating or one.attempt < record.attempt)
        if terminating:
            yield f"{counted(terminating, 'replica')} terminating"
    elif remaining and not drained(record):
        yield f"waits for {counted(len(remaining), 'replica')} of its last attempt to end"
    if record.cancel_requested:
        yield "its cancellation is in progress"
