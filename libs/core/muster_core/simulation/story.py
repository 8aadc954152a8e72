"""What happened to each simulated job, and the use of the pool: the raw data of every measure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from muster_core import events
from muster_core.models import GPU_MILLI, JobRecord
from muster_core.scheduling import holds_allocation


class JobStory(msgspec.Struct, kw_only=True):
    """One job; times (µs since the start) are None if not reached.

    ``waited_us`` is the total waiting time. ``gpu_us`` is what its replicas held, in GPU-microseconds. ``largest`` is its
    greatest number of members.
    """

    job_id: str
    submitted_at: int
    placed_at: int | None = None
    running_at: int | None = None
    finished_at: int | None = None
    outcome: events.Outcome | None = None
    waited_us: int = 0
    gpu_us: int = 0
    restarts: int = 0
    evictions: int = 0
    resizes: int = 0
    largest: int = 0


class Moment(msgspec.Struct, frozen=True):
    """The pool from ``at`` (µs since the start) on: allocated milli-GPUs and milli-CPUs, running and waiting jobs."""

    at: int
    gpu: int
    cpu: int
    running: int
    waiting: int


class Chronicle:
    """The history of all jobs from their events; ``clock`` gives µs since the start."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.jobs: dict[str, JobStory] = {}
        self.moments: list[Moment] = []
        self._clock = clock
        self._held: dict[str, tuple[int, int, int]] = {}
        self._waits: dict[str, int] = {}
        self._gpu = 0
        self._cpu = 0
        self._running: set[str] = set()

    @property
    def waiting(self) -> int:
        """Return how many jobs wait for capacity."""
        return len(self._waits)

    def submitted(self, job_id: str) -> None:
        """Record the arrival of a job."""
        now = self._clock()
        self.jobs[job_id] = JobStory(job_id=job_id, submitted_at=now)

    def note(self, job_id: str, event: events.JobEvent, record: JobRecord | None) -> None:
        """Record an event that was applied to ``record`` (None: the job is settled)."""
        story = self.jobs[job_id]
        now = self._clock()
        match event:
            case events.JobValidated():
                self._waits[job_id] = now
            case events.JobPlaced():
                story.placed_at = now if story.placed_at is None else story.placed_at
                story.waited_us += now - self._waits.pop(job_id, now)
                self._running.add(job_id)
            case events.JobResized():
                story.resizes += 1
            case events.JobEvicted():
                story.evictions += 1
                self._leaves(job_id, now)
            case events.JobRestarting(scope=scope):
                story.restarts += 1
                if scope == "gang":
                    self._leaves(job_id, now)
            case events.JobFinished(outcome=outcome):
                story.finished_at, story.outcome = now, outcome
                self._waits.pop(job_id, None)
                self._running.discard(job_id)
            case _:
                pass
        if record is not None and record.replicas:
            story.largest = max(story.largest, len(record.gang()))
            if story.running_at is None and record.running_at:
                story.running_at = now
        self._hold(story, record, now)

    def mark(self) -> None:
        """Record the pool at the end of this time step."""
        moment = Moment(self._clock(), self._gpu, self._cpu, len(self._running), len(self._waits))
        if self.moments and self.moments[-1].at == moment.at:
            self.moments[-1] = moment
        elif not self.moments or _differs(self.moments[-1], moment):
            self.moments.append(moment)

    def _leaves(self, job_id: str, now: int) -> None:
        self._waits[job_id] = now
        self._running.discard(job_id)

    def _hold(self, story: JobStory, record: JobRecord | None, now: int) -> None:
        gpu_before, cpu_before, since = self._held.get(story.job_id, (0, 0, now))
        gpu, cpu = _held_by(record) if record is not None else (0, 0)
        if (gpu, cpu) == (gpu_before, cpu_before):
            return
        story.gpu_us += gpu_before * (now - since) // GPU_MILLI
        self._gpu += gpu - gpu_before
        self._cpu += cpu - cpu_before
        if gpu or cpu:
            self._held[story.job_id] = (gpu, cpu, now)
        else:
            self._held.pop(story.job_id, None)


def _held_by(record: JobRecord) -> tuple[int, int]:
    gpu = cpu = 0
    for replica in record.replicas:
        role = record.job.role(replica.role) if record.job else None
        if role is not None and holds_allocation(record, replica):
            requests = role.template_of(replica.index).requests
            gpu += requests.gpu
            cpu += requests.cpu
    return gpu, cpu


def _differs(one: Moment, other: Moment) -> bool:
    return (one.gpu, one.cpu, one.running, one.waiting) != (
        other.gpu,
        other.cpu,
        other.running,
        other.waiting,
    )
