"""Queues as tables, as a tree, and as documents that can be applied again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.protobuf import json_format
from rich.table import Table
from rich.text import Text

from muster._cli import formatting
from muster._cli.output import Cell, table
from muster_core.models import QueueElastic, QueueSpec, ResourceLimits, Resources
from muster_core.quantities import format_demand
from muster_formats.names import JsonObject
from muster_formats.queues import to_native_queue
from muster_rpc.convert import queue_from_proto, resources_from_proto
from muster_rpc.v1 import job_pb2, queue_service_pb2

_HEADERS = (
    "QUEUE", "GUARANTEED", "LIMIT", "USED", "SHARE", "FAIR SHARE", "BORROWED", "RUNNING", "WAITING", "OLDEST WAIT"
)  # fmt: skip
_MILLI = 10
"""Thousandths in one per cent."""


def queue_table(queues: Sequence[queue_service_pb2.Queue], now: float) -> Table:
    """Print queues in the given order."""
    return table(_HEADERS, [_row(queue.spec.name, queue, now) for queue in queues])


def tree_table(queues: Sequence[queue_service_pb2.Queue], now: float) -> Table:
    """Print queues as a tree."""
    return table(_HEADERS, [_row(name, queue, now) for name, queue in _drawn(queues)])


def queue_details(queue: queue_service_pb2.Queue, now: float) -> Iterator[tuple[str, str]]:
    """Print one queue as labels and values."""
    spec, status = queue_from_proto(queue.spec)[0], queue.status
    yield "Name", spec.name
    yield "Parent", spec.parent or "(the top)"
    yield "Guaranteed", _listed(spec.guaranteed) or "nothing"
    yield "Limit", _listed(spec.limit) or "none"
    yield "Weight", str(spec.weight)
    yield "Policy", spec.policy.value
    yield "Reservation", f"after {formatting.age(spec.starvation_after_s)}"
    yield "Preempts", _preempts(spec)
    if spec.namespaces:
        yield "Namespaces", ", ".join(spec.namespaces)
    if spec.elastic is not None:
        yield "Elastic", _elastic(spec.elastic)
    yield "Used", amounts(status.allocated) or "nothing"
    if borrowed := amounts(status.borrowed):
        yield "Borrowed", borrowed
    if in_use := amounts(status.guaranteed_in_use):
        yield "Of guaranteed", in_use
    yield "Share", f"{percent(status.share_milli)}, fair share {percent(status.fair_share_milli)}"
    oldest = f", the oldest for {_oldest(status, now)}" if status.waiting else ""
    yield "Jobs", f"{status.running} running, {status.waiting} waiting{oldest}"
    for kept in status.reservations:
        expected = (
            f", expected to start at {formatting.clock(kept.expected_at)}"
            if kept.HasField("expected_at")
            else ""
        )
        yield "Reserved", f"for {kept.name or kept.job_id} on {', '.join(kept.nodes)}{expected}"


def documents(queues: Sequence[queue_service_pb2.Queue]) -> list[JsonObject]:
    """Return queues as documents for ``apply``, with their status beside."""
    return [
        {
            **to_native_queue(queue_from_proto(queue.spec)[0]),
            "status": json_format.MessageToDict(queue.status),
        }
        for queue in queues
    ]


def amounts(resources: job_pb2.Resources) -> str:
    """Return ``4 CPU, 2 GPU``, or an empty text."""
    return _listed(resources_from_proto(resources))


def _listed(resources: Resources | ResourceLimits) -> str:
    named = resources.amounts().items()
    zero = isinstance(resources, ResourceLimits)
    return ", ".join(format_demand(name, amount) for name, amount in named if amount or zero)


def percent(milli: int) -> str:
    """Return thousandths as per cent."""
    return f"{milli / _MILLI:.1f}".removesuffix(".0") + "%"


def _row(name: Cell, queue: queue_service_pb2.Queue, now: float) -> tuple[Cell, ...]:
    spec, status = queue_from_proto(queue.spec)[0], queue.status
    return (
        name,
        _listed(spec.guaranteed) or "-",
        _listed(spec.limit) or "-",
        amounts(status.allocated) or "-",
        percent(status.share_milli),
        percent(status.fair_share_milli),
        Text(amounts(status.borrowed) or "-", style="yellow" if amounts(status.borrowed) else ""),
        str(status.running),
        str(status.waiting),
        _oldest(status, now),
    )


def _oldest(status: queue_service_pb2.QueueStatus, now: float) -> str:
    return formatting.since(status.oldest_wait_at, now)


def _preempts(spec: QueueSpec) -> str:
    preempted = [
        *(["jobs that borrow from its guarantee"] if spec.reclaims else []),
        *(["jobs of lower priority in the queue"] if spec.preempts_within else []),
    ]
    return ", ".join(preempted) or "no running jobs"


def _elastic(elastic: QueueElastic) -> str:
    parts = [
        elastic.policy or "the platform's policy",
        f"after an idle period of {formatting.age(elastic.idle_period_s)}",
    ]
    if elastic.cool_down_s:
        parts.append(f"{formatting.age(elastic.cool_down_s)} apart")
    if elastic.step:
        parts.append(f"at most {elastic.step} at once")
    return ", ".join([*parts, f"for a gain of at least {elastic.min_gain / 1000:g} workers"])


def _drawn(queues: Sequence[queue_service_pb2.Queue]) -> Iterator[tuple[str, queue_service_pb2.Queue]]:
    """Yield every queue after its parent, with its tree guides."""
    below: dict[str, list[queue_service_pb2.Queue]] = {}
    for queue in queues:
        below.setdefault(queue.spec.parent, []).append(queue)

    def draw(parent: str, indent: str) -> Iterator[tuple[str, queue_service_pb2.Queue]]:
        children = below.get(parent, [])
        for queue in children:
            last = queue is children[-1]
            name = queue.spec.name
            corner, more = ("└─ ", "   ") if last else ("├─ ", "│  ")
            yield f"{indent}{corner}{name}" if parent else name, queue
            yield from draw(name, f"{indent}{more}" if parent else "")

    yield from draw("", "")
