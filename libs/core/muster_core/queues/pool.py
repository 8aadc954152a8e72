"""The state of one pool's scheduler: facts in, instructions out, and nothing else.

State, stimulus, instructions: facts change the state through ``observe`` and ``observe_node``; ``decide`` says what should
happen and changes nothing, because a decision counts only once its facts are committed and come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from muster_core.facts import CapacityChanged, JobPlaced, JobResized, JobWaiting, NodeChanged, Stamped
from muster_core.lifecycle import fold
from muster_core.models import JobRecord, Problem, QueueSpec
from muster_core.placement import Gang, Snapshot, feasible_when_empty, gang_of
from muster_core.queues.checks import problems_of
from muster_core.queues.decision import Decision
from muster_core.queues.durations import Durations
from muster_core.queues.explain import Explanation, explain
from muster_core.queues.index import PoolIndex
from muster_core.queues.instructions import Instruction
from muster_core.queues.invariants import InvariantBroken, violations
from muster_core.queues.keeping import Reservation
from muster_core.queues.report import QueueReport, report
from muster_core.queues.requests import Requests
from muster_core.queues.sizes import gang_amounts, smallest
from muster_core.queues.tree import QueueTree

_SETTLED_KEPT = 50_000


class PoolState:
    """The jobs that are not settled, the nodes of ``pool``, and what follows from both. Instants are microseconds."""

    def __init__(self, *, pool: str) -> None:
        self.pool = pool
        self._snapshot = Snapshot()
        self._index = PoolIndex(self._snapshot)
        self._requests = Requests()
        self._settled: dict[str, None] = {}
        self._shrunk: frozenset[str] = frozenset()
        self._lowered: frozenset[str] = frozenset()
        self._feasible: dict[Gang, bool] = {}
        self._told_at: dict[str, int] = {}
        self._wake_at: int | None = None
        self._reservations: dict[str, Reservation] = {}
        self._durations = Durations()
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
        """Start from the records that were folded elsewhere; facts up to each record's sequence then change nothing.

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
        outcome = Decision(
            index=self._index,
            requests=self._requests,
            feasible=self._feasible,
            told_at=self._told_at,
            durations=self._durations,
            now=now,
        ).run()
        for job_id in outcome.refused:
            self._requests.refuse(job_id)
        self._wake_at = outcome.wake_at
        self._reservations = outcome.reservations
        return list(outcome.instructions)

    def next_wake(self, now: int) -> int | None:
        """The next instant at which ``decide`` may say something new without any fact, or None; it may lie in the past."""
        instants = [instant for instant in self._index.delayed.values() if instant > now]
        if self._wake_at is not None:
            instants.append(self._wake_at)
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
        return explain(job_id, self._index, self._reservations)

    def queue_report(self) -> tuple[QueueReport, ...]:
        """What every queue holds, is due and waits for, by name."""
        return report(self._index)

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
            needed = gang_amounts(smallest(line.shape.gang))
            if self._could_start(line.shape.gang) and index.ledger.barrier(line.shape.queue, needed) is None:
                for _, _, job_id in line.keys:
                    if index.holder_of_name(index.records[job_id]) is None:
                        yield job_id
        for job_id in index.waiting:
            job = index.records[job_id].job
            elsewhere = (index.lines, index.suspended, index.homeless, index.builds.blocked)
            if job is None or any(job_id in others for others in elsewhere):
                continue
            if self._could_start(gang_of(job)):
                yield job_id

    def _could_start(self, gang: Gang) -> bool:
        known = self._feasible.get(gang)
        if known is None:
            known = self._feasible[gang] = feasible_when_empty(gang, self._snapshot)
        return known
