"""Constraints of a resize that hold for every policy: which jobs may grow or shrink, in which role, and from when."""

from __future__ import annotations

from typing import NamedTuple

from muster_core.autoscaling.settings import NONE, EffectiveSettings, ElasticSettings, job_settings
from muster_core.events import MANUAL_POLICY
from muster_core.models import JobKind, JobRecord, Role
from muster_core.scheduling import QueueTree
from muster_core.scheduling.placement import is_pinned
from muster_core.scheduling.state import reachable, resizable, size_of


class ResizableJob(NamedTuple):
    """A job that may be resized from ``cool_at`` (µs) on, in its elastic ``role``."""

    record: JobRecord
    role: Role
    settings: EffectiveSettings
    cool_at: int


def growable(record: JobRecord, tree: QueueTree, settings: ElasticSettings) -> ResizableJob | None:
    """Return the job with its first role below the maximum; None if it may not grow, as after a manual resize."""
    if record.resized_by == MANUAL_POLICY:
        return None
    return _resizable(record, tree, settings, up=True)


def shrinkable(record: JobRecord, tree: QueueTree, settings: ElasticSettings) -> ResizableJob | None:
    """Return the job with its first role above the minimum, or None if it may not shrink."""
    if record.job is None or not record.job.preemptible:
        return None
    return _resizable(record, tree, settings, up=False)


def spare_replicas(record: JobRecord, role: Role) -> int:
    """Return how many replicas of ``role`` the job can lose."""
    lowest = reachable(record, role.name, 0)
    return max(size_of(record, role.name) - lowest, 0) if lowest is not None else 0


def _resizable(
    record: JobRecord, tree: QueueTree, settings: ElasticSettings, *, up: bool
) -> ResizableJob | None:
    # Services and builds keep their size: more replicas do not finish sooner.
    if record.job is None or record.job.kind is not JobKind.BATCH or not resizable(record):
        return None
    if any(replica.terminating and not replica.ended for replica in record.replicas):
        return None
    for role in record.job.roles:
        if is_pinned(role.name) or role.min == role.max:
            continue
        if (role.max - size_of(record, role.name) if up else spare_replicas(record, role)) > 0:
            effective = job_settings(record, tree, settings)
            cool_at = record.resized_at + effective.cool_down_us if record.resized_at else 0
            return None if effective.policy == NONE else ResizableJob(record, role, effective, cool_at)
    return None
