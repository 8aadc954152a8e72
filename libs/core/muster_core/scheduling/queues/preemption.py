"""Whose room is taken for a claim: the least that makes the gang really fit, or nothing.

What a job has above its minimum goes first, the newest members first; then whole gangs, the lowest priority first and the youngest
of it. All of it is tried on the pool; what turns out not to be needed is given back, the dearest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from muster_core.events import ReplicaRef
from muster_core.lifecycle.moves import ACTIVE_PHASES
from muster_core.models import JobRecord, Reason
from muster_core.scheduling.placement import Placement, find_room
from muster_core.scheduling.placement.words import counted
from muster_core.scheduling.queues import reasons
from muster_core.scheduling.queues.claims import Claim, right_over
from muster_core.scheduling.queues.departures import Allocations
from muster_core.scheduling.queues.instructions import Evict, Resize
from muster_core.scheduling.queues.leavers import Leaver, first_fit
from muster_core.scheduling.queues.ledger import amounts_of
from muster_core.scheduling.queues.sizes import smallest
from muster_core.scheduling.queues.surplus import surplus
from muster_core.scheduling.queues.transaction import Transaction

POLICY = "preemption"
"""The policy's name of a size that a claim has forced."""

_MOST_UNITS = 512


class _Unit(NamedTuple):
    """What is taken at once: one replica above the minimum (``ref``), or all that is left of a gang; ``code`` says by what right."""

    record: JobRecord
    holds: Allocations
    code: str
    ref: ReplicaRef | None


def make_room(claim: Claim, transaction: Transaction) -> Placement | None:
    """Where the floor of the claim's gang fits, after what is on its way out has left and whoever must leave too; None where nothing helps.

    The victims are told; their room stays released inside the open transaction.
    """
    gang = smallest(claim.shape.gang)

    def fits() -> Placement | None:
        if transaction.ledger.barrier(claim.shape.queue, claim.needed) is not None:
            return None
        return find_room(gang, transaction.snapshot)

    fitting = fits()
    if fitting is not None:
        return fitting
    units = _units(claim, transaction)
    if not units:
        return None
    mark = transaction.checkpoint()
    found = first_fit(transaction, [Leaver(one.record, one.holds, None) for one in units], gang, fits)
    if found is None:
        transaction.rollback(mark)
        return None
    number, fitting = found
    needed, fitting = _give_back(units[:number], fitting, fits, transaction)
    transaction.commit(mark)
    _tell(claim, needed, transaction)
    return fitting


def _units(claim: Claim, transaction: Transaction) -> list[_Unit]:
    """Everything that may be taken, in order; a right is looked at again after each, since a queue may borrow no longer."""
    victims = [
        record
        for record in transaction.index.records.values()
        if record.phase in ACTIVE_PHASES
        and not record.cancel_requested
        and record.job_id not in transaction.touched
        and record.job_id in transaction.index.allocations
        and right_over(claim, record, transaction) is not None
    ]
    victims.sort(key=_victim_order)
    units: list[_Unit] = []
    mark = transaction.ledger.checkpoint()
    for above in (True, False):
        for record in victims:
            taken = {key for unit in units if unit.record is record for key, _ in unit.holds}
            for ref, holds in (
                surplus(record, transaction.index.allocations[record.job_id])
                if above
                else _gang(record, taken, transaction)
            ):
                code = right_over(claim, record, transaction)
                if code is None or not holds or len(units) >= _MOST_UNITS:
                    break
                account = transaction.index.tree.account_of(record)
                transaction.ledger.take(account, amounts_of(hold for _, hold in holds))
                units.append(_Unit(record, holds, code, ref))
    transaction.ledger.rollback(mark)
    return units


def _victim_order(record: JobRecord) -> tuple[int, int, str]:
    return (record.job.priority if record.job else 0, -record.placed_at, record.job_id)


def _gang(
    record: JobRecord, taken: set[tuple[str, int, str, int]], transaction: Transaction
) -> Iterator[tuple[None, Allocations]]:
    """Whatever the job still holds and is not on its way out."""
    held = transaction.index.allocations[record.job_id]
    here = transaction.snapshot.holds
    yield None, tuple((key, hold) for key, hold in held.items() if key not in taken and key in here)


def _give_back(
    units: list[_Unit], found: Placement, fits: Callable[[], Placement | None], transaction: Transaction
) -> tuple[list[_Unit], Placement]:
    """What of ``units``, all released, is needed for the gang to fit, and where it then goes."""
    needed: list[_Unit] = []
    for unit in reversed(units):
        gone = any(one.record is unit.record and one.ref is None for one in needed)
        if not gone:
            transaction.hold_again(unit.record, unit.holds)
            still = fits()
            if still is not None:
                found = still
                continue
            transaction.release(unit.record, unit.holds)
        needed.append(unit)
    return needed[::-1], found


def _tell(claim: Claim, units: list[_Unit], transaction: Transaction) -> None:
    by_job: dict[str, list[_Unit]] = {}
    for unit in units:
        by_job.setdefault(unit.record.job_id, []).append(unit)
    for job_id, taken in by_job.items():
        record = taken[0].record
        removed = tuple(one.ref for one in taken if one.ref is not None)
        if any(one.ref is None for one in taken):
            reason = _reason(taken[-1].code, claim, "all of it")
            transaction.say(Evict(job_id=job_id, attempt=record.attempt, reason=reason))
            continue
        transaction.say(
            Resize(
                job_id=job_id,
                attempt=record.attempt,
                generation=record.generation + 1,
                removed=removed,
                reason=_reason(taken[0].code, claim, counted(len(removed), "replica")),
                policy=POLICY,
            )
        )


def _reason(code: str, claim: Claim, what: str) -> Reason:
    job = claim.record.job
    who = f"{claim.record.name} ({claim.record.job_id})"
    priority = job.priority if job else 0
    if code == reasons.RECLAIMED:
        message = f"{what} makes room for {who}: queue {claim.shape.queue} takes back what it is guaranteed"
    else:
        message = f"{what} makes room for {who}, which has priority {priority}"
    return Reason(code=code, message=message, numbers={"priority": priority})
