"""Tables of jobs, nodes and resource use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.table import Table
from rich.text import Text

from muster._cli import formatting
from muster._cli.output import Cell, table
from muster_core.models import replica_name
from muster_core.quantities import counted, listed
from muster_rpc.v1 import cluster_service_pb2, job_pb2, orphan_service_pb2

_KEYS: dict[str, Callable[[job_pb2.Job], tuple[int | str, ...]]] = {
    "age": lambda job: (),
    "name": lambda job: (job.name or job.job_id, job.namespace),
    "phase": lambda job: (job.status.phase,),
    "queue": lambda job: (job.status.queue,),
    "priority": lambda job: (-job.spec.priority,),
}
SORTS = tuple(_KEYS)
"""Sort orders of jobs; ties are newest first."""


def in_order(jobs: Iterable[job_pb2.Job], sort: str) -> list[job_pb2.Job]:
    """Return jobs in one of ``SORTS``."""
    key = _KEYS[sort]
    return sorted(jobs, key=lambda job: (*key(job), -job.status.submitted_at.ToMicroseconds()))


def job_table(jobs: Sequence[job_pb2.Job], now: float) -> Table:
    """Print jobs in the given order. Ids and namespaces appear only if names alone are ambiguous."""
    names = [(job.namespace, job.name) for job in jobs]
    ambiguous = len(set(names)) < len(names)
    spread = len({job.namespace for job in jobs}) > 1
    rows = [
        (
            job.namespace if spread else "",
            job.name or job.job_id,
            job.job_id if ambiguous else "",
            Text(formatting.phase_of(job), style=formatting.phase_style(job)),
            formatting.running_of_all(job),
            job.status.queue,
            formatting.since(job.status.submitted_at, now),
            job.status.address,
            job.status.reason.message or job.status.reason.code,
        )
        for job in jobs
    ]
    return table(("NAMESPACE", "NAME", "ID", "PHASE", "REPLICAS", "QUEUE", "AGE", "ADDRESS", "REASON"), rows)


def instance_table(instances: Sequence[cluster_service_pb2.Instance], now: float) -> Table:
    """Print a row for each instance of a service."""
    rows = [(one.service, one.name, one.version, formatting.since(one.started_at, now)) for one in instances]
    return table(("SERVICE", "INSTANCE", "VERSION", "AGE"), rows)


def orphan_table(orphans: Sequence[orphan_service_pb2.Orphan], now: float) -> Table:
    """Print a row for each orphan; replicas are those that run, of all."""
    rows = [
        (
            orphan.job_id,
            orphan.name,
            _queue_of(orphan),
            _running_of_all(orphan),
            formatting.since(orphan.found_at, now),
            _removal(orphan, now),
            ",".join(sorted({replica.node for replica in orphan.replicas if replica.node})),
        )
        for orphan in orphans
    ]
    return table(("JOB", "NAME", "QUEUE", "REPLICAS", "SINCE", "REMOVED IN", "NODES"), rows)


def _queue_of(orphan: orphan_service_pb2.Orphan) -> str:
    queue = orphan.queue or ("default" if orphan.name else "")
    return queue if orphan.namespace in {"", "default"} else f"{orphan.namespace}/{queue}"


def _running_of_all(orphan: orphan_service_pb2.Orphan) -> str:
    running = [one for one in orphan.replicas if one.state == job_pb2.REPLICA_STATE_RUNNING]
    return f"{len(running)}/{len(orphan.replicas)}"


def _removal(orphan: orphan_service_pb2.Orphan, now: float) -> str:
    left = formatting.instant(orphan.removal_at) - now
    return "now" if orphan.removal_requested or left <= 0 else formatting.age(left)


_ROLE_LABEL = "node-role.kubernetes.io/"
_NODE_NUMBERS = ("GPU(TOTAL)", "GPU(ALLOCATED)", "CPU", "MEMORY")


def node_table(nodes: Sequence[cluster_service_pb2.Node]) -> Table:
    """Print a row for each node. CPU and memory show total use; GPUs allocated are Muster's."""
    headers = ("NAME", "POOL", "ADDRESS", "ROLE", "STATUS", *_NODE_NUMBERS, "FOREIGN")
    return table(headers, [_row(one) for one in nodes], right=_NODE_NUMBERS)


def replica_table(nodes: Sequence[cluster_service_pb2.Node]) -> Table | None:
    """Print a row for each replica on its node with its GPUs, if there are any."""
    rows = [
        (
            one.name,
            replica_name(replica.job, replica.replica.role, replica.replica.index),
            replica.job or replica.job_id,
            job_pb2.ReplicaState.Name(replica.state).removeprefix("REPLICA_STATE_").lower(),
            formatting.gpu_list(replica.gpus),
            formatting.gpus(replica.requests.gpu_milli) if replica.requests.gpu_milli else "",
            formatting.cpus(replica.requests.cpu_milli),
            formatting.gibibytes(replica.requests.memory_bytes) if replica.requests.memory_bytes else "",
        )
        for one in nodes
        for replica in one.replicas
    ]
    headers = ("NODE", "REPLICA", "JOB", "STATE", "GPUS", "GPU", "CPU", "MEMORY")
    return table(headers, rows, right=("GPU", "CPU", "MEMORY")) if rows else None


def cluster_lines(nodes: Sequence[cluster_service_pb2.Node]) -> list[str]:
    """Return the totals of all nodes with percentages, and what others use."""
    allocated, offered, foreign = job_pb2.Resources(), job_pb2.Resources(), job_pb2.Resources()
    for one in nodes:
        for total, part in ((allocated, one.allocated), (offered, one.allocatable), (foreign, one.foreign)):
            total.cpu_milli += part.cpu_milli
            total.memory_bytes += part.memory_bytes
            total.gpu_milli += part.gpu_milli
    parts = [
        _part("CPU", formatting.cpus, allocated.cpu_milli, offered.cpu_milli),
        _part("memory", formatting.gibibytes, allocated.memory_bytes, offered.memory_bytes),
    ]
    if offered.gpu_milli:
        parts.insert(0, _part("GPU", formatting.gpus, allocated.gpu_milli, offered.gpu_milli))
    others = _foreign(foreign)
    first = f"Allocated on {counted(len(nodes), 'node')}: {', '.join(parts)}"
    return [first, *([f"Used by others: {others}"] if others else [])]


def _row(one: cluster_service_pb2.Node) -> tuple[Cell, ...]:
    used_cpu = one.allocated.cpu_milli + one.foreign.cpu_milli
    used_memory = one.allocated.memory_bytes + one.foreign.memory_bytes
    has_gpus = bool(one.allocatable.gpu_milli)
    return (
        one.name,
        one.pool if one.pool != "local" else "",
        one.address,
        ",".join(sorted(key.removeprefix(_ROLE_LABEL) for key in one.labels if key.startswith(_ROLE_LABEL))),
        _status(one),
        formatting.gpus(one.allocatable.gpu_milli) if has_gpus else "",
        formatting.gpus(one.allocated.gpu_milli) if has_gpus else "",
        f"{formatting.cpus(used_cpu)}/{formatting.cpus(one.allocatable.cpu_milli)}",
        f"{formatting.gibibytes(used_memory)}/{formatting.gibibytes(one.allocatable.memory_bytes)}",
        _foreign(one.foreign),
    )


def _status(one: cluster_service_pb2.Node) -> Text:
    if not one.ready:
        return Text("not ready", style="red")
    return Text("cordoned", style="yellow") if one.unschedulable else Text("ready", style="green")


def _foreign(used: job_pb2.Resources) -> str:
    parts = [
        f"{formatting.gpus(used.gpu_milli)} GPU" if used.gpu_milli else "",
        f"{formatting.cpus(used.cpu_milli)} CPU" if used.cpu_milli else "",
        formatting.gibibytes(used.memory_bytes) if used.memory_bytes else "",
    ]
    return ", ".join(part for part in parts if part)


def _part(what: str, in_words: Callable[[int], str], amount: int, whole: int) -> str:
    share = f" ({formatting.percent(amount, whole)})" if whole else ""
    return f"{what} {in_words(amount)}/{in_words(whole)}{share}"


_NODES_NAMED = 2
_USAGE_NUMBERS = ("RUNNING", "GPU(REQUESTED)", "GPU(ALLOCATED)", "AGE")


def usage_table(jobs: Sequence[job_pb2.Job], now: float) -> Table:
    """Print a row for each job, in the given order."""
    spread = len({job.namespace for job in jobs}) > 1
    rows = [
        (
            job.namespace if spread else "",
            job.name or job.job_id,
            Text(formatting.phase_of(job), style=formatting.phase_style(job)),
            job.status.queue,
            f"{_running(job)}/{_wanted(job)}",
            formatting.gpus(requested(job)),
            formatting.gpus(allocated(job)),
            formatting.since(job.status.submitted_at, now),
            listed(sorted({one.node for one in _holding(job)}), _NODES_NAMED),
        )
        for job in jobs
    ]
    headers = ("NAMESPACE", "NAME", "STATUS", "QUEUE", *_USAGE_NUMBERS, "NODES")
    return table(headers, rows, right=_USAGE_NUMBERS)


def replica_usage_table(jobs: Sequence[job_pb2.Job], now: float) -> Table | None:
    """Print a row for each replica with an allocation, by job, if there are any."""
    rows = [
        (
            job.name or job.job_id,
            formatting.short_name(job, one.name),
            formatting.state_of(one),
            one.node,
            formatting.gpu_list(one.gpus),
            formatting.gpus(_gpu_of(job, one.role, one.index)) if _gpu_of(job, one.role, one.index) else "",
            formatting.cpus(_requests(job, one.role, one.index).cpu_milli),
            formatting.since(one.running_at if one.HasField("running_at") else one.placed_at, now),
        )
        for job in jobs
        for one in _holding(job)
    ]
    headers = ("JOB", "REPLICA", "STATE", "NODE", "GPUS", "GPU", "CPU", "AGE")
    return table(headers, rows, right=("GPU", "CPU", "AGE")) if rows else None


def usage_line(jobs: Sequence[job_pb2.Job]) -> str:
    """Return the totals of all jobs."""
    gpus = (
        f"{formatting.gpus(sum(map(allocated, jobs)))} of {formatting.gpus(sum(map(requested, jobs)))} GPUs"
    )
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
    return sum(1 for one in formatting.members(job) if one.state == job_pb2.REPLICA_STATE_RUNNING)


def _wanted(job: job_pb2.Job) -> int:
    """Return the requested replicas, or those the job has grown to."""
    present = [one for one in formatting.members(job) if not one.HasField("ended_at")]
    return max(sum(role.replicas for role in job.spec.roles), len(present))


def _gpu_of(job: job_pb2.Job, role: str, index: int) -> int:
    return _requests(job, role, index).gpu_milli


def _requests(job: job_pb2.Job, role: str, index: int) -> job_pb2.Resources:
    for one in job.spec.roles:
        if one.name == role:
            return one.overrides.get(index, one.template).requests
    return job_pb2.Resources()
