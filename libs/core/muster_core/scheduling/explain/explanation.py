"""What there is to say of one job: why it is where it is, and what would change that.

Where a job stands in its queue, and why it has not started, computed when it is asked.

The question is answered as a decision would be: in a transaction that is rolled back, with the room that is kept for others kept.

When a waiting job is expected to start, and from what that is known; or why nobody knows.

How large the roles of a running job are, what they could give up, and what they could grow by now.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from muster_core.lifecycle.moves import ACTIVE_PHASES
from muster_core.models import JobKind, JobRecord, Phase, QueuePolicy, Reason, Role
from muster_core.scheduling import reasons
from muster_core.scheduling.explain.remedies import remedies, remedies_for_room
from muster_core.scheduling.explain.what_if import WhatIf, WhatIfTrial
from muster_core.scheduling.placement import Gang, Placement, Shortfall, place, place_more, to_reason
from muster_core.scheduling.placement.roles import is_pinned
from muster_core.scheduling.placement.shortfall import Miss, constraint_in_words, nearest_miss
from muster_core.scheduling.placement.words import counted, listed
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


class RuledOut(msgspec.Struct, frozen=True, kw_only=True):
    """``nodes`` fail ``constraint`` before any other; ``message`` says it of them in words."""

    constraint: str
    message: str
    nodes: int


class RoleSize(msgspec.Struct, frozen=True, kw_only=True):
    """A role of a running job: ``size`` members, between ``min`` and ``max``, ``wanted`` of them asked for.

    ``surplus`` of them may leave while the job goes on; ``room_for`` more would find room now.
    """

    role: str
    size: int
    min: int
    wanted: int
    max: int
    surplus: int = 0
    room_for: int = 0


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is where it is.

    ``position`` counts from 1 in the order in which the waiting jobs of its ``queue`` are tried, 0 where the job does not wait; ``ahead``
    are the ids of those before it, the first of them only where there are many (``position - 1`` in all). ``feasible_when_empty`` is None
    where it does not wait for room; else ``ruled_out`` (of ``nodes``), ``missing`` and ``nearest_miss`` say what of it there is not.
    ``not_before`` (µs) holds back a restart, 0 for none.

    ``reserved_nodes`` are those on which room is kept for it since ``reserved_since`` (µs), ``reserved_by_force`` where it is entitled
    to that room. ``behind`` is what is kept for another, in its way, since ``behind_since``. ``expected_start`` (µs) is known from, or
    not known because of, ``expected_from``. ``remedies`` say what would let it start now, or sooner; what begins with "would start now" has
    been tried on the pool. ``roles`` are those of a running job. ``notes`` are sentences about what else matters.
    """

    job_id: str
    name: str = ""
    phase: Phase
    reason: Reason
    queue: str = ""
    position: int = 0
    ahead: tuple[str, ...] = ()
    nodes: int = 0
    ruled_out: tuple[RuledOut, ...] = ()
    missing: tuple[Miss, ...] = ()
    nearest_miss: str = ""
    feasible_when_empty: bool | None = None
    not_before: int = 0
    reserved_nodes: tuple[str, ...] = ()
    reserved_since: int = 0
    reserved_by_force: bool = False
    behind: Reservation | None = None
    behind_since: int = 0
    expected_start: int | None = None
    expected_from: str = ""
    remedies: tuple[str, ...] = ()
    roles: tuple[RoleSize, ...] = ()
    notes: tuple[str, ...] = ()


_AHEAD_NAMED = 20


class Explainer:
    """Explains jobs of ``index`` as of the last decision, at ``now`` (µs): ``reservations`` are its, ``since`` (µs) when each began, by
    job id."""

    def __init__(
        self,
        *,
        index: PoolIndex,
        reservations: Mapping[str, Reservation],
        since: Mapping[str, int],
        runtime_estimates: RuntimeEstimates,
        feasible: dict[Gang, bool],
        now: int,
        remembered: ReservationCache,
    ) -> None:
        self._index = index
        self._reservations = reservations
        self._since = since
        self._durations = runtime_estimates
        self._feasible = feasible
        self._now = now
        self._remembered = remembered

    def explain(self, job_id: str) -> Explanation | None:
        """Why the job is where it is, or None where it is not known or settled."""
        record = self._index.records.get(job_id)
        if record is None:
            return None
        said = Explanation(
            job_id=job_id,
            name=record.name,
            phase=record.phase,
            reason=_said(record),
            queue=(self._index.tree.queue_of(record.job) if record.job else None) or "",
            nodes=len(self._index.snapshot.nodes),
            notes=tuple(_notes(record)),
        )
        if job_id in self._index.waiting:
            return self._waiting(record, said)
        if record.phase in ACTIVE_PHASES:
            return msgspec.structs.replace(said, roles=self._sizes(record))
        if record.phase is Phase.SUSPENDED:
            return msgspec.structs.replace(said, remedies=("resume it",))
        return said

    def _waiting(self, record: JobRecord, said: Explanation) -> Explanation:
        key = self._index.waiting[record.job_id]
        before = [
            other
            for other in self._index.waiting.values()
            if other < key and _queue_of(other[2], self._index) == said.queue
        ]
        said = msgspec.structs.replace(
            said,
            position=len(before) + 1,
            ahead=tuple(job_id for _, _, job_id in heapq.nsmallest(_AHEAD_NAMED, before)),
            not_before=self._index.delayed.get(record.job_id, 0),
        )
        reason = self._reason_apart_from_room(record)
        if reason is not None:
            return msgspec.structs.replace(said, reason=reason, remedies=remedies(reason, record))
        return self._for_room(record, said)

    def _reason_apart_from_room(self, record: JobRecord) -> Reason | None:
        """What keeps a waiting job from even being tried, or None where only room does."""
        job_id, index = record.job_id, self._index
        if job_id in index.builds.blocked:
            return index.builds.explain(record)
        if job_id in index.unknown_queue and record.job is not None:
            return reasons.no_such_queue(record.job.queue)
        if job_id not in index.classes:
            return _said(record)
        holder = index.holder_of_name(record)
        if holder is not None:
            return reasons.name_in_use(record, holder)
        shape = index.classes.class_of(job_id).shape
        first = self._strictly_first(record, shape)
        return reasons.behind_first(shape.queue, first) if first is not None else None

    def _strictly_first(self, record: JobRecord, shape: SchedulingKey) -> JobRecord | None:
        """The job that nobody passes, where the queue is strict and the job comes after it."""
        tree = self._index.tree
        if tree.specs[shape.queue].policy is not QueuePolicy.STRICT_FIFO:
            return None
        transaction = self._trial()
        own = self._index.waiting[record.job_id]
        keys = [
            key
            for line in self._index.classes
            if line.shape.account == shape.account
            and transaction.is_feasible(line.shape.gang)
            and not exceeds_limit_alone(line.shape, transaction.ledger)
            for key in line.keys
            if key < own and transaction.is_eligible(key[2])
        ]
        return self._index.records[min(keys)[2]] if keys else None

    def _for_room(self, record: JobRecord, said: Explanation) -> Explanation:
        """Explain a job that room, a limit or a reservation keeps from starting."""
        transaction = self._trial()
        shape = self._index.classes.class_of(record.job_id).shape
        mark = transaction.checkpoint()
        try:
            kept = Reservations(transaction.snapshot)
            if self._reservations:
                ReservationPlanner(transaction, kept, self._durations, self._remembered).run()
            chance = WhatIfTrial(transaction, kept, record, shape)
            gang = gang_within_limits(shape, transaction.ledger)
            found = gang if isinstance(gang, Reason) else chance.try_out(gang)
            behind = None
            if isinstance(found, Shortfall) and isinstance(gang, Gang) and kept.reservations:
                behind, found = self._behind_whom(kept.reservations, place(gang, transaction.snapshot), found)
            contested = said.position > 1 or any(
                line.shape.queue != shape.queue for line in self._index.classes
            )
            what_if = WhatIf(chance, contested=contested and record.job_id not in self._reservations)
            return self._with_room(said, what_if, found, behind)
        finally:
            transaction.rollback(mark)

    def _behind_whom(
        self, reservations: Sequence[Reservation], free: Placement | Shortfall, short: Shortfall
    ) -> tuple[Reservation | None, Shortfall]:
        """Whose kept room is in the way, if it would fit as ``free`` were none kept; else what is ``short`` even then."""
        if isinstance(free, Shortfall):
            return None, free
        nodes = {one.node for one in free.replicas}
        return max(reservations, key=lambda one: len(nodes & set(one.nodes))), short

    def _with_room(
        self,
        said: Explanation,
        what_if: WhatIf,
        found: Shortfall | Placement | Reason,
        behind: Reservation | None,
    ) -> Explanation:
        if isinstance(found, Placement):
            return msgspec.structs.replace(said, feasible_when_empty=True)
        shortfall = found if isinstance(found, Shortfall) else None
        if isinstance(found, Reason):
            reason = found
        elif behind is not None:
            reason = reasons.behind_reservation(self._index.records[behind.job_id].name, behind.nodes)
        else:
            reason = to_reason(found)
        feasible = shortfall.feasible_when_empty if shortfall is not None else None
        said = self._with_shortfall(said, shortfall) if behind is None else said
        said = self._with_reservation(said, behind, feasible=feasible)
        return msgspec.structs.replace(
            said,
            reason=reason,
            feasible_when_empty=feasible,
            remedies=remedies_for_room(reason, shortfall, what_if, behind, self._now),
        )

    def _with_shortfall(self, said: Explanation, shortfall: Shortfall | None) -> Explanation:
        if shortfall is None:
            return said
        return msgspec.structs.replace(
            said,
            ruled_out=tuple(
                RuledOut(constraint=name, message=constraint_in_words(name), nodes=nodes)
                for name, nodes in shortfall.ruled_out
            ),
            missing=() if shortfall.unmatched else shortfall.misses,
            nearest_miss=nearest_miss(shortfall),
        )

    def _with_reservation(
        self, said: Explanation, behind: Reservation | None, *, feasible: bool | None
    ) -> Explanation:
        record = self._index.records[said.job_id]
        kept = self._reservations.get(record.job_id)
        expecting = Expecting(self._index, self._reservations, self._durations, self._now)
        ahead = self._index.records[said.ahead[0]].name if said.ahead else ""
        return msgspec.structs.replace(
            said,
            reserved_nodes=kept.nodes if kept else (),
            reserved_since=self._since.get(record.job_id, 0) if kept else 0,
            reserved_by_force=kept.forced if kept else False,
            behind=behind,
            behind_since=self._since.get(behind.job_id, 0) if behind else 0,
            expected_start=kept.expected_at if kept else None,
            expected_from=expecting.known_from(record, feasible=feasible, ahead=ahead),
        )

    def _sizes(self, record: JobRecord) -> tuple[RoleSize, ...]:
        transaction = self._trial()
        mark = transaction.checkpoint()
        try:
            if self._reservations:
                ReservationPlanner(
                    transaction, Reservations(transaction.snapshot), self._durations, self._remembered
                ).run()
            return role_sizes(record, transaction)
        finally:
            transaction.rollback(mark)

    def _trial(self) -> Transaction:
        return Transaction(index=self._index, feasible=self._feasible, now=self._now)


def _queue_of(job_id: str, index: PoolIndex) -> str:
    job = index.records[job_id].job
    return (index.tree.queue_of(job) if job else None) or ""


def _said(record: JobRecord) -> Reason:
    return record.reason or Reason(code=record.phase.value)


def _notes(record: JobRecord) -> Iterator[str]:
    leaving = sum(
        1 for one in record.replicas if not one.ended and (one.leaving or one.attempt < record.attempt)
    )
    earlier = sum(1 for one in record.replicas if not one.ended)
    if record.phase in ACTIVE_PHASES:
        if leaving:
            yield f"{counted(leaving, 'replica')} on the way out"
    elif earlier and not drained(record):
        yield f"waits for the end of {counted(earlier, 'replica')} of its last attempt"
    if record.cancel_requested:
        yield "it is being cancelled"


_US = 1_000_000


class Expecting:
    """What is known of the starts of those who wait for room, at ``now`` (µs), with ``reservations`` by job id."""

    def __init__(
        self,
        index: PoolIndex,
        reservations: Mapping[str, Reservation],
        runtime_estimates: RuntimeEstimates,
        now: int,
    ) -> None:
        self._index = index
        self._reservations = reservations
        self._durations = runtime_estimates
        self._now = now

    def known_from(self, record: JobRecord, *, feasible: bool | None, ahead: str) -> str:
        """From what the start of a job is known, or why it is not. ``feasible`` is whether the empty pool could hold it, None where a limit
        keeps it; ``ahead`` is the first of its queue before it."""
        if feasible is None:
            return "not known: it starts when its queue has given back enough"
        if not feasible:
            return "not as the nodes are: the empty pool could not hold it"
        kept = self._reservations.get(record.job_id)
        if kept is None:
            return f"not known: {self._why_unkept(record, ahead)}"
        if kept.expected_at is None:
            return f"not known: {self._why_unknown(kept)}"
        if kept.expected_at <= self._now:
            return "as soon as what is on its way out has gone"
        return self._last_to_end(kept, kept.expected_at)

    def _why_unkept(self, record: JobRecord, ahead: str) -> str:
        queue = self._index.tree.queue_of(record.job) if record.job else None
        patience = self._index.tree.specs[queue].starvation_after_s if queue else 0
        if record.waiting_since + patience * _US > self._now:
            return f"it starts as soon as it fits; from {patience} s of waiting on, room is kept for it"
        if ahead:
            return f"it starts as soon as it fits; room is kept for {ahead} first"
        return "it starts as soon as it fits; no end of what runs is known to make room for it"

    def _why_unknown(self, kept: Reservation) -> str:
        unknown = [record.name for record, end in self._on(kept) if end is None]
        if unknown:
            end = "ends" if len(unknown) == 1 else "end"
            return f"nobody can tell when {listed(unknown)} {end}: no active deadline, no earlier run of that name"
        return "it comes after another whose start is not known"

    def _last_to_end(self, kept: Reservation, at: int) -> str:
        ends = [(end, record) for record, end in self._on(kept) if end is not None and end <= at]
        if not ends:
            return "from the starts of those who come before it"
        end, last = max(ends, key=lambda one: (one[0], one[1].job_id))
        how = "active deadline" if self._is_deadline(last, end) else "earlier runs"
        others = f", after {counted(len(ends) - 1, 'other')} on its nodes" if len(ends) > 1 else ""
        return f"when {last.name} ends, by its {how}{others}"

    def _on(self, kept: Reservation) -> Iterator[tuple[JobRecord, int | None]]:
        """What runs on the nodes of a reservation, and when it is expected to end."""
        nodes = frozenset(kept.nodes)
        for job_id, allocations in sorted(self._index.allocations.items()):
            record = self._index.records[job_id]
            if _ends_some_time(record) and any(hold.node in nodes for hold in allocations.values()):
                yield record, self._durations.expected_end(record, self._now)

    def _is_deadline(self, record: JobRecord, end: int) -> bool:
        deadline = record.job.run.active_deadline_s if record.job else None
        return deadline is not None and (record.active_from or self._now) + deadline * _US <= end


def _ends_some_time(record: JobRecord) -> bool:
    return record.phase in ACTIVE_PHASES and record.job is not None and record.job.kind is not JobKind.SERVICE


def role_sizes(record: JobRecord, transaction: Transaction) -> tuple[RoleSize, ...]:
    """Every role of a job that has members, in the job's order."""
    if record.job is None:
        return ()
    spare = Counter(
        ref.role for ref, _ in surplus(record, transaction.index.allocations.get(record.job_id, {}))
    )
    return tuple(
        RoleSize(
            role=role.name,
            size=size_of(record, role.name),
            min=role.min,
            wanted=role.replicas,
            max=role.max,
            surplus=spare[role.name],
            room_for=_room_for(record, role, transaction),
        )
        for role in record.job.roles
    )


def _room_for(record: JobRecord, role: Role, transaction: Transaction) -> int:
    """How many more would find room now, as far as the limits of the queue allow."""
    if record.job is None or is_pinned(role.name) or not resizable(record):
        return 0
    fits = len(place_more(record.job, record.replicas, role.name, role.max, transaction.snapshot))
    queue = transaction.index.tree.account_of(record)[0]
    needed = max_replica_amounts(role)
    while fits and transaction.ledger.exceeded_limit(
        queue, {name: amount * fits for name, amount in needed.items()}
    ):
        fits -= 1
    return fits
