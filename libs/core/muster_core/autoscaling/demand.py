"""Demand: the jobs that wait for capacity. Others may shrink for the starved ones, and growth must not delay the first."""

from __future__ import annotations

from typing import NamedTuple

from muster_core.models import JobRecord, QueuePolicy
from muster_core.scheduling.queues import QueueKey, SchedulingClass, gang_amounts, minimum_gang
from muster_core.scheduling.state import Transaction

_US = 1_000_000
_JOBS_OF_A_CLASS = 8


class WaitingJob(NamedTuple):
    """A job that waits for capacity; it is starved from ``starves_at`` (µs) on."""

    starves_at: int
    key: QueueKey
    record: JobRecord
    scheduling_class: SchedulingClass


def waiting_jobs(transaction: Transaction) -> dict[str, list[WaitingJob]]:
    """Return by queue the jobs that wait only for capacity that the empty pool has, in queue order.

    Of a scheduling class only the first few jobs are returned, of a strict queue only the first job.
    """
    waiting: dict[str, list[WaitingJob]] = {}
    for scheduling_class in transaction.index.classes:
        queue, gang = scheduling_class.key.queue, scheduling_class.key.gang
        if transaction.ledger.exceeded_limit(queue, gang_amounts(minimum_gang(gang))) is not None:
            continue
        if not transaction.is_feasible(gang):
            continue
        threshold_us = transaction.index.tree.specs[queue].starvation_after_s * _US
        for key in scheduling_class.jobs[:_JOBS_OF_A_CLASS]:
            if transaction.is_eligible(key[2]):
                record = transaction.index.records[key[2]]
                job = WaitingJob(record.waiting_since + threshold_us, key, record, scheduling_class)
                waiting.setdefault(queue, []).append(job)
    for queue, jobs in waiting.items():
        jobs.sort(key=lambda job: job.key)
        if transaction.index.tree.specs[queue].policy is QueuePolicy.STRICT_FIFO:
            del jobs[1:]
    return waiting


def starved_jobs(waiting: dict[str, list[WaitingJob]], now: int) -> list[WaitingJob]:
    """Return the starved jobs: the queue with the longest wait first, then queue order."""
    queues = sorted(waiting.values(), key=lambda jobs: (jobs[0].starves_at, jobs[0].key))
    return [job for jobs in queues for job in jobs if job.starves_at <= now]


def blocks_scale_up(waiting: dict[str, list[WaitingJob]], now: int) -> bool:
    """Return whether the first job of a queue is not starved yet: it may still start on what growth would take."""
    return any(jobs[0].starves_at > now for jobs in waiting.values())


def next_starvation(waiting: dict[str, list[WaitingJob]], now: int) -> int | None:
    """Return the next time (µs) at which a job becomes starved."""
    return min(
        (job.starves_at for jobs in waiting.values() for job in jobs if job.starves_at > now), default=None
    )
