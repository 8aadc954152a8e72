"""One scheduling cycle: a pass over the pool that decides what to place, resize, evict and report.

``SchedulingCycle.run`` is the table of contents. The cycle works in a transaction on the pool's state, so that each step sees
the steps before it, and rolls it back at the end.
"""

from __future__ import annotations

import msgspec

from muster_core.events import MANUAL_POLICY
from muster_core.lifecycle import Finish, avoided_at, decide
from muster_core.models import JobRecord, QueuePolicy, Reason
from muster_core.scheduling import reasons
from muster_core.scheduling.explain import Diagnoses, NoFit, WaitReports, diagnose
from muster_core.scheduling.placement import Gang, Placement, find_placement, may_fit
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
    grow,
    handle_start_timeout,
    replace_lost_replicas,
    required_donations,
    scale_down,
    shrink,
    size_within_limits,
    terminating_released,
)
from muster_core.scheduling.state import (
    Instruction,
    Place,
    PoolIndex,
    Resize,
    Transaction,
    reachable,
    resizable,
    size_of,
)


class CycleResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduling cycle decided."""

    instructions: tuple[Instruction, ...]
    #: The jobs whose proposals did not fit, or would not help their beneficiary.
    rejected: tuple[str, ...]
    #: When there may be more to decide or to report without any event (µs), if ever.
    wake_at: int | None
    #: The reservations that were not fulfilled, by job id.
    reservations: dict[str, Reservation]


class SchedulingCycle:
    """A scheduling cycle at ``now`` (µs). Use it once.

    ``reported_at`` is when each job got its last reason (µs), by job id; for ``diagnosis_interval_us`` see ``diagnose``.
    """

    def __init__(
        self,
        *,
        index: PoolIndex,
        requests: ResizeRequests,
        feasible: dict[Gang, bool],
        reported_at: dict[str, int],
        runtime_estimates: RuntimeEstimates,
        reservation_cache: ReservationCache,
        now: int,
        diagnosis_interval_us: int,
    ) -> None:
        self._index = index
        self._requests = requests
        self._reported_at = reported_at
        self._transaction = Transaction(index=index, feasible=feasible, now=now)
        self._diagnosis_interval_us = diagnosis_interval_us
        self._reservations = Reservations(index.snapshot)
        self._planner = ReservationPlanner(
            self._transaction, self._reservations, runtime_estimates, reservation_cache
        )
        self._rejected: list[str] = []

    def run(self) -> CycleResult:
        """Run the steps of the cycle; the pool is as before afterwards."""
        mark = self._transaction.checkpoint()
        admission = Admission(self._transaction, self._reservations)
        try:
            self._replace_lost_replicas()
            self._handle_start_timeouts()
            self._planner.run()
            self._apply_manual_sizes()
            admission.run()
            diagnoses = diagnose(
                admission.unplaced, self._transaction, self._reservations, self._diagnosis_interval_us
            )
            self._apply_scale_downs()
            self._apply_scale_ups()
        finally:
            self._transaction.rollback(mark)
        return self._result(admission.blocked(diagnoses), diagnoses)

    def _replace_lost_replicas(self) -> None:
        for job_id in sorted(self._index.disrupted):
            record = self._index.records[job_id]
            if any(isinstance(one, Finish) for one in decide(record, self._transaction.now)):
                # The job is about to finish: nothing is started again for a failure that is final.
                continue
            instruction = replace_lost_replicas(record, self._transaction)
            if isinstance(instruction, Resize):
                self._resize(record, instruction)
            else:
                self._transaction.emit(instruction)

    def _handle_start_timeouts(self) -> None:
        overdue = (job_id for job_id, due in self._index.starting.items() if due <= self._transaction.now)
        for job_id in sorted(overdue):
            if job_id not in self._transaction.decided:
                timeout_s, now = self._index.start_timeout_s, self._transaction.now
                self._transaction.emit(handle_start_timeout(self._index.records[job_id], timeout_s, now))

    def _apply_manual_sizes(self) -> None:
        for (job_id, role), target in sorted(self._requests.manual.items()):
            record = self._index.records[job_id]
            wanted = reachable(record, role, target)
            if wanted is None or job_id in self._transaction.decided or not resizable(record):
                continue
            size = size_of(record, role)
            if wanted > size:
                wanted = size_within_limits(record, role, wanted, self._transaction)
                self._resize(record, grow(record, role, wanted, self._transaction, policy=MANUAL_POLICY))
            elif wanted < size:
                self._resize(record, shrink(record, role, wanted, policy=MANUAL_POLICY))

    def _apply_scale_downs(self) -> None:
        """Shrink donors if their beneficiary then starts."""
        groups = self._requests.scale_downs()
        if not groups:
            return
        with terminating_released(self._transaction, self._reservations):
            for beneficiary, group in groups.items():
                if any(donor in self._transaction.decided for donor in group):
                    continue
                proposals = [(self._index.records[donor], one) for donor, one in group.items()]
                donations = required_donations(beneficiary, proposals, self._transaction, self._reservations)
                if donations is None:
                    self._rejected += group
                    continue
                for record, proposal in proposals:
                    if removed := donations.get(record.job_id):
                        self._transaction.emit(scale_down(record, proposal, removed))

    def _apply_scale_ups(self) -> None:
        """Grow running jobs into what is left."""
        for job_id, proposal in self._requests.scale_ups().items():
            if job_id in self._transaction.decided:
                continue
            record, role = self._index.records[job_id], proposal.role
            target = size_within_limits(record, role, proposal.target, self._transaction)
            resize = grow(
                record, role, target, self._transaction, reason=proposal.reason, policy=proposal.policy
            )
            if resize is None:
                self._rejected.append(job_id)
            self._resize(record, resize)

    def _resize(self, record: JobRecord, resize: Resize | None) -> None:
        if resize is not None:
            self._transaction.allocate(record, resize.attempt, resize.added)
            self._transaction.emit(resize)

    def _result(self, blocked: dict[SchedulingClass, Reason], diagnoses: Diagnoses) -> CycleResult:
        reports = WaitReports(self._transaction, blocked, self._reported_at, deferred=diagnoses.deferred)
        waits = reports.collect()
        wakes = (reports.next_at, diagnoses.next_at, self._planner.next_starvation_at())
        return CycleResult(
            instructions=(*self._transaction.instructions, *waits),
            rejected=tuple(self._rejected),
            wake_at=min((at for at in wakes if at is not None), default=None),
            reservations={one.job_id: one for one in self._reservations.reservations},
        )


class Admission:
    """Places waiting jobs in the order of their queues, each as large as free capacity and limits allow."""

    def __init__(self, transaction: Transaction, reservations: Reservations) -> None:
        #: The first eligible job of each class that did not fit.
        self.unplaced: dict[SchedulingClass, NoFit] = {}
        self._transaction = transaction
        self._index = transaction.index
        self._reservations = reservations
        self._classes: list[SchedulingClass] = []
        self._stopped: set[SchedulingClass] = set()
        self._at_limit: dict[SchedulingClass, Reason] = {}
        #: By account of a strict queue, its first job, which blocks the others.
        self._blocked_by: dict[Account, str] = {}
        self._no_fit_at: int | None = None

    def run(self) -> None:
        """Place every job that fits."""
        self._classes = list(self._index.classes)
        self._place_beneficiaries()
        order = AdmissionOrder(self._classes, self._transaction.ledger)
        for job_id, one in order.jobs(self._stopped, self._blocked_by):
            if self._transaction.is_eligible(job_id) and job_id not in self._transaction.decided:
                self._try_in_order(self._index.records[job_id], one)

    def blocked(self, diagnoses: Diagnoses) -> dict[SchedulingClass, Reason]:
        """Return why classes did not start, as far as it is known."""
        blocked = diagnoses.reasons | self._at_limit
        for one in self._classes:
            first = self._blocked_by.get(one.key.account)
            if first is not None and one not in self._stopped:
                blocked[one] = reasons.behind_first(one.key.queue, self._index.records[first])
        return blocked

    def _place_beneficiaries(self) -> None:
        """Place the jobs for which others were stopped first: those may have freed a limit, which no reservation withholds."""
        for one in self._reservations.reservations:
            if one.freed and not self._is_strict(one.queue):
                key = self._index.classes.class_of(one.job_id).key
                self._try(self._index.records[one.job_id], key)

    def _try_in_order(self, record: JobRecord, one: SchedulingClass) -> None:
        """Place a job; if it does not fit, its class is tried no more."""
        no_fit = self._try(record, one.key)
        if no_fit is None:
            return
        self._stopped.add(one)
        if isinstance(no_fit, Reason):
            self._at_limit[one] = no_fit
        else:
            self.unplaced[one] = NoFit(record.job_id, no_fit)
        if self._is_strict(one.key.queue) and self._may_ever_start(one.key):
            self._blocked_by[one.key.account] = record.job_id

    def _try(self, record: JobRecord, key: SchedulingKey) -> Gang | Reason | None:
        """Place a job if it fits; return the gang that did not fit, or the limit that does not allow it."""
        lifted = self._reservations.lift(record.job_id, key, self._transaction.now)
        found = self._find_elsewhere(record, key) or self._find(key)
        if isinstance(found, Placement):
            self._place(record, found)
            self._reservations.remove(record.job_id)
        if lifted:
            self._reservations.enforce()
        return None if isinstance(found, Placement) else found

    def _find_elsewhere(self, record: JobRecord, key: SchedulingKey) -> Placement | None:
        """Find nodes other than those that recently failed the job."""
        avoided = self._transaction.usable_nodes(avoided_at(record, self._transaction.now))
        if not avoided:
            return None
        with self._transaction.excluding_nodes(avoided, record.job_id):
            found = self._find(key)
        return found if isinstance(found, Placement) else None

    def _find(self, key: SchedulingKey) -> Placement | Gang | Reason:
        """Find where the gang fits, as large as limits allow."""
        gang = gang_within_limits(key, self._transaction.ledger)
        if isinstance(gang, Reason):
            return gang
        snapshot = self._transaction.snapshot
        # Most gangs do not fit right after one that did not, as long as nothing has changed.
        if self._no_fit_at == snapshot.change_log.end and not may_fit(gang, snapshot):
            return gang
        found = find_placement(gang, snapshot)
        self._no_fit_at = snapshot.change_log.end if found is None else None
        return gang if found is None else msgspec.structs.replace(found, full=key.gang.full)

    def _place(self, record: JobRecord, found: Placement) -> None:
        attempt = record.attempt + 1
        self._transaction.allocate(record, attempt, found.replicas)
        self._transaction.emit(
            Place(
                job_id=record.job_id,
                attempt=attempt,
                generation=1,
                replicas=found.replicas,
                reason=reasons.placed(found),
            )
        )

    def _is_strict(self, queue: str) -> bool:
        return self._index.tree.specs[queue].policy is QueuePolicy.STRICT_FIFO

    def _may_ever_start(self, key: SchedulingKey) -> bool:
        """Return whether the empty pool and the limits allow the minimum of the gang; only then does it block others."""
        return self._transaction.is_feasible(key.gang) and not exceeds_limit_alone(
            key, self._transaction.ledger
        )
