"""What happened to each simulated job, the use of the pool, and measures of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

import msgspec

from muster_core import events
from muster_core.models import GPU_MILLI, JobRecord
from muster_core.scheduling import holds_allocation

_US = 1_000_000
_US_PER_HOUR = 3600 * _US


class JobTimeline(msgspec.Struct, kw_only=True):
    """One job; times (µs since the start) are None if not reached.

    ``waited_us`` is the total waiting time, ``gpu_us`` the allocation in GPU-microseconds, ``largest`` the greatest
    number of replicas.
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


class PoolSample(msgspec.Struct, frozen=True):
    """The pool from ``at`` (µs since the start) on: allocated milli-GPUs and milli-CPUs, running and waiting jobs."""

    at: int
    gpu: int
    cpu: int
    running: int
    waiting: int


class Recorder:
    """The timelines of all jobs from their events; ``clock`` gives µs since the start."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.jobs: dict[str, JobTimeline] = {}
        self.samples: list[PoolSample] = []
        self._clock = clock
        self._allocated: dict[str, tuple[int, int, int]] = {}
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
        self.jobs[job_id] = JobTimeline(job_id=job_id, submitted_at=self._clock())

    def observe(self, job_id: str, event: events.JobEvent, record: JobRecord | None) -> None:
        """Record an event that was applied to ``record`` (None: the job is settled)."""
        timeline = self.jobs[job_id]
        now = self._clock()
        match event:
            case events.JobValidated():
                self._waits[job_id] = now
            case events.JobPlaced():
                timeline.placed_at = now if timeline.placed_at is None else timeline.placed_at
                timeline.waited_us += now - self._waits.pop(job_id, now)
                self._running.add(job_id)
            case events.JobResized():
                timeline.resizes += 1
            case events.JobEvicted():
                timeline.evictions += 1
                self._requeue(job_id, now)
            case events.JobRestarting(scope=scope):
                timeline.restarts += 1
                if scope == "gang":
                    self._requeue(job_id, now)
            case events.JobFinished(outcome=outcome):
                timeline.finished_at, timeline.outcome = now, outcome
                self._waits.pop(job_id, None)
                self._running.discard(job_id)
            case _:
                pass
        if record is not None and record.replicas:
            timeline.largest = max(timeline.largest, len(record.gang()))
            if timeline.running_at is None and record.running_at:
                timeline.running_at = now
        self._update_allocation(timeline, record, now)

    def sample(self) -> None:
        """Record the pool at the end of this time step, if it has changed."""
        sample = PoolSample(self._clock(), self._gpu, self._cpu, len(self._running), len(self._waits))
        last = self.samples[-1] if self.samples else None
        if last is not None and last.at == sample.at:
            self.samples[-1] = sample
        elif last is None or msgspec.structs.replace(last, at=sample.at) != sample:
            self.samples.append(sample)

    def _requeue(self, job_id: str, now: int) -> None:
        self._waits[job_id] = now
        self._running.discard(job_id)

    def _update_allocation(self, timeline: JobTimeline, record: JobRecord | None, now: int) -> None:
        gpu_before, cpu_before, since = self._allocated.get(timeline.job_id, (0, 0, now))
        gpu, cpu = _allocation_of(record) if record is not None else (0, 0)
        if (gpu, cpu) == (gpu_before, cpu_before):
            return
        timeline.gpu_us += gpu_before * (now - since) // GPU_MILLI
        self._gpu += gpu - gpu_before
        self._cpu += cpu - cpu_before
        if gpu or cpu:
            self._allocated[timeline.job_id] = (gpu, cpu, now)
        else:
            self._allocated.pop(timeline.job_id, None)


def _allocation_of(record: JobRecord) -> tuple[int, int]:
    """Return the milli-GPUs and milli-CPUs that the replicas of a job hold."""
    gpu = cpu = 0
    for replica in record.replicas:
        role = record.job.role(replica.role) if record.job else None
        if role is not None and holds_allocation(record, replica):
            requests = role.template_of(replica.index).requests
            gpu += requests.gpu
            cpu += requests.cpu
    return gpu, cpu


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds over jobs; ``p99`` is the least value that 99 of 100 jobs do not exceed."""

    mean: float = 0.0
    median: float = 0.0
    p99: float = 0.0
    max: float = 0.0


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """Measures of a simulation.

    ``completion`` is from arrival to end, ``wait`` the total waiting time of a job. ``makespan_s`` is from the first
    arrival to the last end. ``utilisation`` is the share (0 to 1) of all GPU time until the makespan that was allocated;
    ``restarts``, ``evictions`` and ``resizes`` are per job. ``unfinished`` jobs never ended: they never fit, or the
    simulation ended earlier.
    """

    jobs: int
    finished: int
    unfinished: int
    failed: int
    completion: Distribution
    wait: Distribution
    makespan_s: float
    gpu_hours: float
    utilisation: float
    restarts: float
    evictions: float
    resizes: float
    max_waiting: int


def measures_of(timelines: Iterable[JobTimeline], samples: Sequence[PoolSample], *, gpus: int) -> Measures:
    """Return the measures of a simulation on a cluster of ``gpus`` milli-GPUs."""
    jobs = list(timelines)
    ended = [(one, one.finished_at) for one in jobs if one.finished_at is not None]
    first = min((one.submitted_at for one in jobs), default=0)
    last = max((end for _, end in ended), default=first)
    allocated_us = sum(one.gpu_us for one in jobs)
    number = max(len(jobs), 1)
    offered_us = gpus * (last - first) // GPU_MILLI
    return Measures(
        jobs=len(jobs),
        finished=len(ended),
        unfinished=len(jobs) - len(ended),
        failed=sum(1 for one, _ in ended if one.outcome is not events.Outcome.SUCCEEDED),
        completion=_distribution([end - one.submitted_at for one, end in ended]),
        wait=_distribution([one.waited_us for one, _ in ended]),
        makespan_s=(last - first) / _US,
        gpu_hours=allocated_us / _US_PER_HOUR,
        utilisation=allocated_us / offered_us if offered_us else 0.0,
        restarts=sum(one.restarts for one in jobs) / number,
        evictions=sum(one.evictions for one in jobs) / number,
        resizes=sum(one.resizes for one in jobs) / number,
        max_waiting=max((sample.waiting for sample in samples), default=0),
    )


def completions(timelines: Iterable[JobTimeline]) -> list[float]:
    """Return the completion times in seconds, ascending."""
    return sorted(
        (one.finished_at - one.submitted_at) / _US for one in timelines if one.finished_at is not None
    )


def utilisation_over_time(
    samples: Sequence[PoolSample], *, gpus: int, points: int
) -> list[tuple[float, float]]:
    """Return the utilisation as a curve.

    Args:
        samples: The pool over time.
        gpus: The milli-GPUs of the cluster.
        points: The largest number of points.

    Returns:
        Pairs of seconds since the start and the mean share of allocated GPUs since the previous pair.
    """
    if len(samples) < 2 or not gpus or points < 1:
        return []
    first, last = samples[0].at, samples[-1].at
    edges = sorted({first + (last - first) * step // points for step in range(1, points + 1)})
    curve: list[tuple[float, float]] = []
    position, since, allocated = 0, first, 0
    begin = first
    for edge in edges:
        while position + 1 < len(samples) and samples[position + 1].at <= edge:
            allocated += samples[position].gpu * (samples[position + 1].at - since)
            since = samples[position + 1].at
            position += 1
        allocated += samples[position].gpu * (edge - since)
        since = edge
        if edge > begin:
            curve.append(((edge - first) / _US, allocated / (gpus * (edge - begin))))
        allocated, begin = 0, edge
    return curve


def _distribution(times: list[int]) -> Distribution:
    if not times:
        return Distribution()
    ordered = sorted(times)
    return Distribution(
        mean=sum(ordered) / len(ordered) / _US,
        median=median(ordered) / _US,
        p99=ordered[-(-len(ordered) * 99 // 100) - 1] / _US,
        max=ordered[-1] / _US,
    )
