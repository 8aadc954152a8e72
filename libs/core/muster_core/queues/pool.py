"""The state of one pool's scheduler: facts in, instructions out, and nothing else.

State, stimulus, instructions: facts change the state through ``observe`` and ``observe_node``; ``decide`` says what should
happen and changes nothing, because a decision counts only once its facts are committed and come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from muster_core.facts import CapacityChanged, JobPlaced, JobResized, JobWaiting, NodeChanged, Stamped
from muster_core.lifecycle import fold
from muster_core.models import JobRecord, Reason
from muster_core.placement import Gang, Shortfall, Snapshot, feasible_when_empty, gang_of, place, to_reason
from muster_core.queues import reasons
from muster_core.queues.decision import Decision
from muster_core.queues.explain import Explanation
from muster_core.queues.index import PoolIndex
from muster_core.queues.instructions import Instruction
from muster_core.queues.invariants import InvariantBroken, violations
from muster_core.queues.requests import Requests

_SETTLED_KEPT = 50_000
_AHEAD_NAMED = 20


class PoolState:
    """The jobs that are not settled, the nodes of ``pool``, and what follows from both. Instants are microseconds."""

    def __init__(self, *, pool: str) -> None:
        self.pool = pool
        self._snapshot = Snapshot()
        self._index = PoolIndex(self._snapshot)
        self._requests = Requests()
        self._settled: dict[str, None] = {}
        self._shrunk: frozenset[str] = frozenset()
        self._feasible: dict[Gang, bool] = {}
        self._told_at: dict[str, int] = {}
        self._retell_at: int | None = None
        self._decided_at = 0

    @property
    def records(self) -> dict[str, JobRecord]:
        """The records of the jobs that are not settled, by job id."""
        return dict(self._index.records)

    @property
    def refused_proposals(self) -> int:
        """How many proposals were dropped: stale, out of bounds, superseded, or without room."""
        return self._requests.refused

    def record(self, job_id: str) -> JobRecord | None:
        """The record of a job, or None where it is not known or settled."""
        return self._index.records.get(job_id)

    def restore(self, records: Iterable[JobRecord]) -> None:
        """Start from the records that were folded elsewhere; facts up to each record's sequence then change nothing."""
        for record in records:
            self._decided_at = max(self._decided_at, record.placed_at, record.resized_at)
            self._put(record)

    def observe(self, stamped: Stamped) -> str | None:
        """Fold one fact. Facts of a job come in the order of their sequences; one that was seen before changes nothing.

        Returns why the fact moved nothing where it should not have been, else None.
        """
        job_id = stamped.job_id
        before = self._index.records.get(job_id)
        if job_id in self._settled or (before is not None and stamped.sequence <= before.folded):
            return None
        folded = fold(before, stamped)
        if folded.record is None:
            return folded.illegal
        if folded.illegal is None:
            self._note(stamped)
        self._put(folded.record)
        return folded.illegal

    def observe_node(self, changed: NodeChanged) -> None:
        """Take in what a node of this pool offers; facts of other pools change nothing."""
        if changed.pool != self.pool:
            return
        if changed.gone:
            self._snapshot.drop_node(changed.node.name)
        else:
            self._snapshot.put_node(changed.node)
        self._feasible.clear()
        overfull = frozenset(self._snapshot.overfull())
        self._shrunk = (self._shrunk & overfull) | (overfull & {changed.node.name})

    def decide(self, now: int) -> list[Instruction]:
        """What should happen now; the same state and instant give the same instructions, however often they are asked for.

        A proposal that finds no room is dropped and counted, since it would be refused again.
        """
        outcome = Decision(
            index=self._index,
            requests=self._requests,
            feasible=self._feasible,
            told_at=self._told_at,
            now=now,
        ).run()
        for job_id in outcome.refused:
            self._requests.refuse(job_id)
        self._retell_at = outcome.retell_at
        return list(outcome.instructions)

    def next_wake(self, now: int) -> int | None:
        """The next instant at which ``decide`` may say something new without any fact, or None; it may lie in the past."""
        instants = [instant for instant in self._index.delayed.values() if instant > now]
        if self._retell_at is not None:
            instants.append(self._retell_at)
        return min(instants, default=None)

    def capacity(self, now: int) -> CapacityChanged:
        """The pool in totals, over the nodes that take new replicas."""
        since = [self._index.records[job_id].waiting_since for job_id in self._feasible_waiting()]
        return CapacityChanged(
            pool=self.pool,
            free=self._snapshot.free_total(),
            allocatable=self._snapshot.allocatable_total(),
            waiting=len(self._index.waiting),
            waiting_feasible=len(since),
            oldest_wait_at=min((min(instant, now) for instant in since), default=0),
            decided_at=self._decided_at,
        )

    def explain(self, job_id: str) -> Explanation | None:
        """Why the job is where it is, or None where it is not known or settled."""
        record = self._index.records.get(job_id)
        if record is None:
            return None
        key = self._index.waiting.get(job_id)
        if key is None:
            return Explanation(job_id=job_id, phase=record.phase, reason=_said(record))
        ahead = sorted(other for other in self._index.waiting.values() if other < key)
        reason, feasible = self._reason_to_wait(record)
        return Explanation(
            job_id=job_id,
            phase=record.phase,
            reason=reason,
            position=len(ahead) + 1,
            ahead=tuple(other for _, _, other in ahead[:_AHEAD_NAMED]),
            feasible_when_empty=feasible,
            not_before=self._index.delayed.get(job_id, 0),
        )

    def violations(self) -> list[str]:
        """Every invariant that does not hold, in words; empty where all do."""
        return violations(self._index, shrunk=self._shrunk)

    def check_invariants(self) -> None:
        """Raise InvariantBroken where an invariant does not hold."""
        found = self.violations()
        if found:
            raise InvariantBroken("\n".join(found))

    def _put(self, record: JobRecord) -> None:
        self._index.put(record)
        self._requests.settle(record)
        if record.settled:
            self._told_at.pop(record.job_id, None)
            self._settled[record.job_id] = None
            if len(self._settled) > _SETTLED_KEPT:
                del self._settled[next(iter(self._settled))]

    def _note(self, stamped: Stamped) -> None:
        match stamped.fact:
            case JobPlaced() | JobResized():
                self._decided_at = max(self._decided_at, stamped.at)
            case JobWaiting():
                self._told_at[stamped.job_id] = stamped.at
            case _:
                pass
        self._requests.note(stamped)

    def _feasible_waiting(self) -> Iterator[str]:
        """The jobs that only wait for room, or for an end of their own, and that the empty pool could hold."""
        index = self._index
        for line in index.lines:
            if self._could_start(line.gang):
                for _, _, job_id in line.keys:
                    if index.holder_of_name(index.records[job_id]) is None:
                        yield job_id
        for job_id in index.waiting:
            job = index.records[job_id].job
            if job_id in index.lines or job_id in index.suspended or job is None:
                continue
            if self._could_start(gang_of(job)):
                yield job_id

    def _could_start(self, gang: Gang) -> bool:
        known = self._feasible.get(gang)
        if known is None:
            known = self._feasible[gang] = feasible_when_empty(gang, self._snapshot)
        return known

    def _reason_to_wait(self, record: JobRecord) -> tuple[Reason, bool | None]:
        if record.job is None or record.job_id not in self._index.lines:
            return (reasons.suspended() if record.job_id in self._index.suspended else _said(record)), None
        holder = self._index.holder_of_name(record)
        if holder is not None:
            return reasons.name_in_use(record, holder), None
        found = place(gang_of(record.job), self._snapshot)
        if isinstance(found, Shortfall):
            return to_reason(found), found.feasible_when_empty
        return _said(record), True


def _said(record: JobRecord) -> Reason:
    return record.reason or Reason(code=record.phase.value)
