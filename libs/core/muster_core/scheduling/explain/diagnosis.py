"""Why lines find no room, looked at now and then.

That a gang does not fit is known at once; why, in numbers, costs several times as much, and numbers that nobody is told yet are of no
use. So a line is looked at again only so often that all lines together cost little. What is not looked at is not told either: whatever is
said is so at that instant, and who decides again on the same events, looking at everything, finds it again.

Those who wait are told why, where that changed: a new code at once, new numbers only so often that the bus can bear it.
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
"""How long a line is not looked at again, for each line that there is."""


class NoFit(NamedTuple):
    """A line's first job in turn, and the gang that found no room: the job's, as large as the limits allow it."""

    job_id: str
    gang: Gang


class Diagnoses(NamedTuple):
    """The reasons of lines, those that were ``deferred``, and the instant (µs) at which one of these is to be looked at, if any."""

    reasons: dict[SchedulingClass, Reason]
    deferred: frozenset[SchedulingClass]
    again_at: int | None


def diagnose(
    short: Mapping[SchedulingClass, NoFit], transaction: Transaction, kept: Reservations, every_us: int
) -> Diagnoses:
    """Why the lines of ``short`` have no room for their gangs, as the pool stands now in this pass.

    A line is looked at again where room, running jobs or what is kept have changed, and at most once in ``every_us`` for each line that
    there is: with 10 ms, a few shapes are always up to date, a thousand are within ten seconds. One with somebody who has not heard
    anything yet is looked at whenever it is asked for.
    """
    every = every_us * len(transaction.index.classes.shapes)
    basis = None if transaction.done else (transaction.index.version, kept.reservations)
    stale = [line for line in short if line.unheard or not _is_known(line.look, basis)]
    due = [line for line in stale if line.unheard or _is_due(line.look, transaction.now, every)]
    if due:
        kept.lift_all()
        for line in due:
            line.look = ClassDiagnosis(transaction.now, basis, _reason(short[line], line, transaction, kept))
        kept.stand()
    deferred = frozenset(stale).difference(due)
    found = {
        line: line.look.reason
        for line in short
        if line not in deferred and line.look is not None and line.look.reason is not None
    }
    later = [line.look.at + every for line in deferred if line.look is not None]
    return Diagnoses(found, deferred, min(later, default=None))


def _is_known(look: ClassDiagnosis | None, basis: Hashable) -> bool:
    return look is not None and basis is not None and look.basis == basis


def _is_due(look: ClassDiagnosis | None, now: int, every: int) -> bool:
    # At one instant everything is said as if for the first time, so that the same question has the same answer.
    return look is None or look.at >= now or look.at + every <= now


def _reason(
    tried: NoFit, line: SchedulingClass, transaction: Transaction, kept: Reservations
) -> Reason | None:
    """Why a gang has no room while none is kept; or that it is kept, and for whom.

    None where there is room, which somebody who has started since the gang was tried has left over: it is for the next pass.
    """
    found = place(tried.gang, transaction.snapshot, feasible=transaction.feasible.get(tried.gang))
    if not isinstance(found, Placement):
        transaction.feasible[tried.gang] = found.feasible_when_empty
        return to_reason(found)
    first = kept.first_before(tried.job_id, line.shape, transaction.now)
    if first is None:
        return None
    return reasons.behind_reservation(transaction.index.records[first.job_id].name, first.nodes)


_SHORTEST_RETELL_US = 1_000_000
_RETELL_US_PER_JOB = 5_000
_WAITS_AT_ONCE = 256

_TOLD_IN_WORDS = frozenset({reasons.NAME_IN_USE, reasons.NO_SUCH_QUEUE, reasons.BEHIND_FIRST})
"""Codes whose words tell what no number does."""


class WaitReports:
    """What is to be told after a pass; ``reported_at`` has when each job was told last, ``retell_at`` when more is to be told, if any.

    ``blocked`` are the reasons of lines whose first job in turn found no room; nobody is told anything of a line that was ``deferred``.
    """

    def __init__(
        self,
        transaction: Transaction,
        blocked: Mapping[SchedulingClass, Reason],
        reported_at: Mapping[str, int],
        *,
        deferred: Container[SchedulingClass] = (),
    ) -> None:
        self.retell_at: int | None = None
        self._trial = transaction
        self._index = transaction.index
        self._blocked = blocked
        self._told_at = reported_at
        self._passed_over = deferred
        self._urgent: list[Wait] = []
        self._renewed: list[Wait] = []

    def run(self) -> list[Wait]:
        """The reasons to tell now, no more than the bus takes at once."""
        records = self._index.records
        for job_id in sorted(self._index.unknown_queue):
            job = records[job_id].job
            self._consider(records[job_id], reasons.no_such_queue(job.queue if job else ""))
        builds = self._index.builds
        self._urgent += [
            Wait(job_id=job_id, reason=builds.blocked[job_id]) for job_id in sorted(builds.untold)
        ]
        for line in self._index.classes:
            if line not in self._passed_over:
                self._consider_line(line)
        told = (self._urgent + self._renewed)[:_WAITS_AT_ONCE]
        if len(self._urgent) + len(self._renewed) > len(told):
            self.retell_at = self._trial.now
        return told

    def _consider_line(self, line: SchedulingClass) -> None:
        line.unheard = False
        short = self._blocked.get(line)
        if short is not None and line.told is not None and reasons.same(line.told, short):
            return
        all_told = True
        for _, _, job_id in line.keys:
            record = self._index.records[job_id]
            holder = self._index.holder_of_name(record)
            reason = reasons.name_in_use(record, holder) if holder else short
            delayed = self._index.delayed.get(job_id, 0) > self._trial.now
            if delayed or reason is None or job_id in self._trial.decided:
                all_told = False
            elif holder or not reasons.same(record.reason, reason):
                all_told = False
                self._consider(record, reason)
        line.told = short if all_told else None

    def _consider(self, record: JobRecord, reason: Reason) -> None:
        wait = Wait(job_id=record.job_id, reason=reason)
        known = record.reason
        if (
            known is None
            or known.code != reason.code
            or (reason.code in _TOLD_IN_WORDS and known.message != reason.message)
        ):
            self._urgent.append(wait)
        elif known.numbers != reason.numbers:
            every = max(_SHORTEST_RETELL_US, _RETELL_US_PER_JOB * len(self._index.waiting))
            due = self._told_at.get(record.job_id, 0) + every
            if due <= self._trial.now:
                self._renewed.append(wait)
            elif self.retell_at is None or due < self.retell_at:
                self.retell_at = due
