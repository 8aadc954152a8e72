"""Where those go who join a running gang: not to nodes that have failed it lately.

A growth is a wish: a policy does without it rather than repeat what has just failed. A user may have mended the cause, so a size that was
asked for by hand takes such a node where no other has room.
"""

from __future__ import annotations

from muster_core.events import MANUAL_POLICY
from muster_core.lifecycle import avoided_at
from muster_core.models import JobRecord, Reason
from muster_core.scheduling.queues.avoiding import kept_off, known_among
from muster_core.scheduling.queues.instructions import Resize
from muster_core.scheduling.queues.resizing import grow, size_of
from muster_core.scheduling.queues.transaction import Transaction


def grown(
    record: JobRecord,
    role: str,
    target: int,
    transaction: Transaction,
    *,
    reason: Reason | None = None,
    policy: str,
) -> Resize | None:
    """Add as many replicas as fit, up to ``target`` members; None where none fits."""
    avoided = known_among(avoided_at(record, transaction.now), transaction.snapshot)
    with kept_off(avoided, record.job_id, transaction.snapshot):
        found = grow(record, role, target, transaction.snapshot, reason=reason, policy=policy)
    whole = found is not None and len(found.added) == target - size_of(record, role)
    if whole or not avoided or policy != MANUAL_POLICY:
        return found
    return grow(record, role, target, transaction.snapshot, reason=reason, policy=policy)
