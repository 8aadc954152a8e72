"""A trace: jobs with their arrivals and their work, whatever file they came from."""

from __future__ import annotations

import msgspec

from muster_core.models import Problem, Resources
from muster_core.simulation.work import ASSUMED_SERIAL, Work, fixed, taking

GPU_MODEL_LABEL = "gpu-model"
"""The node label by which jobs of traces say which GPUs they take."""


class TraceJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job: ``replicas`` equal workers of ``worker`` each, from ``min`` to ``max`` of them.

    ``submit_us`` counts from the first arrival of the trace. ``gpu_models`` are those that it takes, empty for any. ``line`` is where it
    stands in its file.
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
        """Whether it may have another size than the one that it asks for."""
        return self.min < self.max


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """What was read: the jobs by arrival, from a file of ``format``, and every problem; jobs with an error are not among ``jobs``."""

    format: str
    jobs: tuple[TraceJob, ...] = ()
    problems: tuple[Problem, ...] = ()


def work_of(seconds: float, replicas: int, *, elastic: bool, serial: int | None = None) -> Work:
    """The work of a job that took ``seconds`` with ``replicas`` workers: only where it may have others does their number matter."""
    if not elastic and serial is None:
        return fixed(seconds)
    return taking(seconds, replicas, ASSUMED_SERIAL if serial is None else serial)


def stretched(job: TraceJob, factor: float) -> TraceJob:
    """The same job as an elastic one, from one worker to ``factor`` times as many as it asks for."""
    most = max(job.replicas, int(job.replicas * factor))
    work = job.work
    if work.is_fixed and work.amount_us is not None:
        work = taking(work.amount_us / 1_000_000, job.replicas)
    return msgspec.structs.replace(job, min=1, max=most, work=work)
