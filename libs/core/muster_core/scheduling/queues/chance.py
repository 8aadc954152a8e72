"""Whether a waiting job would start, as the pool stands: beside the room that is kept for others."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from muster_core.models import JobRecord
from muster_core.scheduling.placement import Gang, Placement, Shortfall, find_room, place
from muster_core.scheduling.queues.keeping import KeptRoom
from muster_core.scheduling.queues.ledger import Amounts
from muster_core.scheduling.queues.lines import Shape
from muster_core.scheduling.queues.transaction import Transaction


class Chance:
    """The chances of the job of ``record``, which waits as ``shape``, on the pool of ``transaction``.

    Room is kept anew for every question, since what is kept is part of what is free; between questions none of it stands.
    """

    def __init__(self, transaction: Transaction, kept: KeptRoom, record: JobRecord, shape: Shape) -> None:
        kept.lift_all()
        self.transaction = transaction
        self.record = record
        self.shape = shape
        self._kept = kept

    @contextmanager
    def beside_others(self) -> Generator[None]:
        """Inside, room is kept for those before whose start the job would not have ended; the pool must not change there."""
        self._kept.stand()
        self._kept.lift(self.record.job_id, self.shape, self.transaction.now)
        try:
            yield
        finally:
            self._kept.lift_all()

    @property
    def nodes_of_others(self) -> frozenset[str]:
        """The nodes on which room is kept for others: whatever becomes free there is theirs first."""
        now, bound = self.transaction.now, self.shape.bound_s
        others = (one for one in self._kept.all if one.reservation.job_id != self.record.job_id)
        return frozenset(
            node for one in others if not one.outlasts(bound, now) for node in one.reservation.nodes
        )

    def try_out(self, gang: Gang) -> Placement | Shortfall:
        """Where ``gang`` would go now, or why nowhere."""
        with self.beside_others():
            return place(gang, self.transaction.snapshot)

    def place(self, gang: Gang) -> Placement | None:
        """Where ``gang`` would go now, or None."""
        with self.beside_others():
            return find_room(gang, self.transaction.snapshot)

    def allows(self, amounts: Amounts) -> bool:
        """Whether the limits of the job's queue, and of those above, allow it so much."""
        return self.transaction.ledger.barrier(self.shape.queue, amounts) is None
