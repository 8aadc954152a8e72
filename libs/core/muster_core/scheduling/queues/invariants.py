"""What must hold of a pool after every event, whatever happened; tests check it, production counts it."""

from __future__ import annotations

from collections.abc import Iterator

from muster_core.lifecycle.moves import ACTIVE_PHASES
from muster_core.models import JobRecord
from muster_core.scheduling.placement import AllocationKey
from muster_core.scheduling.queues.allocations import allocations_of
from muster_core.scheduling.queues.index import PoolIndex
from muster_core.scheduling.queues.ledger import Ledger, amounts_of


class InvariantBroken(AssertionError):
    """Something that must always hold does not; carries every violation, one a line."""


def violations(index: PoolIndex, *, shrunk: frozenset[str], lowered: frozenset[str]) -> list[str]:
    """Every violation in words.

    ``shrunk`` are nodes that offered less after replicas had been placed, ``lowered`` queues that were limited when they held more
    already: those may be overfull.
    """
    found = [f"node {name} is over its capacity" for name in index.snapshot.overfull() if name not in shrunk]
    held: set[AllocationKey] = set()
    for record in index.records.values():
        found.extend(_of_membership(record))
        found.extend(_of_presence(record))
        held |= allocations_of(record).keys()
    if held != set(index.snapshot.holds):
        found.append("what is held is not what the records say")
    found.extend(f"queue {name} is over its limit" for name in sorted(index.ledger.over_limit() - lowered))
    found.extend(_of_ledger(index))
    return found


def _of_ledger(index: PoolIndex) -> Iterator[str]:
    fresh = Ledger(index.tree, index.capacity)
    for job_id, holds in index.allocations.items():
        fresh.add(index.tree.account_of(index.records[job_id]), amounts_of(holds.values()))
    for name in index.tree.specs:
        if fresh.held((name,)) != index.ledger.held((name,)):
            yield f"what queue {name} holds is not what its jobs hold"


def _of_membership(record: JobRecord) -> Iterator[str]:
    if record.job is None or record.phase not in ACTIVE_PHASES:
        return
    members = record.members()
    for role in record.job.roles:
        number = sum(1 for member in members if member.role == role.name)
        if not min(role.min, role.replicas) <= number <= max(role.max, role.replicas):
            yield f"{record.job_id} has {number} {role.name}, not {role.min} to {role.max}"
    if len(members) < min(record.job.min_available or 0, sum(role.replicas for role in record.job.roles)):
        yield f"{record.job_id} runs with fewer than {record.job.min_available} replicas"


def _of_presence(record: JobRecord) -> Iterator[str]:
    seen: set[tuple[str, int]] = set()
    for replica in record.replicas:
        if not replica.ended:
            if replica.key in seen:
                yield f"{record.job_id} has {replica.role}-{replica.index} in two places"
            seen.add(replica.key)
