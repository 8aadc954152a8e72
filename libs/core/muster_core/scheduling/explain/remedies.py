"""What a user, or the operator of a queue, may change so that a job starts."""

from __future__ import annotations

from collections.abc import Sequence

from muster_core.lifecycle.builds import BUILD_FAILED
from muster_core.models import JobRecord, Reason
from muster_core.scheduling import reasons
from muster_core.scheduling.explain.what_if import WhatIf
from muster_core.scheduling.placement import Shortfall
from muster_core.scheduling.placement.shortfall import NO_MATCHING_NODE
from muster_core.scheduling.placement.words import demand_in_words, listed
from muster_core.scheduling.reservations import LAUNCH_MARGIN_US, Reservation

NOW = "would start now "
"""What a remedy begins with that has been tried on the pool, and helps by itself."""

_US = 1_000_000
_MINUTE_S = 60


def remedies(reason: Reason, record: JobRecord) -> tuple[str, ...]:
    """What helps against a ``reason`` that is no matter of room, the nearest first; empty where only time does."""
    match reason.code:
        case reasons.NO_SUCH_QUEUE:
            return (f"apply queue {record.job.queue if record.job else ''}", "submit it to another queue")
        case reasons.NAME_IN_USE:
            return ("give it another name", "cancel the job that has the name")
        case reasons.BEHIND_FIRST:
            return ("give it a higher priority", "change the policy of the queue to fifo_skip")
        case _ if reason.code == BUILD_FAILED:
            return ("correct the build and submit both again",)
        case _:
            return ()


def remedies_for_room(
    reason: Reason, shortfall: Shortfall | None, what_if: WhatIf, behind: Reservation | None, now: int
) -> tuple[str, ...]:
    """What gives a waiting job room, what has been tried first; ``behind`` is what is kept for another in its way."""
    if shortfall is None:
        tried = [*what_if.with_fewer(), *what_if.with_less_for_others()]
        return (_with_limit(reason, what_if), *(f"{NOW}{change}" for change in tried))
    feasible = shortfall.feasible_when_empty
    room = list(what_if.with_more_room(feasible=feasible))
    tried = [
        *what_if.with_fewer(),
        *room,
        *what_if.with_less_for_others(),
        *what_if.with_fewer_rules(shortfall),
    ]
    short = [demand_in_words(miss.resource, miss.short) for miss in shortfall.misses]
    others = [f"free {listed(short)}"] if short and not what_if.others_come_first else []
    if behind is not None:
        tried += _in_time(behind, now)
        others = []
    elif reason.code == NO_MATCHING_NODE:
        others = _to_match(shortfall, tried)
    elif room or not feasible:
        others = [] if feasible else ["add nodes"]
    return (*(f"{NOW}{change}" for change in tried), *others)


def _with_limit(reason: Reason, what_if: WhatIf) -> str:
    """What the limit would have to be; it is no promise where there is no room beyond it."""
    resource = next(name.removeprefix("needed.") for name in reason.numbers if name.startswith("needed."))
    amount = reason.numbers[f"needed.{resource}"] + reason.numbers[f"held.{resource}"]
    queue = reason.message.partition(" may hold ")[0]
    if what_if.fits_without_limit():
        return f"{NOW}with the limit of {queue} raised to {demand_in_words(resource, amount)}"
    return f"raise the limit of {queue} to {demand_in_words(resource, amount)}, which makes no room by itself"


def _in_time(behind: Reservation, now: int) -> list[str]:
    """The deadline with which it would have ended before the room is needed."""
    bound_s = (behind.expected_at - now - LAUNCH_MARGIN_US) // _US if behind.expected_at is not None else 0
    return [f"with an active deadline of at most {_span(bound_s)}"] if bound_s > 0 else []


def _to_match(shortfall: Shortfall, tried: Sequence[str]) -> list[str]:
    if not shortfall.nodes:
        return ["add nodes"]
    more = ["add nodes that match"]
    return more if tried else ["change its node selector, affinity or tolerations", *more]


def _span(seconds: int) -> str:
    return f"{seconds // _MINUTE_S} min" if seconds >= 2 * _MINUTE_S else f"{seconds} s"
