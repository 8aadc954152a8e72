"""Constraints that no policy can violate: which jobs may be resized now, in which role, and how far.

A job does not grow after a manual resize, while a resize is in progress, or during its cool-down.
"""

from __future__ import annotations

from typing import NamedTuple

from muster_core.autoscaling.settings import NONE, ElasticSettings, Numbers, numbers_of
from muster_core.events import MANUAL_POLICY
from muster_core.models import JobKind, JobRecord, Role
from muster_core.scheduling.placement.roles import is_pinned
from muster_core.scheduling.queues import QueueTree
from muster_core.scheduling.state import reachable, resizable, size_of


class Elastic(NamedTuple):
    """A job that may be resized: its elastic ``role``, its settings, and from when (µs)."""

    record: JobRecord
    role: Role
    numbers: Numbers
    cool_at: int


def may_grow(record: JobRecord, tree: QueueTree, settings: ElasticSettings) -> Elastic | None:
    """Return the job with the first role below its maximum, or None if it may not grow."""
    if record.resized_by == MANUAL_POLICY:
        return None
    return _elastic(record, tree, settings, growing=True)


def may_give(record: JobRecord, tree: QueueTree, settings: ElasticSettings) -> Elastic | None:
    """Return the job with the first role above its minimum, or None if it may not shrink."""
    if record.job is None or not record.job.preemptible:
        return None
    return _elastic(record, tree, settings, growing=False)


def spare_of(record: JobRecord, role: Role) -> int:
    """Return how many replicas of ``role`` the job can lose."""
    size = size_of(record, role.name)
    lowest = reachable(record, role.name, 0)
    return max(size - lowest, 0) if lowest is not None else 0


def _elastic(
    record: JobRecord, tree: QueueTree, settings: ElasticSettings, *, growing: bool
) -> Elastic | None:
    # Services and builds keep their size: more replicas do not finish sooner.
    if record.job is None or record.job.kind is not JobKind.BATCH or not resizable(record):
        return None
    if any(one.terminating and not one.ended for one in record.replicas):
        return None
    for role in record.job.roles:
        if is_pinned(role.name) or role.min == role.max:
            continue
        room = role.max - size_of(record, role.name) if growing else spare_of(record, role)
        if room > 0:
            numbers = numbers_of(record, tree, settings)
            cool_at = record.resized_at + numbers.cool_down_us if record.resized_at else 0
            return None if numbers.policy == NONE else Elastic(record, role, numbers, cool_at)
    return None
