"""Who may take room by force, and of whom: a queue within what it is guaranteed of those that borrow, a priority of lower ones.

Nobody can take back what was taken from him: a borrower is above its guarantee, a lower priority is lower.

Whose room is taken for a claim: the least that makes the gang really fit, or nothing.

What a job has above its minimum goes first, the newest members first; then whole gangs, the lowest priority first and the youngest
of it. All of it is tried on the pool; what turns out not to be needed is given back, the dearest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from muster_core.events import ReplicaRef
from muster_core.lifecycle.moves import ACTIVE_PHASES, WAITING_PHASES
from muster_core.models import JobRecord, Reason
from muster_core.scheduling import reasons
from muster_core.scheduling.placement import Placement, find_room
from muster_core.scheduling.placement.words import counted
from muster_core.scheduling.queues import (
    Amounts,
    QueueKey,
    SchedulingKey,
    amounts_of,
    gang_amounts,
    minimum_gang,
)
from muster_core.scheduling.reasons import PREEMPTED, RECLAIMED
from muster_core.scheduling.reservations.expected_releases import ExpectedRelease, earliest_placement
from muster_core.scheduling.state import Allocations, Evict, Resize, Transaction, surplus


class Preemptor(NamedTuple):
    """A job that is entitled: ``covered`` are the queues of its path whose guarantee covers it, ``within`` whether its priority counts."""

    record: JobRecord
    shape: SchedulingKey
    needed: Amounts
    covered: frozenset[str]
    within: bool


_Standing = tuple[int, ...]


class _Rival(NamedTuple):
    """A job of lower priority that is, or was, in the way: ``since`` (µs) it waits, None while it holds room."""

    priority: int
    since: int | None


def preemptors(transaction: Transaction, most: int) -> list[Preemptor]:
    """The first jobs in line that are entitled to room, up to ``most``: guarantees first, then by priority and arrival.

    Whoever may take room of another's jobs goes before him: else the two would take turns, the one placed first and evicted for the other.
    """
    specs = transaction.index.tree.specs
    if not any(spec.preempts_within or transaction.ledger.guaranteed(name) for name, spec in specs.items()):
        return []
    rivals = _rivals(transaction)
    claims: list[tuple[bool, _Standing, QueueKey, Preemptor]] = []
    for line in transaction.index.classes:
        shape = line.shape
        needed = gang_amounts(minimum_gang(shape.gang))
        spec = specs[shape.queue]
        covered = frozenset(
            name
            for name in transaction.index.tree.path(shape.queue)
            if spec.reclaims and transaction.ledger.within_guarantee(name, needed)
        )
        if not (covered or spec.preempts_within) or not transaction.is_feasible(shape.gang):
            continue
        for key in islice((key for key in line.keys if transaction.is_eligible(key[2])), most):
            record = transaction.index.records[key[2]]
            within = spec.preempts_within and _outranks(record, rivals.get(shape.queue, []))
            if covered or within:
                claim = Preemptor(record, shape, needed, covered, within)
                standing = _standing(transaction.index.tree.path(shape.queue), covered)
                claims.append((not covered, standing, key, claim))
    claims.sort(key=lambda one: one[:3])
    return [claim for *_, claim in claims[:most]]


def _standing(path: tuple[str, ...], covered: frozenset[str]) -> _Standing:
    """Lower goes first: level by level from the top, a queue whose guarantee covers it before others and before jobs of the queue above."""
    return (*(0 if name in covered else 1 for name in path), 1)


def preemption_code(claim: Preemptor, victim: JobRecord, transaction: Transaction) -> str | None:
    """The code of the reason for which ``claim`` may take room of ``victim`` now, or None where it may not."""
    if victim.job is None or not victim.job.preemptible:
        return None
    queue, other = claim.shape.queue, transaction.index.tree.account_of(victim)[0]
    if queue == other:
        return PREEMPTED if claim.within and victim.job.priority < _priority(claim.record) else None
    ours, theirs = transaction.index.tree.path(queue), transaction.index.tree.path(other)
    common = next(
        (i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]),
        min(len(ours), len(theirs)),
    )
    if common == len(ours) or ours[common] not in claim.covered:
        return None
    held = amounts_of(transaction.index.allocations.get(victim.job_id, {}).values())
    disputed = [name for name in transaction.ledger.contested(claim.needed) if held.get(name)]
    borrows = all(transaction.ledger.borrows(name, disputed) for name in theirs[common:])
    return RECLAIMED if disputed and borrows else None


def _rivals(transaction: Transaction) -> dict[str, list[_Rival]]:
    """By queue that preempts within: who holds room and may lose it, and who has lost it."""
    rivals: dict[str, list[_Rival]] = {}
    tree = transaction.index.tree
    for record in transaction.index.records.values():
        queue = tree.account_of(record)[0]
        if record.job is None or not tree.specs[queue].preempts_within:
            continue
        if record.phase in ACTIVE_PHASES and record.job.preemptible:
            rivals.setdefault(queue, []).append(_Rival(record.job.priority, None))
        elif record.phase in WAITING_PHASES and record.evictions:
            rivals.setdefault(queue, []).append(_Rival(record.job.priority, record.waiting_since))
    return rivals


def _outranks(record: JobRecord, rivals: list[_Rival]) -> bool:
    """Whether somebody of lower priority holds room, or has been evicted since the job came."""
    priority = _priority(record)
    return any(
        one.priority < priority and (one.since is None or one.since >= record.queued_at) for one in rivals
    )


def _priority(record: JobRecord) -> int:
    return record.job.priority if record.job else 0


POLICY = "preemption"
"""The policy's name of a size that a claim has forced."""

_MOST_UNITS = 512


class _Unit(NamedTuple):
    """What is taken at once: one replica above the minimum (``ref``), or all that is left of a gang; ``code`` says by what right."""

    record: JobRecord
    holds: Allocations
    code: str
    ref: ReplicaRef | None


def preempt(claim: Preemptor, transaction: Transaction) -> Placement | None:
    """Where the floor of the claim's gang fits, after what is on its way out has left and whoever must leave too; None where nothing helps.

    The victims are told; their room stays released inside the open transaction.
    """
    gang = minimum_gang(claim.shape.gang)

    def fits() -> Placement | None:
        if transaction.ledger.exceeded_limit(claim.shape.queue, claim.needed) is not None:
            return None
        return find_room(gang, transaction.snapshot)

    fitting = fits()
    if fitting is not None:
        return fitting
    units = _units(claim, transaction)
    if not units:
        return None
    mark = transaction.checkpoint()
    found = earliest_placement(
        transaction, [ExpectedRelease(one.record, one.holds, None) for one in units], gang, fits
    )
    if found is None:
        transaction.rollback(mark)
        return None
    number, fitting = found
    needed, fitting = _give_back(units[:number], fitting, fits, transaction)
    transaction.commit(mark)
    _tell(claim, needed, transaction)
    return fitting


def _units(claim: Preemptor, transaction: Transaction) -> list[_Unit]:
    """Everything that may be taken, in order; a right is looked at again after each, since a queue may borrow no longer."""
    victims = [
        record
        for record in transaction.index.records.values()
        if record.phase in ACTIVE_PHASES
        and not record.cancel_requested
        and record.job_id not in transaction.decided
        and record.job_id in transaction.index.allocations
        and preemption_code(claim, record, transaction) is not None
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
                code = preemption_code(claim, record, transaction)
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
            transaction.add_allocations(unit.record, unit.holds)
            still = fits()
            if still is not None:
                found = still
                continue
            transaction.release(unit.record, unit.holds)
        needed.append(unit)
    return needed[::-1], found


def _tell(claim: Preemptor, units: list[_Unit], transaction: Transaction) -> None:
    by_job: dict[str, list[_Unit]] = {}
    for unit in units:
        by_job.setdefault(unit.record.job_id, []).append(unit)
    for job_id, taken in by_job.items():
        record = taken[0].record
        removed = tuple(one.ref for one in taken if one.ref is not None)
        if any(one.ref is None for one in taken):
            reason = _reason(taken[-1].code, claim, "all of it")
            transaction.emit(Evict(job_id=job_id, attempt=record.attempt, reason=reason))
            continue
        transaction.emit(
            Resize(
                job_id=job_id,
                attempt=record.attempt,
                generation=record.generation + 1,
                removed=removed,
                reason=_reason(taken[0].code, claim, counted(len(removed), "replica")),
                policy=POLICY,
            )
        )


def _reason(code: str, claim: Preemptor, what: str) -> Reason:
    job = claim.record.job
    who = f"{claim.record.name} ({claim.record.job_id})"
    priority = job.priority if job else 0
    if code == reasons.RECLAIMED:
        message = f"{what} makes room for {who}: queue {claim.shape.queue} takes back what it is guaranteed"
    else:
        message = f"{what} makes room for {who}, which has priority {priority}"
    return Reason(code=code, message=message, numbers={"priority": priority})
