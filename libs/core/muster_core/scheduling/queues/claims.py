"""Who may take room by force, and of whom: a queue within what it is guaranteed of those that borrow, a priority of lower ones.

Nobody can take back what was taken from him: a borrower is above its guarantee, a lower priority is lower.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from muster_core.lifecycle.moves import ACTIVE_PHASES, WAITING_PHASES
from muster_core.models import JobRecord
from muster_core.scheduling.queues.ledger import Amounts, amounts_of
from muster_core.scheduling.queues.lines import Shape
from muster_core.scheduling.queues.order import QueueKey
from muster_core.scheduling.queues.reasons import PREEMPTED, RECLAIMED
from muster_core.scheduling.queues.sizes import gang_amounts, smallest
from muster_core.scheduling.queues.transaction import Transaction


class Claim(NamedTuple):
    """A job that is entitled: ``covered`` are the queues of its path whose guarantee covers it, ``within`` whether its priority counts."""

    record: JobRecord
    shape: Shape
    needed: Amounts
    covered: frozenset[str]
    within: bool


_Standing = tuple[int, ...]


class _Rival(NamedTuple):
    """A job of lower priority that is, or was, in the way: ``since`` (µs) it waits, None while it holds room."""

    priority: int
    since: int | None


def claims_of(transaction: Transaction, most: int) -> list[Claim]:
    """The first jobs in line that are entitled to room, up to ``most``: guarantees first, then by priority and arrival.

    Whoever may take room of another's jobs goes before him: else the two would take turns, the one placed first and evicted for the other.
    """
    specs = transaction.index.tree.specs
    if not any(spec.preempts_within or transaction.ledger.guaranteed(name) for name, spec in specs.items()):
        return []
    rivals = _rivals(transaction)
    claims: list[tuple[bool, _Standing, QueueKey, Claim]] = []
    for line in transaction.index.lines:
        shape = line.shape
        needed = gang_amounts(smallest(shape.gang))
        spec = specs[shape.queue]
        covered = frozenset(
            name
            for name in transaction.index.tree.path(shape.queue)
            if spec.reclaims and transaction.ledger.within_guarantee(name, needed)
        )
        if not (covered or spec.preempts_within) or not transaction.could_start(shape.gang):
            continue
        for key in islice((key for key in line.keys if transaction.may_start(key[2])), most):
            record = transaction.index.records[key[2]]
            within = spec.preempts_within and _outranks(record, rivals.get(shape.queue, []))
            if covered or within:
                claim = Claim(record, shape, needed, covered, within)
                standing = _standing(transaction.index.tree.path(shape.queue), covered)
                claims.append((not covered, standing, key, claim))
    claims.sort(key=lambda one: one[:3])
    return [claim for *_, claim in claims[:most]]


def _standing(path: tuple[str, ...], covered: frozenset[str]) -> _Standing:
    """Lower goes first: level by level from the top, a queue whose guarantee covers it before others and before jobs of the queue above."""
    return (*(0 if name in covered else 1 for name in path), 1)


def right_over(claim: Claim, victim: JobRecord, transaction: Transaction) -> str | None:
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
