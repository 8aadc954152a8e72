"""Why lines find no room, looked at now and then.

That a gang does not fit is known at once; why, in numbers, costs several times as much, and numbers that nobody is told yet are of no
use. So a line is looked at again only so often that all lines together cost little. What is not looked at is not told either: whatever is
said is so at that instant, and who decides again on the same events, looking at everything, finds it again.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple

from muster_core.models import Reason
from muster_core.scheduling.placement import Gang, Placement, place, to_reason
from muster_core.scheduling.queues import reasons
from muster_core.scheduling.queues.keeping import KeptRoom
from muster_core.scheduling.queues.lines import Line, Look
from muster_core.scheduling.queues.transaction import Transaction

LOOK_US_PER_LINE = 10_000
"""How long a line is not looked at again, for each line that there is."""


class Tried(NamedTuple):
    """A line's first job in turn, and the gang that found no room: the job's, as large as the limits allow it."""

    job_id: str
    gang: Gang


class Looked(NamedTuple):
    """The reasons of lines, those that were ``passed_over``, and the instant (µs) at which one of these is to be looked at, if any."""

    reasons: dict[Line, Reason]
    passed_over: frozenset[Line]
    again_at: int | None


def look_at(short: Mapping[Line, Tried], transaction: Transaction, kept: KeptRoom, every_us: int) -> Looked:
    """Why the lines of ``short`` have no room for their gangs, as the pool stands now in this pass.

    A line is looked at again where room, running jobs or what is kept have changed, and at most once in ``every_us`` for each line that
    there is: with 10 ms, a few shapes are always up to date, a thousand are within ten seconds. One with somebody who has not heard
    anything yet is looked at whenever it is asked for.
    """
    every = every_us * len(transaction.index.lines.shapes)
    basis = None if transaction.done else (transaction.index.version, kept.reservations)
    stale = [line for line in short if line.unheard or not _is_known(line.look, basis)]
    due = [line for line in stale if line.unheard or _is_due(line.look, transaction.now, every)]
    if due:
        kept.lift_all()
        for line in due:
            line.look = Look(transaction.now, basis, _reason(short[line], line, transaction, kept))
        kept.stand()
    passed_over = frozenset(stale).difference(due)
    found = {
        line: line.look.reason
        for line in short
        if line not in passed_over and line.look is not None and line.look.reason is not None
    }
    later = [line.look.at + every for line in passed_over if line.look is not None]
    return Looked(found, passed_over, min(later, default=None))


def _is_known(look: Look | None, basis: Hashable) -> bool:
    return look is not None and basis is not None and look.basis == basis


def _is_due(look: Look | None, now: int, every: int) -> bool:
    # At one instant everything is said as if for the first time, so that the same question has the same answer.
    return look is None or look.at >= now or look.at + every <= now


def _reason(tried: Tried, line: Line, transaction: Transaction, kept: KeptRoom) -> Reason | None:
    """Why a gang has no room while none is kept; or that it is kept, and for whom.

    None where there is room, which somebody who has started since the gang was tried has left over: it is for the next pass.
    """
    found = place(tried.gang, transaction.snapshot, feasible=transaction.feasible.get(tried.gang))
    if not isinstance(found, Placement):
        transaction.feasible[tried.gang] = found.feasible_when_empty
        return to_reason(found)
    first = kept.first_before(tried.job_id, line.shape, transaction.now)
    if first is None:
        return None
    return reasons.behind_reservation(transaction.index.records[first.job_id].name, first.nodes)
