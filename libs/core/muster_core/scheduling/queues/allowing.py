"""How far the limits of a job's queue let a role of it grow."""

from __future__ import annotations

from muster_core.models import JobRecord
from muster_core.scheduling.queues.sizes import dearest_amounts
from muster_core.scheduling.queues.transaction import Transaction


def allowed_size(record: JobRecord, role: str, size: int, target: int, transaction: Transaction) -> int:
    """The largest size from ``size``, which is what is held now, up to ``target`` that the limits of the job's queue allow its role."""
    known = record.job.role(role) if record.job else None
    if known is None:
        return target
    queue = transaction.index.tree.account_of(record)[0]
    needed = dearest_amounts(known)
    while target > size:
        more = {name: amount * (target - size) for name, amount in needed.items()}
        if transaction.ledger.barrier(queue, more) is None:
            break
        target -= 1
    return target
