"""Tables of nodes: capacity, use, and totals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table
from rich.text import Text

from muster._cli import words
from muster._cli.tables import Cell, table
from muster_core.models import replica_name
from muster_core.quantities import counted
from muster_rpc.v1 import cluster_service_pb2, job_pb2

_ROLE_LABEL = "node-role.kubernetes.io/"
_NUMBERS = ("GPU(TOTAL)", "GPU(ALLOCATED)", "CPU", "MEMORY")


def node_table(nodes: Sequence[cluster_service_pb2.Node]) -> Table:
    """Print a row for each node. CPU and memory show total use; GPUs allocated are Muster's."""
    headers = ("NAME", "POOL", "ADDRESS", "ROLE", "STATUS", *_NUMBERS, "FOREIGN")
    return table(headers, [_row(one) for one in nodes], right=_NUMBERS)


def replica_table(nodes: Sequence[cluster_service_pb2.Node]) -> Table | None:
    """Print a row for each replica on its node with its GPUs, if there are any."""
    rows = [
        (
            one.name,
            replica_name(replica.job, replica.replica.role, replica.replica.index),
            replica.job or replica.job_id,
            job_pb2.ReplicaState.Name(replica.state).removeprefix("REPLICA_STATE_").lower(),
            words.gpu_list(replica.gpus),
            words.gpus(replica.requests.gpu_milli) if replica.requests.gpu_milli else "",
            words.cpus(replica.requests.cpu_milli),
            words.gibibytes(replica.requests.memory_bytes) if replica.requests.memory_bytes else "",
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
        _part("CPU", words.cpus, allocated.cpu_milli, offered.cpu_milli),
        _part("memory", words.gibibytes, allocated.memory_bytes, offered.memory_bytes),
    ]
    if offered.gpu_milli:
        parts.insert(0, _part("GPU", words.gpus, allocated.gpu_milli, offered.gpu_milli))
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
        words.gpus(one.allocatable.gpu_milli) if has_gpus else "",
        words.gpus(one.allocated.gpu_milli) if has_gpus else "",
        f"{words.cpus(used_cpu)}/{words.cpus(one.allocatable.cpu_milli)}",
        f"{words.gibibytes(used_memory)}/{words.gibibytes(one.allocatable.memory_bytes)}",
        _foreign(one.foreign),
    )


def _status(one: cluster_service_pb2.Node) -> Text:
    if not one.ready:
        return Text("not ready", style="red")
    return Text("cordoned", style="yellow") if one.unschedulable else Text("ready", style="green")


def _foreign(used: job_pb2.Resources) -> str:
    parts = [
        f"{words.gpus(used.gpu_milli)} GPU" if used.gpu_milli else "",
        f"{words.cpus(used.cpu_milli)} CPU" if used.cpu_milli else "",
        words.gibibytes(used.memory_bytes) if used.memory_bytes else "",
    ]
    return ", ".join(part for part in parts if part)


def _part(what: str, in_words: Callable[[int], str], amount: int, whole: int) -> str:
    share = f" ({words.percent(amount, whole)})" if whole else ""
    return f"{what} {in_words(amount)}/{in_words(whole)}{share}"
