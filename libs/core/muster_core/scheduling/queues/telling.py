"""Those who wait are told why, where that changed: a new code at once, new numbers only so often that the bus can bear it."""

from __future__ import annotations

from collections.abc import Container, Mapping

from muster_core.models import JobRecord, Reason
from muster_core.scheduling.queues import reasons
from muster_core.scheduling.queues.instructions import Wait
from muster_core.scheduling.queues.lines import Line
from muster_core.scheduling.queues.transaction import Transaction

_SHORTEST_RETELL_US = 1_000_000
_RETELL_US_PER_JOB = 5_000
_WAITS_AT_ONCE = 256

_TOLD_IN_WORDS = frozenset({reasons.NAME_IN_USE, reasons.NO_SUCH_QUEUE, reasons.BEHIND_FIRST})
"""Codes whose words tell what no number does."""


class Telling:
    """What is to be told after a pass; ``told_at`` has when each job was told last, ``retell_at`` when more is to be told, if any.

    ``blocked`` are the reasons of lines whose first job in turn found no room; nobody is told anything of a line that was ``passed_over``.
    """

    def __init__(
        self,
        transaction: Transaction,
        blocked: Mapping[Line, Reason],
        told_at: Mapping[str, int],
        *,
        passed_over: Container[Line] = (),
    ) -> None:
        self.retell_at: int | None = None
        self._trial = transaction
        self._index = transaction.index
        self._blocked = blocked
        self._told_at = told_at
        self._passed_over = passed_over
        self._urgent: list[Wait] = []
        self._renewed: list[Wait] = []

    def run(self) -> list[Wait]:
        """The reasons to tell now, no more than the bus takes at once."""
        records = self._index.records
        for job_id in sorted(self._index.homeless):
            job = records[job_id].job
            self._consider(records[job_id], reasons.no_such_queue(job.queue if job else ""))
        builds = self._index.builds
        self._urgent += [
            Wait(job_id=job_id, reason=builds.blocked[job_id]) for job_id in sorted(builds.untold)
        ]
        for line in self._index.lines:
            if line not in self._passed_over:
                self._consider_line(line)
        told = (self._urgent + self._renewed)[:_WAITS_AT_ONCE]
        if len(self._urgent) + len(self._renewed) > len(told):
            self.retell_at = self._trial.now
        return told

    def _consider_line(self, line: Line) -> None:
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
            if delayed or reason is None or job_id in self._trial.touched:
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
