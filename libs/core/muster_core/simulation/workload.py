"""The work of jobs, and the training programs that do it.

All amounts are integers, so that a simulation ends at the same microsecond on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from muster_core.events import ProgressReported
from muster_core.models import JobRecord, Phase, ReplicaRecord, ReplicaState
from muster_core.scheduling.placement import is_anchor
from muster_core.simulation.runtime import EventQueue, ReplicaRun
from muster_core.simulation.settings import SimulationSettings

_WHOLE = 1000
_NS_PER_US = 1000
_NS_PER_STEP = 1_000_000
_US = 1_000_000

ASSUMED_SERIAL = 140
"""The default serial fraction, in thousandths."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """``amount_us`` is the time (µs) of one worker alone, None for endless work.

    ``serial`` is the serial fraction in thousandths: by Amdahl's law ``n`` workers are ``n / (1 + f (n - 1))`` times as
    fast as one. With 1000, the default, any number takes equally long: a fixed duration.
    """

    amount_us: int | None
    serial: int = _WHOLE

    @property
    def is_fixed(self) -> bool:
        """Return whether the number of workers changes nothing."""
        return self.serial >= _WHOLE


def fixed(seconds: float) -> Work:
    """Return work that takes ``seconds`` with any number of workers."""
    return Work(amount_us=round(seconds * _US))


def endless() -> Work:
    """Return endless work."""
    return Work(amount_us=None)


def scalable(worker_seconds: float, serial: int = ASSUMED_SERIAL) -> Work:
    """Return work that takes one worker ``worker_seconds``, with a ``serial`` fraction in thousandths."""
    return Work(amount_us=round(worker_seconds * _US), serial=serial)


def scalable_duration(seconds: float, workers: int, serial: int = ASSUMED_SERIAL) -> Work:
    """Return work that takes ``workers`` workers ``seconds``, with a ``serial`` fraction in thousandths."""
    numerator, denominator = _speed(workers, serial)
    return Work(amount_us=round(seconds * _US) * numerator // denominator, serial=serial)


def _speed(workers: int, serial: int) -> tuple[int, int]:
    """Return the speed of ``workers`` workers relative to one, as numerator and denominator."""
    return workers * _WHOLE, _WHOLE + serial * (workers - 1)


class WorkProgress:
    """The progress of some work with a changing number of workers. Times are µs.

    Args:
        work: The work.
        pause_us: The standstill after a change of the number of workers.
        checkpoint_us: The interval between checkpoints; an attempt that ends early loses what was computed since the
            last one. 0: loses nothing.
    """

    def __init__(self, work: Work, *, pause_us: int = 0, checkpoint_us: int = 0) -> None:
        self.workers = 0
        self._work = work
        self._pause_us = pause_us
        self._checkpoint_us = checkpoint_us
        self._left_ns = None if work.amount_us is None else work.amount_us * _NS_PER_US
        self._attempt_began_ns = self._left_ns
        self._since = 0
        self._ran_us = 0
        self._done_ns = 0
        self._last_workers = 1

    @property
    def done(self) -> bool:
        """Return whether the work is done."""
        return self._left_ns is not None and self._left_ns <= 0

    def steps_at(self, now: int) -> int:
        """Return the work done in thousandths of a second of one worker; a program reports it as its step."""
        self._advance(now)
        return self._done_ns // _NS_PER_STEP

    def set_workers(self, workers: int, now: int) -> None:
        """Continue with ``workers`` workers from ``now`` on; 0 stand still."""
        self._advance(now)
        pause = self._pause_us if self.workers and workers else 0
        self.workers = workers
        self._last_workers = workers or self._last_workers
        self._since = max(self._since, now + pause)

    def end_attempt(self, now: int) -> None:
        """End the attempt and lose the work since the last checkpoint. A no-op if the attempt has ended already."""
        self._advance(now)
        if self._left_ns is not None and self._checkpoint_us and not self.done:
            lost_us = self._ran_us % self._checkpoint_us
            numerator, denominator = _speed(self._last_workers, self._work.serial)
            lost_ns = lost_us * _NS_PER_US * numerator // denominator
            left_ns = min(self._left_ns + lost_ns, self._attempt_began_ns or 0)
            self._done_ns -= left_ns - self._left_ns
            self._left_ns = left_ns
        self._attempt_began_ns = self._left_ns
        self._ran_us = 0
        self.workers = 0

    def finished_at(self) -> int | None:
        """Return when the work is done if nothing changes, or None."""
        if self._left_ns is None or not self.workers:
            return None
        numerator, denominator = _speed(self.workers, self._work.serial)
        return self._since + -(-max(self._left_ns, 0) * denominator // (_NS_PER_US * numerator))

    def _advance(self, now: int) -> None:
        elapsed = now - self._since
        if elapsed <= 0:
            return
        self._since = now
        if self.workers and self._left_ns is not None:
            numerator, denominator = _speed(self.workers, self._work.serial)
            done_ns = elapsed * _NS_PER_US * numerator // denominator
            self._left_ns -= done_ns
            self._done_ns += done_ns
            self._ran_us += elapsed


class _Host(Protocol):
    """What the programs need of the simulation."""

    def record(self, job_id: str) -> JobRecord | None: ...

    def report_progress(self, job_id: str, event: ProgressReported) -> None: ...

    def end_replicas(self, job_id: str, runs: list[ReplicaRun]) -> None: ...

    def reconcile_soon(self, job_id: str) -> None: ...


class TrainingPrograms:
    """The programs of all jobs: they work while their replicas run, report progress, and end. ``clock`` returns µs since the epoch."""

    def __init__(
        self, *, queue: EventQueue, settings: SimulationSettings, clock: Callable[[], int], host: _Host
    ) -> None:
        self._queue = queue
        self._settings = settings
        self._clock = clock
        self._host = host
        self._works: dict[str, Work] = {}
        self._progress: dict[str, WorkProgress] = {}
        self._ends: dict[str, int] = {}

    def set_work(self, job_id: str, work: Work) -> None:
        """Set the work of a job."""
        self._works[job_id] = work

    def forget(self, job_id: str) -> None:
        """Remove a job."""
        self._works.pop(job_id, None)
        self._progress.pop(job_id, None)
        self._ends.pop(job_id, None)

    def update(self, record: JobRecord) -> None:
        """Advance the work of a job with its running workers, and end them when it is done."""
        job_id = record.job_id
        progress = self._progress.get(job_id)
        if record.phase is not Phase.RUNNING:
            if progress is not None:
                progress.end_attempt(self._clock())
                self._ends.pop(job_id, None)
            return
        work = self._works[job_id]
        if progress is None:
            progress = self._progress[job_id] = WorkProgress(
                work, pause_us=self._settings.pause_us, checkpoint_us=self._settings.checkpoint_us
            )
        running = [one for one in record.gang() if one.state is ReplicaState.RUNNING]
        if progress.done:
            self._end(job_id, running)
            return
        workers = _computing_workers(record, running, fixed=work.is_fixed)
        if workers != progress.workers:
            progress.set_workers(workers, self._clock())
            self._schedule_end(job_id, progress)
            self._schedule_reports(record)

    def _schedule_end(self, job_id: str, progress: WorkProgress) -> None:
        end = progress.finished_at()
        if end is None:
            self._ends.pop(job_id, None)
            return
        self._ends[job_id] = end

        def finish() -> None:
            if self._ends.get(job_id) == end:
                del self._ends[job_id]
                progress.set_workers(0, end)
                self._host.reconcile_soon(job_id)

        self._queue.schedule(end, finish)

    def _end(self, job_id: str, running: list[ReplicaRecord]) -> None:
        runs = [(one.attempt, one.role, one.index, one.restart) for one in running if not is_anchor(one.role)]
        if runs:
            self._host.end_replicas(job_id, runs)
            self._host.reconcile_soon(job_id)

    def _schedule_reports(self, record: JobRecord) -> None:
        """Report progress twice in every generation of a scalable job: the difference is its speed."""
        if not self._settings.report_us or self._works[record.job_id].is_fixed:
            return
        if any(one.state is not ReplicaState.RUNNING for one in record.gang()):
            return
        generation = (record.attempt, record.generation)
        for after in (1, self._settings.report_us):
            at = self._clock() + self._settings.pause_us + after
            self._queue.schedule(at, lambda: self._report(record.job_id, generation))

    def _report(self, job_id: str, generation: tuple[int, int]) -> None:
        record = self._host.record(job_id)
        progress = self._progress.get(job_id)
        if record is None or progress is None or record.phase is not Phase.RUNNING:
            return
        reporter = next((one for one in record.gang() if not is_anchor(one.role)), None)
        if (record.attempt, record.generation) != generation or reporter is None:
            return
        now = self._clock()
        event = ProgressReported(
            role=reporter.role,
            index=reporter.index,
            attempt=record.attempt,
            step=progress.steps_at(now),
            at=now,
        )
        self._host.report_progress(job_id, event)


def _computing_workers(record: JobRecord, running: list[ReplicaRecord], *, fixed: bool) -> int:
    """Return how many workers compute.

    Parameter servers do not compute. A rigid job computes nothing while a replica of its gang is being restarted.
    """
    workers = sum(1 for one in running if not is_anchor(one.role))
    restarting = any(
        one.state is not ReplicaState.RUNNING and (one.ended or one.restart) for one in record.gang()
    )
    if restarting and fixed:
        return 0
    return workers or len(running)
