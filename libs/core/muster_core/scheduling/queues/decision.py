"""One decision over a pool: a single pass that sees its own effects, on a snapshot that is rolled back in the end.

In this order: what nodes have taken is placed again or taken down with its gang, gangs and growths that do not start are given up, room
is kept for those who are to have it, sizes asked for by hand are followed, the queues are served, proposals to shrink for those who still
wait are weighed, and what then is left goes to proposals to grow.
"""

from __future__ import annotations

import msgspec

from muster_core.events import MANUAL_POLICY
from muster_core.lifecycle import Finish, decide
from muster_core.models import JobRecord
from muster_core.scheduling.placement import Gang
from muster_core.scheduling.queues.allowing import allowed_size
from muster_core.scheduling.queues.durations import Durations
from muster_core.scheduling.queues.giving import weigh
from muster_core.scheduling.queues.index import PoolIndex
from muster_core.scheduling.queues.instructions import Instruction, Resize
from muster_core.scheduling.queues.joining import grown
from muster_core.scheduling.queues.keeping import KeptRoom, Reservation
from muster_core.scheduling.queues.overdue import timed_out
from muster_core.scheduling.queues.replacing import mended
from muster_core.scheduling.queues.requests import Requests
from muster_core.scheduling.queues.reserving import Reserving
from muster_core.scheduling.queues.resizing import given_up, reachable, resizable, shrink, size_of
from muster_core.scheduling.queues.serving import Serving
from muster_core.scheduling.queues.telling import Telling
from muster_core.scheduling.queues.transaction import Transaction


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass decided.

    ``refused`` are the jobs whose proposals found no room, or gave none that helps; ``wake_at`` is the instant (µs) at which there may be
    more to decide or to tell without any event, if any. ``reservations`` are those that were not fulfilled, by job id.
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
        look_every_us: int,
    ) -> None:
        self._index = index
        self._requests = requests
        self._told_at = told_at
        self._trial = Transaction(index=index, feasible=feasible, now=now)
        self._look_every_us = look_every_us
        self._kept = KeptRoom(self._trial.snapshot)
        self._reserving = Reserving(self._trial, self._kept, durations)
        self._refused: list[str] = []

    def run(self) -> Outcome:
        """Decide; the index and the snapshot are as before afterwards."""
        mark = self._trial.checkpoint()
        serving = Serving(self._trial, self._kept, look_every_us=self._look_every_us)
        try:
            self._mend_disrupted()
            self._give_up_overdue()
            self._reserving.run()
            self._follow_hands()
            serving.run()
            self._weigh_shrinkages()
            self._weigh_growths()
        finally:
            self._trial.rollback(mark)
        telling = Telling(self._trial, serving.blocked, self._told_at, passed_over=serving.passed_over)
        told = telling.run()
        wakes = [
            at
            for at in (telling.retell_at, serving.look_again_at, self._reserving.starves_at())
            if at is not None
        ]
        return Outcome(
            instructions=(*self._trial.done, *told),
            refused=tuple(self._refused),
            wake_at=min(wakes, default=None),
            reservations={one.job_id: one for one in self._kept.reservations},
        )

    def _mend_disrupted(self) -> None:
        for job_id in sorted(self._index.disrupted):
            record = self._index.records[job_id]
            if any(isinstance(one, Finish) for one in decide(record, self._trial.now)):
                # It is about to be said that the job has ended: nobody starts again beside one whose failure is final.
                continue
            instruction = mended(record, self._trial)
            if isinstance(instruction, Resize):
                self._resize(record, instruction)
            else:
                self._trial.say(instruction)

    def _give_up_overdue(self) -> None:
        overdue = (job_id for job_id, due in self._index.starting.items() if due <= self._trial.now)
        for job_id in sorted(overdue):
            if job_id in self._trial.touched:
                continue
            record = self._index.records[job_id]
            self._trial.say(timed_out(record, self._index.start_timeout_s, self._trial.now))

    def _follow_hands(self) -> None:
        for (job_id, role), target in sorted(self._requests.by_hand.items()):
            record = self._index.records[job_id]
            wanted = reachable(record, role, target)
            if wanted is None or job_id in self._trial.touched or not resizable(record):
                continue
            size = size_of(record, role)
            if wanted > size:
                wanted = self._allowed(record, role, wanted)
                self._resize(record, grown(record, role, wanted, self._trial, policy=MANUAL_POLICY))
            elif wanted < size:
                self._resize(record, shrink(record, role, wanted, policy=MANUAL_POLICY))

    def _weigh_shrinkages(self) -> None:
        for taker, group in self._requests.shrinkages().items():
            if any(giver in self._trial.touched for giver in group):
                continue
            proposals = [(self._index.records[giver], one) for giver, one in group.items()]
            leaving = weigh(taker, proposals, self._trial, self._kept)
            if leaving is None:
                self._refused += group
                continue
            for record, proposal in proposals:
                if removed := leaving.get(record.job_id):
                    self._trial.say(given_up(record, proposal, removed))

    def _weigh_growths(self) -> None:
        for job_id, proposal in self._requests.growths().items():
            record = self._index.records[job_id]
            if job_id in self._trial.touched:
                continue
            resize = grown(
                record,
                proposal.role,
                self._allowed(record, proposal.role, proposal.target),
                self._trial,
                reason=proposal.reason,
                policy=proposal.policy,
            )
            if resize is None:
                self._refused.append(job_id)
            self._resize(record, resize)

    def _allowed(self, record: JobRecord, role: str, target: int) -> int:
        return allowed_size(record, role, size_of(record, role), target, self._trial)

    def _resize(self, record: JobRecord, resize: Resize | None) -> None:
        if resize is not None:
            self._trial.hold(record, resize.attempt, resize.added)
            self._trial.say(resize)
