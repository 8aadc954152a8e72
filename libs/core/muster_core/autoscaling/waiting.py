"""Starved and waiting jobs: for which jobs others may shrink, and which growth must not overtake."""

from __future__ import annotations

from typing import NamedTuple

from muster_core.models import JobRecord, QueuePolicy
from muster_core.scheduling.queues import QueueKey, SchedulingClass, gang_amounts, minimum_gang
from muster_core.scheduling.state import Transaction

_US = 1_000_000
_FROM_ONE_LINE = 8


class Head(NamedTuple):
    """A job that waits for capacity in ``line``; it is starved from ``starves_at`` (µs) on."""

    starves_at: int
    key: QueueKey
    record: JobRecord
    line: SchedulingClass


def heads_of(transaction: Transaction) -> dict[str, list[Head]]:
    """Return by queue the jobs that wait only for capacity that the empty pool has, in queue order.

    Of equal gangs only a few are evaluated; in a strict queue only the first.
    """
    heads: dict[str, list[Head]] = {}
    for line in transaction.index.classes:
        shape = line.key
        if transaction.ledger.exceeded_limit(shape.queue, gang_amounts(minimum_gang(shape.gang))) is not None:
            continue
        if not transaction.is_feasible(shape.gang):
            continue
        patience = transaction.index.tree.specs[shape.queue].starvation_after_s * _US
        for key in [key for key in line.jobs[:_FROM_ONE_LINE] if transaction.is_eligible(key[2])]:
            record = transaction.index.records[key[2]]
            head = Head(record.waiting_since + patience, key, record, line)
            heads.setdefault(shape.queue, []).append(head)
    for queue, waiting in heads.items():
        waiting.sort(key=lambda head: head.key)
        if transaction.index.tree.specs[queue].policy is QueuePolicy.STRICT_FIFO:
            del waiting[1:]
    return heads


def starved(heads: dict[str, list[Head]], now: int) -> list[Head]:
    """Return the starved jobs: the queue with the longest wait first, then queue order."""
    queues = sorted(heads.values(), key=lambda waiting: (waiting[0].starves_at, waiting[0].key))
    return [head for waiting in queues for head in waiting if head.starves_at <= now]


def is_forestalled(heads: dict[str, list[Head]], now: int) -> bool:
    """Return whether the first job of a queue may still start or get capacity freed, which growth now would take away."""
    return any(waiting[0].starves_at > now for waiting in heads.values())


def starves_next(heads: dict[str, list[Head]], now: int) -> int | None:
    """Return the next time (µs) at which a job becomes starved."""
    instants = (head.starves_at for waiting in heads.values() for head in waiting)
    return min((at for at in instants if at > now), default=None)
