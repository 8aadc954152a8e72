"""How large the roles of a running job are, what they could give up, and what they could grow by now."""

from __future__ import annotations

from collections import Counter

from muster_core.models import JobRecord, Role
from muster_core.scheduling.placement import place_more
from muster_core.scheduling.placement.roles import is_pinned
from muster_core.scheduling.queues.explanation import RoleSize
from muster_core.scheduling.queues.resizing import resizable, size_of
from muster_core.scheduling.queues.sizes import dearest_amounts
from muster_core.scheduling.queues.surplus import surplus
from muster_core.scheduling.queues.transaction import Transaction


def role_sizes(record: JobRecord, transaction: Transaction) -> tuple[RoleSize, ...]:
    """Every role of a job that has members, in the job's order."""
    if record.job is None:
        return ()
    spare = Counter(
        ref.role for ref, _ in surplus(record, transaction.index.allocations.get(record.job_id, {}))
    )
    return tuple(
        RoleSize(
            role=role.name,
            size=size_of(record, role.name),
            min=role.min,
            wanted=role.replicas,
            max=role.max,
            surplus=spare[role.name],
            room_for=_room_for(record, role, transaction),
        )
        for role in record.job.roles
    )


def _room_for(record: JobRecord, role: Role, transaction: Transaction) -> int:
    """How many more would find room now, as far as the limits of the queue allow."""
    if record.job is None or is_pinned(role.name) or not resizable(record):
        return 0
    fits = len(place_more(record.job, record.replicas, role.name, role.max, transaction.snapshot))
    queue = transaction.index.tree.account_of(record)[0]
    needed = dearest_amounts(role)
    while fits and transaction.ledger.barrier(
        queue, {name: amount * fits for name, amount in needed.items()}
    ):
        fits -= 1
    return fits
