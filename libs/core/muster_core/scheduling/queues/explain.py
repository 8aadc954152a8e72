"""Where a job stands in its queue, and why it has not started, computed when it is asked.

The question is answered as a decision would be: in a transaction that is rolled back, with the room that is kept for others kept.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from muster_core.lifecycle.moves import ACTIVE_PHASES
from muster_core.models import JobRecord, Phase, QueuePolicy, Reason
from muster_core.scheduling.placement import Gang, Placement, Shortfall, place, to_reason
from muster_core.scheduling.placement.shortfall import constraint_in_words, nearest_miss
from muster_core.scheduling.placement.words import counted
from muster_core.scheduling.queues import reasons
from muster_core.scheduling.queues.chance import Chance
from muster_core.scheduling.queues.durations import Durations
from muster_core.scheduling.queues.expecting import Expecting
from muster_core.scheduling.queues.explanation import Explanation, RoleSize, RuledOut
from muster_core.scheduling.queues.index import PoolIndex
from muster_core.scheduling.queues.keeping import KeptRoom, Reservation
from muster_core.scheduling.queues.lines import Shape
from muster_core.scheduling.queues.order import drained
from muster_core.scheduling.queues.remedies import remedies, remedies_for_room
from muster_core.scheduling.queues.reserving import Reserving
from muster_core.scheduling.queues.roles import role_sizes
from muster_core.scheduling.queues.serving import allowed_size, exceeds_alone
from muster_core.scheduling.queues.transaction import Transaction
from muster_core.scheduling.queues.whatif import WhatIf

_AHEAD_NAMED = 20


class Explaining:
    """Explains jobs of ``index`` as of the last decision, at ``now`` (µs): ``reservations`` are its, ``since`` (µs) when each began, by
    job id."""

    def __init__(
        self,
        *,
        index: PoolIndex,
        reservations: Mapping[str, Reservation],
        since: Mapping[str, int],
        durations: Durations,
        feasible: dict[Gang, bool],
        now: int,
    ) -> None:
        self._index = index
        self._reservations = reservations
        self._since = since
        self._durations = durations
        self._feasible = feasible
        self._now = now

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
        if job_id in index.homeless and record.job is not None:
            return reasons.no_such_queue(record.job.queue)
        if job_id not in index.lines:
            return _said(record)
        holder = index.holder_of_name(record)
        if holder is not None:
            return reasons.name_in_use(record, holder)
        shape = index.lines.line_of(job_id).shape
        first = self._strictly_first(record, shape)
        return reasons.behind_first(shape.queue, first) if first is not None else None

    def _strictly_first(self, record: JobRecord, shape: Shape) -> JobRecord | None:
        """The job that nobody passes, where the queue is strict and the job comes after it."""
        tree = self._index.tree
        if tree.specs[shape.queue].policy is not QueuePolicy.STRICT_FIFO:
            return None
        transaction = self._trial()
        own = self._index.waiting[record.job_id]
        keys = [
            key
            for line in self._index.lines
            if line.shape.account == shape.account
            and transaction.could_start(line.shape.gang)
            and not exceeds_alone(line.shape, transaction.ledger)
            for key in line.keys
            if key < own and transaction.may_start(key[2])
        ]
        return self._index.records[min(keys)[2]] if keys else None

    def _for_room(self, record: JobRecord, said: Explanation) -> Explanation:
        """Explain a job that room, a limit or a reservation keeps from starting."""
        transaction = self._trial()
        shape = self._index.lines.line_of(record.job_id).shape
        mark = transaction.checkpoint()
        try:
            kept = KeptRoom(transaction.snapshot)
            if self._reservations:
                Reserving(transaction, kept, self._durations).run()
            chance = Chance(transaction, kept, record, shape)
            gang = allowed_size(shape, transaction.ledger)
            found = gang if isinstance(gang, Reason) else chance.try_out(gang)
            behind = None
            if isinstance(found, Shortfall) and isinstance(gang, Gang) and kept.reservations:
                behind, found = self._behind_whom(kept.reservations, place(gang, transaction.snapshot), found)
            contested = said.position > 1 or any(
                line.shape.queue != shape.queue for line in self._index.lines
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
                Reserving(transaction, KeptRoom(transaction.snapshot), self._durations).run()
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
