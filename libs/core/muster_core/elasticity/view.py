"""The pool as an elasticity policy sees it, built from records and nodes whenever a policy is asked.

It holds no state of its own: what runs is what the records say, so that the scaler can be killed and come back with the same view.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from muster_core.facts import CapacityChanged
from muster_core.models import JobKind, JobRecord, Node, Role
from muster_core.placement import Snapshot
from muster_core.placement.roles import is_pinned
from muster_core.queues.holdings import holdings_of
from muster_core.queues.resizing import resizable, size_of


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """Elastic jobs that run, oldest first, and what is free beside them.

    ``waiting_feasible`` counts the jobs that wait for room which the empty pool would have; ``decided_at`` is the instant (µs) of the last
    placement or resize, 0 where there was none. Policies try on ``snapshot`` inside a transaction and roll it back.
    """

    jobs: tuple[JobRecord, ...]
    snapshot: Snapshot
    waiting_feasible: int = 0
    decided_at: int = 0


def view_of(
    *, records: Iterable[JobRecord], nodes: Iterable[Node], capacity: CapacityChanged | None = None
) -> PoolView:
    """The view of a pool with ``nodes``; ``records`` are all jobs that may hold room there, ``capacity`` is the scheduler's last word."""
    snapshot = Snapshot(nodes)
    elastic: list[JobRecord] = []
    decided_at = capacity.decided_at if capacity else 0
    for record in records:
        for key, hold in holdings_of(record).items():
            snapshot.hold(key, hold)
        decided_at = max(decided_at, record.placed_at, record.resized_at)
        if growing_role(record) is not None:
            elastic.append(record)
    elastic.sort(key=lambda record: (record.submitted_at, record.job_id))
    return PoolView(
        jobs=tuple(elastic),
        snapshot=snapshot,
        waiting_feasible=capacity.waiting_feasible if capacity else 0,
        decided_at=decided_at,
    )


def growing_role(record: JobRecord) -> Role | None:
    """The role by which a running job may grow now: the first that is not pinned and below its maximum.

    Services and builds do not grow by themselves: more of them end no sooner.
    """
    if record.job is None or record.job.kind is not JobKind.BATCH or not resizable(record):
        return None
    roles = (role for role in record.job.roles if not is_pinned(role.name))
    return next((role for role in roles if size_of(record, role.name) < role.max), None)
