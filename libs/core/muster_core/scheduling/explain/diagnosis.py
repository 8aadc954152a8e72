"""Diagnosis of scheduling classes that do not fit, and the reports of it to their jobs.

Whether a gang fits is known at once; why it does not fit, in numbers, costs several times as much. Therefore a class is
diagnosed again only so often that all classes together cost little, and only diagnosed classes are reported. A reason with a
new code is reported at once, new numbers only as often as the bus can bear.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping
from typing import NamedTuple

from muster_core.models import JobRecord, Reason
from muster_core.scheduling import reasons
from muster_core.scheduling.placement import Gang, Placement, place, to_reason
from muster_core.scheduling.queues import ClassDiagnosis, SchedulingClass
from muster_core.scheduling.reservations import Reservations
from muster_core.scheduling.state import Transaction, Wait

DIAGNOSIS_US_PER_CLASS = 10_000
"""How long a diagnosis is valid, multiplied by the number of scheduling classes."""

_MIN_REPORT_INTERVAL_US = 1_000_000
_REPORT_INTERVAL_US_PER_JOB = 5_000
_REPORTS_PER_CYCLE = 256

_COMPARED_BY_MESSAGE = frozenset({reasons.NAME_IN_USE, reasons.NO_SUCH_QUEUE, reasons.BEHIND_FIRST})
"""Codes whose message carries what no number does."""


class NoFit(NamedTuple):
    """The first eligible job of a scheduling class, and its gang, as large as limits allow, that did not fit."""

    job_id: str
    gang: Gang


class Diagnoses(NamedTuple):
    """The reasons of scheduling classes, the ``deferred`` classes, and when the first of those is due (µs), if any."""

    reasons: dict[SchedulingClass, Reason]
    deferred: frozenset[SchedulingClass]
    next_at: int | None


def diagnose(
    unplaced: Mapping[SchedulingClass, NoFit],
    transaction: Transaction,
    reservations: Reservations,
    interval_us: int,
) -> Diagnoses:
    """Diagnose why scheduling classes do not fit, as far as that is due.

    A diagnosis is repeated when free capacity, running jobs or reservations have changed, and at most once in
    ``interval_us`` for each class in the pool: with 10 ms a few classes are always up to date, and each of a thousand is
    diagnosed every ten seconds. A class with a job that has no reason yet is diagnosed at once.
    """
    interval = interval_us * len(transaction.index.classes.keys)
    basis = None if transaction.instructions else (transaction.index.version, reservations.reservations)
    stale = [one for one in unplaced if one.has_unreported or not _is_current(one.diagnosis, basis)]
    due = [one for one in stale if one.has_unreported or _is_due(one.diagnosis, transaction.now, interval)]
    if due:
        reservations.lift_all()
        for one in due:
            reason = _reason(unplaced[one], one, transaction, reservations)
            one.diagnosis = ClassDiagnosis(transaction.now, basis, reason)
        reservations.enforce()
    deferred = frozenset(stale).difference(due)
    found = {
        one: one.diagnosis.reason
        for one in unplaced
        if one not in deferred and one.diagnosis is not None and one.diagnosis.reason is not None
    }
    later = [one.diagnosis.at + interval for one in deferred if one.diagnosis is not None]
    return Diagnoses(found, deferred, min(later, default=None))


def _is_current(diagnosis: ClassDiagnosis | None, basis: Hashable) -> bool:
    return diagnosis is not None and basis is not None and diagnosis.basis == basis


def _is_due(diagnosis: ClassDiagnosis | None, now: int, interval: int) -> bool:
    # A second cycle at the same instant diagnoses again, so that it gives the same instructions.
    return diagnosis is None or diagnosis.at >= now or diagnosis.at + interval <= now


def _reason(
    no_fit: NoFit, one: SchedulingClass, transaction: Transaction, reservations: Reservations
) -> Reason | None:
    """Return why a gang does not fit with no reservation enforced, or which reservation it must respect.

    None if it fits, in capacity that a job placed since then has left over: the next cycle uses it.
    """
    found = place(no_fit.gang, transaction.snapshot, feasible=transaction.feasible.get(no_fit.gang))
    if not isinstance(found, Placement):
        transaction.feasible[no_fit.gang] = found.feasible_when_empty
        return to_reason(found)
    blocking = reservations.first_blocking(no_fit.job_id, one.key, transaction.now)
    if blocking is None:
        return None
    return reasons.behind_reservation(transaction.index.records[blocking.job_id].name, blocking.nodes)


class WaitReports:
    """Collects the ``Wait`` instructions of a cycle. ``next_at`` is when more are due (µs), if any.

    Args:
        transaction: The cycle's transaction, with its instructions.
        blocked: The reasons of the classes whose first eligible job did not start.
        reported_at: When each job got its last reason (µs), by job id.
        deferred: The classes without a diagnosis in this cycle; their jobs get no report.
    """

    def __init__(
        self,
        transaction: Transaction,
        blocked: Mapping[SchedulingClass, Reason],
        reported_at: Mapping[str, int],
        *,
        deferred: Container[SchedulingClass] = (),
    ) -> None:
        self.next_at: int | None = None
        self._transaction = transaction
        self._index = transaction.index
        self._blocked = blocked
        self._reported_at = reported_at
        self._deferred = deferred
        self._urgent: list[Wait] = []
        self._renewed: list[Wait] = []

    def collect(self) -> list[Wait]:
        """Return the reports that are due, at most as many as one batch on the bus takes."""
        records, builds = self._index.records, self._index.builds
        for job_id in sorted(self._index.unknown_queue):
            job = records[job_id].job
            self._consider(records[job_id], reasons.no_such_queue(job.queue if job else ""))
        self._urgent += [
            Wait(job_id=job_id, reason=builds.blocked[job_id]) for job_id in sorted(builds.unreported)
        ]
        for one in self._index.classes:
            if one not in self._deferred:
                self._consider_class(one)
        every = self._urgent + self._renewed
        if len(every) > _REPORTS_PER_CYCLE:
            self.next_at = self._transaction.now
        return every[:_REPORTS_PER_CYCLE]

    def _consider_class(self, one: SchedulingClass) -> None:
        one.has_unreported = False
        blocked = self._blocked.get(one)
        if blocked is not None and one.reported is not None and reasons.same(one.reported, blocked):
            return
        all_reported = True
        for _, _, job_id in one.jobs:
            record = self._index.records[job_id]
            holder = self._index.holder_of_name(record)
            reason = reasons.name_in_use(record, holder) if holder else blocked
            delayed = self._index.delayed.get(job_id, 0) > self._transaction.now
            if delayed or reason is None or job_id in self._transaction.decided:
                all_reported = False
            elif holder or not reasons.same(record.reason, reason):
                all_reported = False
                self._consider(record, reason)
        one.reported = blocked if all_reported else None

    def _consider(self, record: JobRecord, reason: Reason) -> None:
        wait = Wait(job_id=record.job_id, reason=reason)
        known = record.reason
        if (
            known is None
            or known.code != reason.code
            or (reason.code in _COMPARED_BY_MESSAGE and known.message != reason.message)
        ):
            self._urgent.append(wait)
        elif known.numbers != reason.numbers:
            interval = max(_MIN_REPORT_INTERVAL_US, _REPORT_INTERVAL_US_PER_JOB * len(self._index.waiting))
            due = self._reported_at.get(record.job_id, 0) + interval
            if due <= self._transaction.now:
                self._renewed.append(wait)
            elif self.next_at is None or due < self.next_at:
                self.next_at = due
