"""Preemption: which waiting jobs may take capacity from running jobs, and which victims free capacity for them.

A queue within its guarantee reclaims from queues that borrow; in a queue that ``preempts_within``, a job preempts jobs of
lower priority. No two jobs preempt each other in turn: a borrower is above its guarantee, and a lower priority stays lower.
Victims lose as little as possible: first replicas above the minimum of a gang, the newest first, then whole gangs, the lowest
priority and the youngest first. All of it is tried in a transaction; a victim that turns out not to be needed stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from muster_core.events import ReplicaRef
from muster_core.lifecycle import ACTIVE_PHASES, WAITING_PHASES
from muster_core.models import JobRecord, Reason
from muster_core.quantities import counted
from muster_core.scheduling import reasons
from muster_core.scheduling.placement import Placement, find_placement
from muster_core.scheduling.queues import (
    Amounts,
    QueueKey,
    SchedulingKey,
    amounts_of,
    gang_amounts,
    minimum_gang,
)
from muster_core.scheduling.reservations.expected_releases import ExpectedRelease, earliest_placement
from muster_core.scheduling.state import Allocations, Evict, Resize, Transaction, surplus

POLICY = "preemption"
"""The policy in a ``Resize`` of a victim."""

_MOST_VICTIMS = 512

_Level = tuple[int, ...]


class Preemptor(NamedTuple):
    """A waiting job that may preempt.

    ``guaranteed_by`` are the queues on its path whose guarantee covers it; ``outranks`` is whether it may preempt lower
    priorities in its queue.
    """

    record: JobRecord
    key: SchedulingKey
    needed: Amounts
    guaranteed_by: frozenset[str]
    outranks: bool


class _Rival(NamedTuple):
    """A job that may be, or was, a victim of a higher priority; ``since`` (µs) it waits, None while it is active."""

    priority: int
    since: int | None


class _Victim(NamedTuple):
    """What is taken at once: one replica above the minimum (``ref``), or the rest of a gang (None)."""

    record: JobRecord
    allocations: Allocations
    code: str
    ref: ReplicaRef | None


def preemptors(transaction: Transaction, most: int) -> list[Preemptor]:
    """Return the first ``most`` jobs that may preempt: by guarantee first, then by priority and arrival.

    A job that may take the capacity of another one goes before it; otherwise the two would be placed and evicted in turn.
    """
    index, specs = transaction.index, transaction.index.tree.specs
    if not any(spec.preempts_within or transaction.ledger.guaranteed(name) for name, spec in specs.items()):
        return []
    rivals = _rivals(transaction)
    found: list[tuple[bool, _Level, QueueKey, Preemptor]] = []
    for one in index.classes:
        key = one.key
        needed = gang_amounts(minimum_gang(key.gang))
        spec = specs[key.queue]
        path = index.tree.path(key.queue)
        guaranteed_by = frozenset(
            name for name in path if spec.reclaims and transaction.ledger.within_guarantee(name, needed)
        )
        if not (guaranteed_by or spec.preempts_within) or not transaction.is_feasible(key.gang):
            continue
        level = (*(0 if name in guaranteed_by else 1 for name in path), 1)
        for job in islice((job for job in one.jobs if transaction.is_eligible(job[2])), most):
            record = index.records[job[2]]
            outranks = spec.preempts_within and _outranks(record, rivals.get(key.queue, []))
            if guaranteed_by or outranks:
                preemptor = Preemptor(record, key, needed, guaranteed_by, outranks)
                found.append((not guaranteed_by, level, job, preemptor))
    found.sort(key=lambda one: one[:3])
    return [preemptor for *_, preemptor in found[:most]]


def preempt(preemptor: Preemptor, transaction: Transaction) -> Placement | None:
    """Free capacity for the minimum of a gang, and emit the evictions and resizes of its victims.

    Args:
        preemptor: The waiting job.
        transaction: An open transaction, in which terminating allocations are released. The allocations of the victims
            stay released in it.

    Returns:
        Where the gang will start, or None if no set of victims helps.
    """
    gang = minimum_gang(preemptor.key.gang)

    def fits() -> Placement | None:
        if transaction.ledger.exceeded_limit(preemptor.key.queue, preemptor.needed) is not None:
            return None
        return find_placement(gang, transaction.snapshot)

    placement = fits()
    if placement is not None:
        return placement
    victims = _victims(preemptor, transaction)
    if not victims:
        return None
    mark = transaction.checkpoint()
    releases = [ExpectedRelease(one.record, one.allocations, None) for one in victims]
    found = earliest_placement(transaction, releases, gang, fits)
    if found is None:
        transaction.rollback(mark)
        return None
    number, placement = found
    needed, placement = _minimised(victims[:number], placement, fits, transaction)
    transaction.commit(mark)
    _emit(preemptor, needed, transaction)
    return placement


def preemption_code(preemptor: Preemptor, victim: JobRecord, transaction: Transaction) -> str | None:
    """Return the reason code with which ``preemptor`` may preempt ``victim`` now, or None if it may not."""
    if victim.job is None or not victim.job.preemptible:
        return None
    tree, ledger = transaction.index.tree, transaction.ledger
    queue, other = preemptor.key.queue, tree.account_of(victim)[0]
    if queue == other:
        lower = victim.job.priority < _priority(preemptor.record)
        return reasons.PREEMPTED if preemptor.outranks and lower else None
    ours, theirs = tree.path(queue), tree.path(other)
    common = next(
        (i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]),
        min(len(ours), len(theirs)),
    )
    if common == len(ours) or ours[common] not in preemptor.guaranteed_by:
        return None
    allocated = amounts_of(transaction.index.allocations.get(victim.job_id, {}).values())
    contested = [name for name in ledger.contested(preemptor.needed) if allocated.get(name)]
    borrows = all(ledger.borrows(name, contested) for name in theirs[common:])
    return reasons.RECLAIMED if contested and borrows else None


def _rivals(transaction: Transaction) -> dict[str, list[_Rival]]:
    """Return, by queue that preempts within, the preemptible active jobs and the evicted ones."""
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
    """Return whether a job of lower priority is active, or was evicted after ``record`` had arrived."""
    priority = _priority(record)
    return any(
        one.priority < priority and (one.since is None or one.since >= record.queued_at) for one in rivals
    )


def _priority(record: JobRecord) -> int:
    return record.job.priority if record.job else 0


def _victims(preemptor: Preemptor, transaction: Transaction) -> list[_Victim]:
    """Return everything that may be taken, in order; after each victim its queue may borrow no longer."""
    index, ledger = transaction.index, transaction.ledger
    records = [
        record
        for record in index.records.values()
        if record.phase in ACTIVE_PHASES
        and not record.cancel_requested
        and record.job_id not in transaction.decided
        and record.job_id in index.allocations
        and preemption_code(preemptor, record, transaction) is not None
    ]
    records.sort(key=lambda one: (_priority(one), -one.placed_at, one.job_id))
    victims: list[_Victim] = []
    mark = ledger.checkpoint()
    for above_minimum in (True, False):
        for record in records:
            taken = {key for victim in victims if victim.record is record for key, _ in victim.allocations}
            for ref, allocations in (
                surplus(record, index.allocations[record.job_id])
                if above_minimum
                else _rest_of_gang(record, taken, transaction)
            ):
                code = preemption_code(preemptor, record, transaction)
                if code is None or not allocations or len(victims) >= _MOST_VICTIMS:
                    break
                ledger.subtract(index.tree.account_of(record), amounts_of(one for _, one in allocations))
                victims.append(_Victim(record, allocations, code, ref))
    ledger.rollback(mark)
    return victims


def _rest_of_gang(
    record: JobRecord, taken: set[tuple[str, int, str, int]], transaction: Transaction
) -> Iterator[tuple[None, Allocations]]:
    """Yield the allocations of a job that are neither taken nor terminating."""
    allocated = transaction.snapshot.allocations
    yield (
        None,
        tuple(
            (key, one)
            for key, one in transaction.index.allocations[record.job_id].items()
            if key not in taken and key in allocated
        ),
    )


def _minimised(
    victims: list[_Victim],
    placement: Placement,
    fits: Callable[[], Placement | None],
    transaction: Transaction,
) -> tuple[list[_Victim], Placement]:
    """Return which of the released ``victims`` are needed, and where the gang goes then; the others get theirs back."""
    needed: list[_Victim] = []
    for victim in reversed(victims):
        is_evicted = any(one.record is victim.record and one.ref is None for one in needed)
        if not is_evicted:
            transaction.add_allocations(victim.record, victim.allocations)
            still = fits()
            if still is not None:
                placement = still
                continue
            transaction.release(victim.record, victim.allocations)
        needed.append(victim)
    return needed[::-1], placement


def _emit(preemptor: Preemptor, victims: list[_Victim], transaction: Transaction) -> None:
    by_job: dict[str, list[_Victim]] = {}
    for victim in victims:
        by_job.setdefault(victim.record.job_id, []).append(victim)
    for job_id, taken in by_job.items():
        record = taken[0].record
        if any(one.ref is None for one in taken):
            reason = _reason(taken[-1].code, preemptor, "the gang is evicted")
            transaction.emit(Evict(job_id=job_id, attempt=record.attempt, reason=reason))
            continue
        removed = tuple(one.ref for one in taken if one.ref is not None)
        verb = "is" if len(removed) == 1 else "are"
        transaction.emit(
            Resize(
                job_id=job_id,
                attempt=record.attempt,
                generation=record.generation + 1,
                removed=removed,
                reason=_reason(
                    taken[0].code, preemptor, f"{counted(len(removed), 'replica')} {verb} removed"
                ),
                policy=POLICY,
            )
        )


def _reason(code: str, preemptor: Preemptor, what: str) -> Reason:
    priority = _priority(preemptor.record)
    message = f"{what} for {preemptor.record.name} ({preemptor.record.job_id})"
    if code == reasons.RECLAIMED:
        message += f": queue {preemptor.key.queue} reclaims its guarantee"
    else:
        message += f", which has priority {priority}"
    return Reason(code=code, message=message, numbers={"priority": priority})
