"""Tables of resource use by job: GPUs requested and allocated, replicas, nodes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from muster._cli import words
from muster._cli.tables import table
from muster_core.quantities import counted, listed
from muster_rpc.v1 import job_pb2

_NODES_NAMED = 2
_NUMBERS = ("RUNNING", "GPU(REQUESTED)", "GPU(ALLOCATED)", "AGE")


def usage_table(jobs: Sequence[job_pb2.Job], now: float) -> Table:
    """Print a row for each job, in the given order."""
    spread = len({job.namespace for job in jobs}) > 1
    rows = [
        (
            job.namespace if spread else "",
            job.name or job.job_id,
            Text(words.phase_of(job), style=words.phase_style(job)),
            job.status.queue,
            f"{_running(job)}/{_wanted(job)}",
            words.gpus(requested(job)),
            words.gpus(allocated(job)),
            words.since(job.status.submitted_at, now),
            listed(sorted({one.node for one in _holding(job)}), _NODES_NAMED),
        )
        for job in jobs
    ]
    headers = ("NAMESPACE", "NAME", "STATUS", "QUEUE", *_NUMBERS, "NODES")
    return table(headers, rows, right=_NUMBERS)


def replica_usage_table(jobs: Sequence[job_pb2.Job], now: float) -> Table | None:
    """Print a row for each replica with an allocation, by job, if there are any."""
    rows = [
        (
            job.name or job.job_id,
            words.short_name(job, one.name),
            words.state_of(one),
            one.node,
            words.gpu_list(one.gpus),
            words.gpus(_gpu_of(job, one.role, one.index)) if _gpu_of(job, one.role, one.index) else "",
            words.cpus(_requests(job, one.role, one.index).cpu_milli),
            words.since(one.running_at if one.HasField("running_at") else one.placed_at, now),
        )
        for job in jobs
        for one in _holding(job)
    ]
    headers = ("JOB", "REPLICA", "STATE", "NODE", "GPUS", "GPU", "CPU", "AGE")
    return table(headers, rows, right=("GPU", "CPU", "AGE")) if rows else None


def usage_line(jobs: Sequence[job_pb2.Job]) -> str:
    """Return the totals of all jobs."""
    gpus = f"{words.gpus(sum(map(allocated, jobs)))} of {words.gpus(sum(map(requested, jobs)))} GPUs"
    replicas = f"{sum(map(_running, jobs))} of {counted(sum(map(_wanted, jobs)), 'replica')}"
    return f"{counted(len(jobs), 'job')}: {gpus} allocated, {replicas} running"


def requested(job: job_pb2.Job) -> int:
    """Return the milli-GPUs requested at the start."""
    return sum(_gpu_of(job, role.name, index) for role in job.spec.roles for index in range(role.replicas))


def allocated(job: job_pb2.Job) -> int:
    """Return the allocated milli-GPUs, terminating replicas included."""
    return sum(_gpu_of(job, one.role, one.index) for one in _holding(job))


def _holding(job: job_pb2.Job) -> list[job_pb2.Replica]:
    return [one for one in job.status.replicas if not one.HasField("ended_at")]


def _running(job: job_pb2.Job) -> int:
    return sum(1 for one in words.members(job) if one.state == job_pb2.REPLICA_STATE_RUNNING)


def _wanted(job: job_pb2.Job) -> int:
    """Return the requested replicas, or those the job has grown to."""
    present = [one for one in words.members(job) if not one.HasField("ended_at")]
    return max(sum(role.replicas for role in job.spec.roles), len(present))


def _gpu_of(job: job_pb2.Job, role: str, index: int) -> int:
    return _requests(job, role, index).gpu_milli


def _requests(job: job_pb2.Job, role: str, index: int) -> job_pb2.Resources:
    for one in job.spec.roles:
        if one.name == role:
            return one.overrides.get(index, one.template).requests
    return job_pb2.Resources()
