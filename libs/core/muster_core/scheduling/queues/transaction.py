"""What a pass has decided so far, tried on the pool itself and taken back in the end, so that later decisions see earlier ones."""

from __future__ import annotations

from collections.abc import Iterable

from muster_core.events import Assignment
from muster_core.models import JobRecord
from muster_core.scheduling.placement import (
    Allocation,
    AllocationKey,
    Gang,
    Snapshot,
    allocation_of,
    feasible_when_empty,
)
from muster_core.scheduling.queues.index import PoolIndex
from muster_core.scheduling.queues.instructions import Instruction
from muster_core.scheduling.queues.ledger import Ledger, amounts_of


class Transaction:
    """One pass at ``now`` (µs). ``feasible`` remembers which gangs the empty pool could hold; ``touched`` are jobs with an instruction."""

    def __init__(self, *, index: PoolIndex, feasible: dict[Gang, bool], now: int) -> None:
        self.index = index
        self.feasible = feasible
        self.now = now
        self.done: list[Instruction] = []
        self.touched: set[str] = set()

    @property
    def snapshot(self) -> Snapshot:
        """The room."""
        return self.index.snapshot

    @property
    def ledger(self) -> Ledger:
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

    def hold(self, record: JobRecord, attempt: int, replicas: Iterable[Assignment]) -> None:
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
        self.hold_again(record, holds)

    def hold_again(self, record: JobRecord, holds: Iterable[tuple[AllocationKey, Allocation]]) -> None:
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

    def say(self, instruction: Instruction) -> None:
        """Decide so."""
        self.done.append(instruction)
        self.touched.add(instruction.job_id)

    def could_start(self, gang: Gang) -> bool:
        """Whether the empty pool could hold the gang's floor."""
        known = self.feasible.get(gang)
        if known is None:
            known = self.feasible[gang] = feasible_when_empty(gang, self.snapshot)
        return known

    def may_start(self, job_id: str) -> bool:
        """Whether nothing but room, its queue and its turn keeps a job in a line from starting."""
        if self.index.delayed.get(job_id, 0) > self.now:
            return False
        return self.index.holder_of_name(self.index.records[job_id]) is None
