"""One decision over a pool: a single pass that sees its own effects, on a snapshot that is rolled back in the end.

In this order: what nodes have taken is placed again or taken down with its gang, gangs and growths that do not start are given up, room
is kept for those who are to have it, sizes asked for by hand are followed, the queues are served, proposals to shrink for those who still
wait are weighed, and what then is left goes to proposals to grow.

The queues are served: job by job in the order of their turns, each as large as room and limits allow.
"""

from __future__ import annotations

import msgspec

from muster_core.events import MANUAL_POLICY
from muster_core.lifecycle import Finish, avoided_at, decide
from muster_core.models import JobRecord, QueuePolicy, Reason
from muster_core.scheduling import reasons
from muster_core.scheduling.explain import DIAGNOSIS_US_PER_CLASS, NoFit, WaitReports, diagnose
from muster_core.scheduling.placement import Gang, Placement, find_room, has_chance
from muster_core.scheduling.queues import (
    Account,
    AdmissionOrder,
    SchedulingClass,
    SchedulingKey,
    exceeds_limit_alone,
    gang_within_limits,
)
from muster_core.scheduling.reservations import (
    Reservation,
    ReservationCache,
    ReservationPlanner,
    Reservations,
    RuntimeEstimates,
)
from muster_core.scheduling.resizing import (
    ResizeRequests,
    given_up,
    grown,
    handle_start_timeout,
    replace_lost_replicas,
    required_donations,
    shrink,
    size_within_limits,
)
from muster_core.scheduling.state import (
    Instruction,
    Place,
    PoolIndex,
    Resize,
    Transaction,
    excluding_nodes,
    reachable,
    resizable,
    size_of,
    usable_nodes,
)


class CycleResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass decided.

    ``refused`` are the jobs whose proposals found no room, or gave none that helps; ``wake_at`` is the instant (µs) at which there may be
    more to decide or to tell without any event, if any. ``reservations`` are those that were not fulfilled, by job id.
    """

    instructions: tuple[Instruction, ...]
    refused: tuple[str, ...]
    wake_at: int | None
    reservations: dict[str, Reservation]


class SchedulingCycle:
    """A pass over the pool at ``now`` (µs); use once."""

    def __init__(
        self,
        *,
        index: PoolIndex,
        requests: ResizeRequests,
        feasible: dict[Gang, bool],
        reported_at: dict[str, int],
        runtime_estimates: RuntimeEstimates,
        now: int,
        diagnosis_interval_us: int,
        remembered: ReservationCache,
    ) -> None:
        self._index = index
        self._requests = requests
        self._told_at = reported_at
        self._trial = Transaction(index=index, feasible=feasible, now=now)
        self._look_every_us = diagnosis_interval_us
        self._kept = Reservations(self._trial.snapshot)
        self._reserving = ReservationPlanner(self._trial, self._kept, runtime_estimates, remembered)
        self._refused: list[str] = []

    def run(self) -> CycleResult:
        """Decide; the index and the snapshot are as before afterwards."""
        mark = self._trial.checkpoint()
        serving = Admission(self._trial, self._kept, diagnosis_interval_us=self._look_every_us)
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
        telling = WaitReports(self._trial, serving.blocked, self._told_at, deferred=serving.deferred)
        told = telling.run()
        wakes = [
            at
            for at in (telling.retell_at, serving.look_again_at, self._reserving.starves_at())
            if at is not None
        ]
        return CycleResult(
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
            instruction = replace_lost_replicas(record, self._trial)
            if isinstance(instruction, Resize):
                self._resize(record, instruction)
            else:
                self._trial.emit(instruction)

    def _give_up_overdue(self) -> None:
        overdue = (job_id for job_id, due in self._index.starting.items() if due <= self._trial.now)
        for job_id in sorted(overdue):
            if job_id in self._trial.decided:
                continue
            record = self._index.records[job_id]
            self._trial.emit(handle_start_timeout(record, self._index.start_timeout_s, self._trial.now))

    def _follow_hands(self) -> None:
        for (job_id, role), target in sorted(self._requests.manual.items()):
            record = self._index.records[job_id]
            wanted = reachable(record, role, target)
            if wanted is None or job_id in self._trial.decided or not resizable(record):
                continue
            size = size_of(record, role)
            if wanted > size:
                wanted = self._allowed(record, role, wanted)
                self._resize(record, grown(record, role, wanted, self._trial, policy=MANUAL_POLICY))
            elif wanted < size:
                self._resize(record, shrink(record, role, wanted, policy=MANUAL_POLICY))

    def _weigh_shrinkages(self) -> None:
        for taker, group in self._requests.shrinkages().items():
            if any(giver in self._trial.decided for giver in group):
                continue
            proposals = [(self._index.records[giver], one) for giver, one in group.items()]
            leaving = required_donations(taker, proposals, self._trial, self._kept)
            if leaving is None:
                self._refused += group
                continue
            for record, proposal in proposals:
                if removed := leaving.get(record.job_id):
                    self._trial.emit(given_up(record, proposal, removed))

    def _weigh_growths(self) -> None:
        for job_id, proposal in self._requests.growths().items():
            record = self._index.records[job_id]
            if job_id in self._trial.decided:
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
        return size_within_limits(record, role, size_of(record, role), target, self._trial)

    def _resize(self, record: JobRecord, resize: Resize | None) -> None:
        if resize is not None:
            self._trial.allocate(record, resize.attempt, resize.added)
            self._trial.emit(resize)


class Admission:
    """One round over all who wait. Afterwards ``blocked`` has the reason of every line whose first job in turn found no room, as far as it
    is known by now; ``deferred`` are those that are to be looked at another time, the first of them at ``look_again_at`` (µs)."""

    def __init__(
        self,
        transaction: Transaction,
        kept: Reservations,
        *,
        diagnosis_interval_us: int = DIAGNOSIS_US_PER_CLASS,
    ) -> None:
        self.blocked: dict[SchedulingClass, Reason] = {}
        self.deferred: frozenset[SchedulingClass] = frozenset()
        self.look_again_at: int | None = None
        self._look_every_us = diagnosis_interval_us
        self._trial = transaction
        self._kept = kept
        self._closed: dict[Account, str] = {}
        self._short: dict[SchedulingClass, NoFit | Reason] = {}
        self._no_room_at: int | None = None

    def run(self) -> None:
        """Place whoever fits."""
        lines = list(self._trial.index.classes)
        self._serve_entitled()
        for job_id, line in AdmissionOrder(lines, self._trial.ledger).walk(self._short, self._closed):
            if self._trial.is_eligible(job_id) and job_id not in self._trial.decided:
                self._try(self._trial.index.records[job_id], line)
        self._say_why()
        for line in lines:
            first = self._closed.get(line.shape.account)
            if first is not None and line not in self._short:
                record = self._trial.index.records[first]
                self.blocked[line] = reasons.behind_first(line.shape.queue, record)

    def _say_why(self) -> None:
        without_room = {line: tried for line, tried in self._short.items() if isinstance(tried, NoFit)}
        looked = diagnose(without_room, self._trial, self._kept, self._look_every_us)
        self.deferred = looked.deferred
        self.look_again_at = looked.again_at
        self.blocked |= looked.reasons
        self.blocked |= {line: why for line, why in self._short.items() if isinstance(why, Reason)}

    def _serve_entitled(self) -> None:
        """Those for whom others were made to leave go first: what was freed may be a limit, which no kept room keeps from their victims."""
        for one in self._kept.reservations:
            if one.forced and self._trial.index.tree.specs[one.queue].policy is not QueuePolicy.STRICT_FIFO:
                line = self._trial.index.classes.class_of(one.job_id)
                self._try(self._trial.index.records[one.job_id], line, first=True)

    def _try(self, record: JobRecord, line: SchedulingClass, *, first: bool = False) -> None:
        """Place the job if it fits; where it is not tried ``first``, but in its turn, its line learns that it does not."""
        lifted = self._kept.lift(record.job_id, line.shape, self._trial.now)
        found = self._elsewhere(record, line.shape) or self._find(line.shape)
        if isinstance(found, Placement):
            self._start(record, found)
            self._kept.fulfil(record.job_id)
        elif not first:
            self._short[line] = found if isinstance(found, Reason) else NoFit(record.job_id, found)
            if self._is_strict(line.shape) and self._may_ever_start(line.shape):
                self._closed[line.shape.account] = record.job_id
        if lifted:
            self._kept.stand()

    def _elsewhere(self, record: JobRecord, shape: SchedulingKey) -> Placement | None:
        """Room on other nodes than those that failed the job lately."""
        avoided = usable_nodes(avoided_at(record, self._trial.now), self._trial.snapshot)
        if not avoided:
            return None
        with excluding_nodes(avoided, record.job_id, self._trial.snapshot):
            found = self._find(shape)
        return found if isinstance(found, Placement) else None

    def _start(self, record: JobRecord, found: Placement) -> None:
        attempt = record.attempt + 1
        self._trial.allocate(record, attempt, found.replicas)
        self._trial.emit(
            Place(
                job_id=record.job_id,
                attempt=attempt,
                generation=1,
                replicas=found.replicas,
                reason=reasons.placed(found),
            )
        )

    def _find(self, shape: SchedulingKey) -> Placement | Gang | Reason:
        """Where the gang goes; else as large as its queue's limits allow it, if there is no room, or which limit is in the way."""
        gang = gang_within_limits(shape, self._trial.ledger)
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

    def _is_strict(self, shape: SchedulingKey) -> bool:
        return self._trial.index.tree.specs[shape.queue].policy is QueuePolicy.STRICT_FIFO

    def _may_ever_start(self, shape: SchedulingKey) -> bool:
        """Whether the empty pool could hold it: who can never start keeps nobody back."""
        return self._trial.is_feasible(shape.gang) and not exceeds_limit_alone(shape, self._trial.ledger)
