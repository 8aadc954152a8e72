"""What a user, or the operator of a queue, may change so that a job starts."""

from __future__ import annotations

from muster_core.lifecycle.builds import BUILD_FAILED
from muster_core.models import JobRecord, Reason
from muster_core.placement.shortfall import INSUFFICIENT_RESOURCES, NO_MATCHING_NODE
from muster_core.placement.words import counted, demand_in_words
from muster_core.queues import reasons


def remedies(reason: Reason, record: JobRecord) -> tuple[str, ...]:
    """What helps against ``reason``, the nearest first; empty where only time does."""
    match reason.code:
        case reasons.SUSPENDED:
            return ("resume it",)
        case reasons.NO_SUCH_QUEUE:
            return (f"apply queue {record.job.queue if record.job else ''}", "submit it to another queue")
        case reasons.NAME_IN_USE:
            return ("give it another name", "cancel the job that has the name")
        case reasons.BEHIND_FIRST:
            return ("give it a higher priority", "change the policy of the queue to fifo_skip")
        case reasons.BEHIND_RESERVATION:
            return ("give it an active deadline that ends before the reservation starts",)
        case reasons.QUEUE_LIMIT:
            return _within_limit(reason)
        case _ if reason.code == INSUFFICIENT_RESOURCES:
            return _with_less(reason)
        case _ if reason.code == NO_MATCHING_NODE:
            return ("change its node selector, affinity or tolerations", "add nodes that match")
        case _ if reason.code == BUILD_FAILED:
            return ("correct the build and submit both again",)
        case _:
            return ()


def _within_limit(reason: Reason) -> tuple[str, ...]:
    resource = next(name.removeprefix("needed.") for name in reason.numbers if name.startswith("needed."))
    needed, held = reason.numbers[f"needed.{resource}"], reason.numbers[f"held.{resource}"]
    return (
        f"raise the limit to {demand_in_words(resource, needed + held)}",
        "lower the minimum of its replicas",
    )


def _with_less(reason: Reason) -> tuple[str, ...]:
    fits = reason.numbers.get("fits_now_replicas", 0)
    fewer = (f"let it start with {counted(fits, 'replica')}",) if fits else ()
    short = sorted(name for name in reason.numbers if name.startswith("short."))
    free = tuple(
        f"free {demand_in_words(name.removeprefix('short.'), reason.numbers[name])}" for name in short
    )
    return (*fewer, *free)
