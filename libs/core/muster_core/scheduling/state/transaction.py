"""The transaction of a scheduling cycle, and the instructions that it collects.

Changes are made on the pool's own snapshot and ledger, so that later decisions of a cycle see earlier ones, and are rolled
back at the end: an instruction takes effect when its event is committed and observed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

import msgspec

from muster_core.events import Assignment, JobEvicted, JobPlaced, JobResized, JobWaiting, ReplicaRef
from muster_core.models import JobRecord, Reason
from muster_core.scheduling.placement import (
    PODS,
    Allocation,
    AllocationKey,
    Demand,
    Gang,
    allocation_of,
    feasible_when_empty,
)
from muster_core.scheduling.queues import amounts_of
from muster_core.scheduling.state.index import PoolIndex


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Start the whole gang as ``attempt``."""

    job_id: str
    attempt: int
    generation: int
    replicas: tuple[Assignment, ...]
    reason: Reason

    def to_event(self, pool: str) -> JobPlaced:
        """Return the event of this instruction."""
        return JobPlaced(
            attempt=self.attempt,
            generation=self.generation,
            pool=pool,
            replicas=self.replicas,
            reason=self.reason,
        )


class Resize(msgspec.Struct, frozen=True, kw_only=True):
    """Change the replicas of a running gang to those of ``generation``; the others keep running.

    ``beneficiary`` is the beneficiary of a scale-down, if any; ``avoid`` are the nodes on which replicas failed.
    """

    job_id: str
    attempt: int
    generation: int
    reason: Reason
    added: tuple[Assignment, ...] = ()
    removed: tuple[ReplicaRef, ...] = ()
    policy: str = ""
    beneficiary: str = ""
    avoid: tuple[str, ...] = ()

    def to_event(self, pool: str) -> JobResized:
        """Return the event of this instruction; it does not name ``pool``."""
        del pool
        return JobResized(
            attempt=self.attempt,
            generation=self.generation,
            reason=self.reason,
            added=self.added,
            removed=self.removed,
            policy=self.policy,
            beneficiary=self.beneficiary,
            avoid=self.avoid,
        )


class Evict(msgspec.Struct, frozen=True, kw_only=True):
    """Stop the whole of ``attempt``; the job goes back to its queue. ``avoid`` are the nodes on which it failed."""

    job_id: str
    attempt: int
    reason: Reason
    avoid: tuple[str, ...] = ()

    def to_event(self, pool: str) -> JobEvicted:
        """Return the event of this instruction; it does not name ``pool``."""
        del pool
        return JobEvicted(attempt=self.attempt, reason=self.reason, avoid=self.avoid)


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Report why the job cannot start now."""

    job_id: str
    reason: Reason

    def to_event(self, pool: str) -> JobWaiting:
        """Return the event of this instruction; it does not name ``pool``."""
        del pool
        return JobWaiting(reason=self.reason)


Instruction = Place | Resize | Evict | Wait
"""What a scheduling cycle decides."""


class Transaction:
    """Tentative changes of the pool at ``now`` (µs); ``feasible`` collects which gangs the empty pool could hold."""

    def __init__(self, *, index: PoolIndex, feasible: dict[Gang, bool], now: int) -> None:
        self.index = index
        self.snapshot = index.snapshot
        self.ledger = index.ledger
        self.feasible = feasible
        self.now = now
        self.instructions: list[Instruction] = []
        #: The jobs with an instruction.
        self.decided: set[str] = set()

    def checkpoint(self) -> tuple[int, int]:
        """Open a nested transaction; returns the mark for ``rollback`` or ``commit``. Instructions are not part of it."""
        return self.snapshot.checkpoint(), self.ledger.checkpoint()

    def rollback(self, mark: tuple[int, int]) -> None:
        """Undo every change since ``mark``."""
        self.snapshot.rollback(mark[0])
        self.ledger.rollback(mark[1])

    def commit(self, mark: tuple[int, int]) -> None:
        """Keep the changes since ``mark``; an enclosing transaction may still roll them back."""
        self.snapshot.commit(mark[0])
        self.ledger.commit()

    def allocate(self, record: JobRecord, attempt: int, replicas: Iterable[Assignment]) -> None:
        """Allocate the replicas of a job where they are assigned."""
        if record.job is None:
            return
        roles = {role.name for role in record.job.roles}
        allocations = [
            (
                (record.job_id, attempt, one.role, one.index),
                allocation_of(record.job, one.role, one.index, one.node, one.gpus),
            )
            for one in replicas
            if one.role in roles
        ]
        self.add_allocations(record, allocations)

    def add_allocations(
        self, record: JobRecord, allocations: Sequence[tuple[AllocationKey, Allocation]]
    ) -> None:
        """Add allocations of a job."""
        self.snapshot.allocate_all(allocations)
        self.ledger.add(self.index.tree.account_of(record), amounts_of(one for _, one in allocations))

    def release(self, record: JobRecord, allocations: Sequence[tuple[AllocationKey, Allocation]]) -> None:
        """Remove allocations of a job."""
        for key, _ in allocations:
            self.snapshot.release(key)
        self.ledger.subtract(self.index.tree.account_of(record), amounts_of(one for _, one in allocations))

    def emit(self, instruction: Instruction) -> None:
        """Add an instruction."""
        self.instructions.append(instruction)
        self.decided.add(instruction.job_id)

    def is_feasible(self, gang: Gang) -> bool:
        """Return whether the empty pool could hold the minimum of the gang."""
        known = self.feasible.get(gang)
        if known is None:
            known = self.feasible[gang] = feasible_when_empty(gang, self.snapshot)
        return known

    def is_eligible(self, job_id: str) -> bool:
        """Return whether only capacity, limits and the order of its queue can keep a waiting job from starting."""
        if self.index.delayed.get(job_id, 0) > self.now:
            return False
        return self.index.holder_of_name(self.index.records[job_id]) is None

    def usable_nodes(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Return those of ``nodes`` that can take replicas at all, sorted."""
        return tuple(sorted(node for node in nodes if self.snapshot.class_of(node) is not None))

    @contextmanager
    def excluding_nodes(self, nodes: Sequence[str], job_id: str) -> Generator[None]:
        """Make ``nodes`` full while a job is tried elsewhere."""
        snapshot = self.snapshot
        mark = snapshot.checkpoint()
        try:
            snapshot.allocate_all(
                (
                    (f"avoided/{job_id}", 0, node, 0),
                    Allocation(
                        node, Demand(amounts=((PODS, snapshot.free_of(snapshot.free_capacity(node), PODS)),))
                    ),
                )
                for node in nodes
            )
            yield
        finally:
            snapshot.rollback(mark)
