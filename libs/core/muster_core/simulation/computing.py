"""Simulated training programs: they work while their workers come and go, report progress, and end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from muster_core.events import JobEvent, ProgressReported
from muster_core.models import JobRecord, Phase, ReplicaRecord, ReplicaState
from muster_core.scheduling.placement.demand import is_anchor
from muster_core.simulation.agenda import Agenda
from muster_core.simulation.hands import Run
from muster_core.simulation.settings import WorldSettings
from muster_core.simulation.work import Progress, Work


class Site(Protocol):
    """What the programs need from the simulation."""

    def record(self, job_id: str) -> JobRecord | None:
        """Return the record of an unsettled job."""
        ...

    def report(self, job_id: str, event: JobEvent) -> None:
        """Publish an event of a job."""
        ...

    def end(self, job_id: str, runs: list[Run]) -> None:
        """End running replicas with exit code 0."""
        ...


class Computing:
    """The programs of all jobs. ``clock`` gives µs since the epoch, ``touch`` triggers another look at a job."""

    def __init__(
        self,
        *,
        agenda: Agenda,
        settings: WorldSettings,
        clock: Callable[[], int],
        touch: Callable[[str], None],
        site: Site,
    ) -> None:
        self._agenda = agenda
        self._settings = settings
        self._clock = clock
        self._touch = touch
        self._site = site
        self._works: dict[str, Work] = {}
        self._progress: dict[str, Progress] = {}
        self._ends: dict[str, int] = {}

    def expect(self, job_id: str, work: Work) -> None:
        """Set the amount of work of a job."""
        self._works[job_id] = work

    def forget(self, job_id: str) -> None:
        """Remove a job."""
        for known in (self._works, self._progress, self._ends):
            known.pop(job_id, None)

    def go_on(self, record: JobRecord) -> None:
        """Advance the work of a job by its running workers, and end them when it is done."""
        job_id = record.job_id
        progress = self._progress.get(job_id)
        if progress is None and record.phase is not Phase.RUNNING:
            return
        work = self._works[job_id]
        if progress is None:
            progress = self._progress[job_id] = Progress(
                work, pause_us=self._settings.pause_us, checkpoint_us=self._settings.checkpoint_us
            )
        if record.phase is not Phase.RUNNING:
            progress.end_attempt(self._clock())
            self._ends.pop(job_id, None)
            return
        running = [one for one in record.gang() if one.state is ReplicaState.RUNNING]
        if progress.done:
            self._end(job_id, running)
            return
        workers = _computing(record, running, fixed=work.is_fixed)
        if workers != progress.workers:
            progress.work_with(workers, self._clock())
            self._plan_end(job_id, progress)
            self._plan_reports(record)

    def _plan_end(self, job_id: str, progress: Progress) -> None:
        end = progress.finished_at()
        if end is None:
            self._ends.pop(job_id, None)
            return
        self._ends[job_id] = end

        def finish() -> None:
            if self._ends.get(job_id) == end:
                del self._ends[job_id]
                progress.work_with(0, end)
                self._touch(job_id)

        self._agenda.plan(end, finish)

    def _end(self, job_id: str, running: list[ReplicaRecord]) -> None:
        runs = [(one.attempt, one.role, one.index, one.restart) for one in running if not is_anchor(one.role)]
        if runs:
            self._site.end(job_id, runs)
            self._touch(job_id)

    def _plan_reports(self, record: JobRecord) -> None:
        """Report progress twice in every membership whose size matters, which gives its speed."""
        if not self._settings.report_us or self._works[record.job_id].is_fixed:
            return
        if any(one.state is not ReplicaState.RUNNING for one in record.gang()):
            return
        membership = (record.attempt, record.generation)
        for after in (1, self._settings.report_us):
            at = self._clock() + self._settings.pause_us + after
            self._agenda.plan(at, lambda: self._report(record.job_id, membership))

    def _report(self, job_id: str, membership: tuple[int, int]) -> None:
        record = self._site.record(job_id)
        progress = self._progress.get(job_id)
        if record is None or progress is None or record.phase is not Phase.RUNNING:
            return
        speaker = next((one for one in record.gang() if not is_anchor(one.role)), None)
        if (record.attempt, record.generation) != membership or speaker is None:
            return
        now = self._clock()
        event = ProgressReported(
            role=speaker.role,
            index=speaker.index,
            attempt=record.attempt,
            step=progress.steps_at(now),
            at=now,
        )
        self._site.report(job_id, event)


def _computing(record: JobRecord, running: list[ReplicaRecord], *, fixed: bool) -> int:
    """Return how many workers compute: parameter servers only serve, and a job that waits for a member computes nothing."""
    workers = sum(1 for one in running if not is_anchor(one.role))
    missed = any(
        one.state is not ReplicaState.RUNNING and (one.ended or one.restart) for one in record.gang()
    )
    if missed and fixed:
        return 0
    return workers or len(running)
