"""What a pool's scheduler decides, in the imperative; each becomes an event once it is committed.

What a pass has decided so far, tried on the pool itself and taken back in the end, so that later decisions see earlier ones.

A gang that its nodes failed is tried elsewhere first.

Softly: the nodes are taken to be full while it is tried, and where nothing else has room they are as good as any.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager

import msgspec

from muster_core.events import Assignment, JobEvicted, JobPlaced, JobResized, JobWaiting, ReplicaRef
from muster_core.models import JobRecord, Reason
from muster_core.scheduling.placement import (
    Allocation,
    AllocationKey,
    Demand,
    Gang,
    Snapshot,
    allocation_of,
    feasible_when_empty,
)
from muster_core.scheduling.placement.demand import PODS
from muster_core.scheduling.queues import QuotaLedger, amounts_of
from muster_core.scheduling.state.index import PoolIndex


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Start the whole gang as ``attempt``."""

    job_id: str
    attempt: int
    generation: int
    replicas: tuple[Assignment, ...]
    reason: Reason

    def to_event(self, pool: str) -> JobPlaced:
        """The event that it becomes."""
        return JobPlaced(
            attempt=self.attempt,
            generation=self.generation,
            pool=pool,
            replicas=self.replicas,
            reason=self.reason,
        )


class Resize(msgspec.Struct, frozen=True, kw_only=True):
    """Change the membership of a running gang to ``generation``; survivors are not touched.

    ``for_job`` is the waiting job that is to have the room of those who leave, if any; ``avoid`` the nodes that took replicas of it.
    """

    job_id: str
    attempt: int
    generation: int
    reason: Reason
    added: tuple[Assignment, ...] = ()
    removed: tuple[ReplicaRef, ...] = ()
    policy: str = ""
    for_job: str = ""
    avoid: tuple[str, ...] = ()

    def to_event(self, pool: str) -> JobResized:
        """The event that it becomes; ``pool`` does not show in it."""
        del pool
        return JobResized(
            attempt=self.attempt,
            generation=self.generation,
            reason=self.reason,
            added=self.added,
            removed=self.removed,
            policy=self.policy,
            for_job=self.for_job,
            avoid=self.avoid,
        )


class Evict(msgspec.Struct, frozen=True, kw_only=True):
    """Take ``attempt`` down as a whole; the job goes back to its queue. ``avoid`` are the nodes that failed it."""

    job_id: str
    attempt: int
    reason: Reason
    avoid: tuple[str, ...] = ()

    def to_event(self, pool: str) -> JobEvicted:
        """The event that it becomes; ``pool`` does not show in it."""
        del pool
        return JobEvicted(attempt=self.attempt, reason=self.reason, avoid=self.avoid)


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Tell why the job cannot start now."""

    job_id: str
    reason: Reason

    def to_event(self, pool: str) -> JobWaiting:
        """The event that it becomes; ``pool`` does not show in it."""
        del pool
        return JobWaiting(reason=self.reason)


Instruction = Place | Resize | Evict | Wait
"""Everything that a decision may consist of."""


class Transaction:
    """One pass at ``now`` (µs). ``feasible`` remembers which gangs the empty pool could hold; ``decided`` are jobs with an instruction."""

    def __init__(self, *, index: PoolIndex, feasible: dict[Gang, bool], now: int) -> None:
        self.index = index
        self.feasible = feasible
        self.now = now
        self.done: list[Instruction] = []
        self.decided: set[str] = set()

    @property
    def snapshot(self) -> Snapshot:
        """The room."""
        return self.index.snapshot

    @property
    def ledger(self) -> QuotaLedger:
        """What the queues hold."""
        return self.index.ledger

    def checkpoint(self) -> tuple[int, int]:
        """Open a transaction; the answer is for ``rollback``. Instructions are not part of it."""
        return self.snapshot.checkpoint(), self.ledger.checkpoint()

    def rollback(self, mark: tuple[int, int]) -> None:
        """Undo everything since ``mark``."""
        self.snapshot.rollback(mark[0])
        self.ledger.rollback(mark[1])

    def commit(self, mark: tuple[int, int]) -> None:
        """Keep what was done since ``mark``, as far as the enclosing transaction is kept."""
        self.snapshot.commit(mark[0])
        self.ledger.commit()

    def allocate(self, record: JobRecord, attempt: int, replicas: Iterable[Assignment]) -> None:
        """Let replicas of a job take their room."""
        if record.job is None:
            return
        roles = {role.name for role in record.job.roles}
        holds = [
            (
                (record.job_id, attempt, one.role, one.index),
                allocation_of(record.job, one.role, one.index, one.node, one.gpus),
            )
            for one in replicas
            if one.role in roles
        ]
        self.add_allocations(record, holds)

    def add_allocations(self, record: JobRecord, holds: Iterable[tuple[AllocationKey, Allocation]]) -> None:
        """Take room for replicas of a job."""
        taken = list(holds)
        self.snapshot.hold_all(taken)
        self.ledger.add(self.index.tree.account_of(record), amounts_of(hold for _, hold in taken))

    def release(self, record: JobRecord, holds: Iterable[tuple[AllocationKey, Allocation]]) -> None:
        """Give room of a job's replicas back."""
        given = list(holds)
        for key, _ in given:
            self.snapshot.release(key)
        self.ledger.take(self.index.tree.account_of(record), amounts_of(hold for _, hold in given))

    def emit(self, instruction: Instruction) -> None:
        """Decide so."""
        self.done.append(instruction)
        self.decided.add(instruction.job_id)

    def is_feasible(self, gang: Gang) -> bool:
        """Whether the empty pool could hold the gang's floor."""
        known = self.feasible.get(gang)
        if known is None:
            known = self.feasible[gang] = feasible_when_empty(gang, self.snapshot)
        return known

    def is_eligible(self, job_id: str) -> bool:
        """Whether nothing but room, its queue and its turn keeps a job in a line from starting."""
        if self.index.delayed.get(job_id, 0) > self.now:
            return False
        return self.index.holder_of_name(self.index.records[job_id]) is None


Avoided = tuple[str, ...]
"""Names of nodes, sorted."""


def usable_nodes(nodes: Iterable[str], snapshot: Snapshot) -> Avoided:
    """Those of ``nodes`` that could take replicas at all."""
    return tuple(sorted(node for node in nodes if snapshot.class_of(node) is not None))


@contextmanager
def excluding_nodes(nodes: Avoided, job_id: str, snapshot: Snapshot) -> Generator[None]:
    """While it is entered, no replica fits on ``nodes``."""
    holds = [
        (
            (f"avoided/{job_id}", 0, node, 0),
            Allocation(node, Demand(amounts=((PODS, snapshot.free_of(snapshot.room(node), PODS)),))),
        )
        for node in nodes
    ]
    mark = snapshot.checkpoint()
    try:
        snapshot.hold_all(holds)
        yield
    finally:
        snapshot.rollback(mark)
