"""The queues are served: job by job in the order of their turns, each as large as room and limits allow."""

from __future__ import annotations

import msgspec

from muster_core.lifecycle import avoided_at
from muster_core.models import JobRecord, QueuePolicy, Reason
from muster_core.scheduling.placement import Gang, Placement, find_room, has_chance
from muster_core.scheduling.queues import reasons
from muster_core.scheduling.queues.avoiding import kept_off, known_among
from muster_core.scheduling.queues.instructions import Place
from muster_core.scheduling.queues.keeping import KeptRoom
from muster_core.scheduling.queues.ledger import Amounts, Ledger
from muster_core.scheduling.queues.lines import Line, Shape
from muster_core.scheduling.queues.looking import LOOK_US_PER_LINE, Tried, look_at
from muster_core.scheduling.queues.sizes import gang_amounts, reduced, smallest
from muster_core.scheduling.queues.transaction import Transaction
from muster_core.scheduling.queues.tree import Account
from muster_core.scheduling.queues.turns import Turns


class Serving:
    """One round over all who wait. Afterwards ``blocked`` has the reason of every line whose first job in turn found no room, as far as it
    is known by now; ``passed_over`` are those that are to be looked at another time, the first of them at ``look_again_at`` (µs)."""

    def __init__(
        self, transaction: Transaction, kept: KeptRoom, *, look_every_us: int = LOOK_US_PER_LINE
    ) -> None:
        self.blocked: dict[Line, Reason] = {}
        self.passed_over: frozenset[Line] = frozenset()
        self.look_again_at: int | None = None
        self._look_every_us = look_every_us
        self._trial = transaction
        self._kept = kept
        self._closed: dict[Account, str] = {}
        self._short: dict[Line, Tried | Reason] = {}
        self._no_room_at: int | None = None

    def run(self) -> None:
        """Place whoever fits."""
        lines = list(self._trial.index.lines)
        self._serve_entitled()
        for job_id, line in Turns(lines, self._trial.ledger).walk(self._short, self._closed):
            if self._trial.may_start(job_id) and job_id not in self._trial.touched:
                self._try(self._trial.index.records[job_id], line)
        self._say_why()
        for line in lines:
            first = self._closed.get(line.shape.account)
            if first is not None and line not in self._short:
                record = self._trial.index.records[first]
                self.blocked[line] = reasons.behind_first(line.shape.queue, record)

    def _say_why(self) -> None:
        without_room = {line: tried for line, tried in self._short.items() if isinstance(tried, Tried)}
        looked = look_at(without_room, self._trial, self._kept, self._look_every_us)
        self.passed_over = looked.passed_over
        self.look_again_at = looked.again_at
        self.blocked |= looked.reasons
        self.blocked |= {line: why for line, why in self._short.items() if isinstance(why, Reason)}

    def _serve_entitled(self) -> None:
        """Those for whom others were made to leave go first: what was freed may be a limit, which no kept room keeps from their victims."""
        for one in self._kept.reservations:
            if one.forced and self._trial.index.tree.specs[one.queue].policy is not QueuePolicy.STRICT_FIFO:
                line = self._trial.index.lines.line_of(one.job_id)
                self._try(self._trial.index.records[one.job_id], line, first=True)

    def _try(self, record: JobRecord, line: Line, *, first: bool = False) -> None:
        """Place the job if it fits; where it is not tried ``first``, but in its turn, its line learns that it does not."""
        lifted = self._kept.lift(record.job_id, line.shape, self._trial.now)
        found = self._elsewhere(record, line.shape) or self._find(line.shape)
        if isinstance(found, Placement):
            self._start(record, found)
            self._kept.fulfil(record.job_id)
        elif not first:
            self._short[line] = found if isinstance(found, Reason) else Tried(record.job_id, found)
            if self._is_strict(line.shape) and self._may_ever_start(line.shape):
                self._closed[line.shape.account] = record.job_id
        if lifted:
            self._kept.stand()

    def _elsewhere(self, record: JobRecord, shape: Shape) -> Placement | None:
        """Room on other nodes than those that failed the job lately."""
        avoided = known_among(avoided_at(record, self._trial.now), self._trial.snapshot)
        if not avoided:
            return None
        with kept_off(avoided, record.job_id, self._trial.snapshot):
            found = self._find(shape)
        return found if isinstance(found, Placement) else None

    def _start(self, record: JobRecord, found: Placement) -> None:
        attempt = record.attempt + 1
        self._trial.hold(record, attempt, found.replicas)
        self._trial.say(
            Place(
                job_id=record.job_id,
                attempt=attempt,
                generation=1,
                replicas=found.replicas,
                reason=reasons.placed(found),
            )
        )

    def _find(self, shape: Shape) -> Placement | Gang | Reason:
        """Where the gang goes; else as large as its queue's limits allow it, if there is no room, or which limit is in the way."""
        gang = allowed_size(shape, self._trial.ledger)
        if isinstance(gang, Reason):
            return gang
        found = self._room_for(gang)
        return gang if found is None else msgspec.structs.replace(found, full=shape.gang.full)

    def _room_for(self, gang: Gang) -> Placement | None:
        snapshot = self._trial.snapshot
        # Who follows somebody without room mostly has none either, and the room is still the same.
        if self._no_room_at == snapshot.changes.end and not has_chance(gang, snapshot):
            return None
        found = find_room(gang, snapshot)
        self._no_room_at = snapshot.changes.end if found is None else None
        return found

    def _is_strict(self, shape: Shape) -> bool:
        return self._trial.index.tree.specs[shape.queue].policy is QueuePolicy.STRICT_FIFO

    def _may_ever_start(self, shape: Shape) -> bool:
        """Whether the empty pool could hold it: who can never start keeps nobody back."""
        return self._trial.could_start(shape.gang) and not exceeds_alone(shape, self._trial.ledger)


def allowed_size(shape: Shape, ledger: Ledger) -> Gang | Reason:
    """The gang as large as the limits of its queue allow, or why not even its floor is allowed."""

    def allowed(amounts: Amounts) -> bool:
        return ledger.barrier(shape.queue, amounts) is None

    return reduced(shape.gang, allowed) or limit_reason(shape, ledger)


def limit_reason(shape: Shape, ledger: Ledger) -> Reason:
    """Which limit keeps the floor of ``shape`` from starting; call it only where one does."""
    needed = gang_amounts(smallest(shape.gang))
    barrier = ledger.barrier(shape.queue, needed)
    queue, resource = barrier or (shape.queue, "")
    return reasons.queue_limit(
        queue,
        resource,
        limit=ledger.limit(queue, resource),
        held=ledger.held((queue,)).get(resource, 0),
        needed=needed[resource],
    )


def exceeds_alone(shape: Shape, ledger: Ledger) -> bool:
    """Whether the floor is above a limit even when its queues hold nothing."""
    return ledger.exceeds_alone(shape.queue, gang_amounts(smallest(shape.gang)))
