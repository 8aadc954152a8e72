"""The rules that no policy can break: whose size may change now, by which role, and how far.

Neither a job whose size a hand has set grows, nor one whose last change is not over, nor one that has just changed.
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
    """A job whose size may change: its elastic ``role``, what holds for it, and from when on (µs) it may."""

    record: JobRecord
    role: Role
    numbers: Numbers
    cool_at: int


def may_grow(record: JobRecord, tree: QueueTree, settings: ElasticSettings) -> Elastic | None:
    """The job by the role by which it may grow, the first that is below its maximum; None where it may not."""
    if record.resized_by == MANUAL_POLICY:
        return None
    return _elastic(record, tree, settings, growing=True)


def may_give(record: JobRecord, tree: QueueTree, settings: ElasticSettings) -> Elastic | None:
    """The job by the role by which it may shrink, the first that is above its minimum; None where it may not."""
    if record.job is None or not record.job.preemptible:
        return None
    return _elastic(record, tree, settings, growing=False)


def spare_of(record: JobRecord, role: Role) -> int:
    """How many replicas of ``role`` the job can do without."""
    size = size_of(record, role.name)
    lowest = reachable(record, role.name, 0)
    return max(size - lowest, 0) if lowest is not None else 0


def _elastic(
    record: JobRecord, tree: QueueTree, settings: ElasticSettings, *, growing: bool
) -> Elastic | None:
    # Services and builds stay as they are: more of them end no sooner.
    if record.job is None or record.job.kind is not JobKind.BATCH or not resizable(record):
        return None
    if any(one.leaving and not one.ended for one in record.replicas):
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
