"""Who waits for room, and for how long: whom others may have to shrink for, and whom growth must not forestall."""

from __future__ import annotations

from typing import NamedTuple

from muster_core.models import JobRecord, QueuePolicy
from muster_core.scheduling.queues import QueueKey, SchedulingClass, gang_amounts, minimum_gang
from muster_core.scheduling.state import Transaction

_US = 1_000_000
_FROM_ONE_LINE = 8


class Head(NamedTuple):
    """A job that waits for room in ``line``; it has waited too long from ``starves_at`` (µs) on."""

    starves_at: int
    key: QueueKey
    record: JobRecord
    line: SchedulingClass


def heads_of(transaction: Transaction) -> dict[str, list[Head]]:
    """By queue, whoever waits for nothing but room that the empty pool would have, in the order of the queue.

    Of equal gangs only a few are looked at; in a strict queue nobody but the first.
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
    """Those who have waited too long: the queue whose first waits longest goes first, then the order of the queue."""
    queues = sorted(heads.values(), key=lambda waiting: (waiting[0].starves_at, waiting[0].key))
    return [head for waiting in queues for head in waiting if head.starves_at <= now]


def is_forestalled(heads: dict[str, list[Head]], now: int) -> bool:
    """Whether the first of a queue may yet start, or be made room for: who grew now would take what it hopes for."""
    return any(waiting[0].starves_at > now for waiting in heads.values())


def starves_next(heads: dict[str, list[Head]], now: int) -> int | None:
    """The next instant (µs) at which somebody has waited too long."""
    instants = (head.starves_at for waiting in heads.values() for head in waiting)
    return min((at for at in instants if at > now), default=None)
