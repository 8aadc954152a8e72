"""One decision over a pool: a single pass that sees its own effects, on a snapshot that is rolled back in the end.

In this order: gangs that a node rejected are taken down, room is kept for those who are to have it, sizes asked for by hand are followed,
the queues are served, and what then is left goes to proposals to grow.
"""

from __future__ import annotations

import msgspec

from muster_core.models import JobRecord
from muster_core.placement import Gang
from muster_core.queues import reasons
from muster_core.queues.durations import Durations
from muster_core.queues.index import PoolIndex
from muster_core.queues.instructions import Evict, Instruction, Resize
from muster_core.queues.keeping import KeptRoom, Reservation
from muster_core.queues.requests import Requests
from muster_core.queues.reserving import Reserving
from muster_core.queues.resizing import BY_HAND, grow, reachable, resizable, shrink, size_of
from muster_core.queues.serving import Serving
from muster_core.queues.sizes import dearest_amounts
from muster_core.queues.telling import Telling
from muster_core.queues.trial import Trial


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass decided.

    ``refused`` are the jobs whose proposals found no room; ``wake_at`` is the instant (µs) at which there may be more to decide or to
    tell without any fact, if any. ``reservations`` are those that were not fulfilled, by job id.
    """

    instructions: tuple[Instruction, ...]
    refused: tuple[str, ...]
    wake_at: int | None
    reservations: dict[str, Reservation]


class Decision:
    """A pass over the pool at ``now`` (µs); use once."""

    def __init__(
        self,
        *,
        index: PoolIndex,
        requests: Requests,
        feasible: dict[Gang, bool],
        told_at: dict[str, int],
        durations: Durations,
        now: int,
    ) -> None:
        self._index = index
        self._requests = requests
        self._told_at = told_at
        self._trial = Trial(index=index, feasible=feasible, now=now)
        self._kept = KeptRoom(self._trial.snapshot)
        self._reserving = Reserving(self._trial, self._kept, durations)
        self._refused: list[str] = []

    def run(self) -> Outcome:
        """Decide; the index and the snapshot are as before afterwards."""
        mark = self._trial.checkpoint()
        serving = Serving(self._trial, self._kept)
        try:
            self._evict_rejected()
            self._reserving.run()
            self._follow_hands()
            serving.run()
            self._weigh_proposals()
        finally:
            self._trial.rollback(mark)
        telling = Telling(self._trial, serving.blocked, self._told_at)
        told = telling.run()
        wakes = [at for at in (telling.retell_at, self._reserving.starves_at()) if at is not None]
        return Outcome(
            instructions=(*self._trial.done, *told),
            refused=tuple(self._refused),
            wake_at=min(wakes, default=None),
            reservations={one.job_id: one for one in self._kept.reservations},
        )

    def _evict_rejected(self) -> None:
        for job_id in sorted(self._index.rejected):
            record = self._index.records[job_id]
            reason = reasons.rejected_by_node(record)
            self._trial.say(Evict(job_id=job_id, attempt=record.attempt, reason=reason))

    def _follow_hands(self) -> None:
        for (job_id, role), target in sorted(self._requests.by_hand.items()):
            record = self._index.records[job_id]
            wanted = reachable(record, role, target)
            if wanted is None or job_id in self._trial.touched or not resizable(record):
                continue
            size = size_of(record, role)
            if wanted > size:
                wanted = self._allowed(record, role, wanted)
                self._resize(record, grow(record, role, wanted, self._trial.snapshot, policy=BY_HAND))
            elif wanted < size:
                self._resize(record, shrink(record, role, wanted, policy=BY_HAND))

    def _weigh_proposals(self) -> None:
        for job_id, proposal in self._requests.proposals.items():
            record = self._index.records[job_id]
            if job_id in self._trial.touched:
                continue
            resize = grow(
                record,
                proposal.role,
                self._allowed(record, proposal.role, proposal.target),
                self._trial.snapshot,
                reason=proposal.reason,
                policy=proposal.policy,
            )
            if resize is None:
                self._refused.append(job_id)
            self._resize(record, resize)

    def _allowed(self, record: JobRecord, role: str, target: int) -> int:
        """The largest size up to ``target`` that the limits of the job's queue allow the role to grow to."""
        known = record.job.role(role) if record.job else None
        if known is None:
            return target
        size = size_of(record, role)
        queue = self._index.tree.account_of(record)[0]
        needed = dearest_amounts(known)
        while target > size:
            more = {name: amount * (target - size) for name, amount in needed.items()}
            if self._trial.ledger.barrier(queue, more) is None:
                break
            target -= 1
        return target

    def _resize(self, record: JobRecord, resize: Resize | None) -> None:
        if resize is not None:
            self._trial.hold(record, resize.attempt, resize.added)
            self._trial.say(resize)
