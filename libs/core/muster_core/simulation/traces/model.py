"""A workload trace: jobs with arrivals and work, of any file format."""

from __future__ import annotations

import msgspec

from muster_core.models import Problem, Resources
from muster_core.simulation.workload import ASSUMED_SERIAL, Work, fixed, scalable_duration

GPU_MODEL_LABEL = "gpu-model"
"""The node label by which trace jobs select GPU models."""


class TraceJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job: ``replicas`` equal workers of ``worker`` each, from ``min`` to ``max``.

    ``submit_us`` counts from the first arrival of the trace. ``gpu_models`` are the accepted models, empty for any.
    ``line`` is its line in the file.
    """

    name: str
    submit_us: int
    work: Work
    replicas: int
    min: int
    max: int
    worker: Resources
    priority: int = 0
    queue: str = ""
    namespace: str = "default"
    user: str = ""
    gpu_models: tuple[str, ...] = ()
    line: int = 0

    @property
    def is_elastic(self) -> bool:
        """Return whether its size may change."""
        return self.min < self.max


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a file of ``format`` by arrival, and every problem; jobs with an error are omitted."""

    format: str
    jobs: tuple[TraceJob, ...] = ()
    problems: tuple[Problem, ...] = ()


def work_of(seconds: float, replicas: int, *, elastic: bool, serial: int | None = None) -> Work:
    """Return the work of a job that took ``seconds`` with ``replicas`` workers: their number matters only if it may change."""
    if not elastic and serial is None:
        return fixed(seconds)
    return scalable_duration(seconds, replicas, ASSUMED_SERIAL if serial is None else serial)


def made_elastic(job: TraceJob, factor: float) -> TraceJob:
    """Return the job as an elastic one, from one worker to ``factor`` times its workers."""
    work = job.work
    if work.is_fixed and work.amount_us is not None:
        work = scalable_duration(work.amount_us / 1_000_000, job.replicas)
    return msgspec.structs.replace(job, min=1, max=max(job.replicas, int(job.replicas * factor)), work=work)
