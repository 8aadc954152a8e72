"""Settings of elasticity and the constraints of every resize.

The platform's settings are overridden by those of a queue, and these by those of a job.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from muster_core.events import MANUAL_POLICY
from muster_core.models import ELASTIC_POLICIES, JobKind, JobRecord, QueueElastic, Role
from muster_core.scheduling import QueueTree
from muster_core.scheduling.placement import is_pinned
from muster_core.scheduling.state import reachable, resizable, size_of

NONE = "none"
"""The policy of jobs that keep their size."""

_US = 1_000_000
_UNSPECIFIED = QueueElastic(idle_period_s=0, min_gain=0)


class ElasticSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The platform's settings, for queues and jobs without their own.

    Attributes:
        policy: Ranks jobs.
        idle_period_s: Seconds without a placement or a resize after which jobs grow.
        cool_down_s: Seconds for which a job keeps its size after a resize.
        step: The largest growth at once, in replicas; 0: unlimited.
        min_gain: The smallest gain that is worth a replica, in thousandths of a worker, for policies that weigh gains.
    """

    policy: str = "marginal_gain"
    idle_period_s: int = 60
    cool_down_s: int = 0
    step: int = 0
    min_gain: int = 250


class EffectiveSettings(NamedTuple):
    """The settings that apply to one job or queue; see ``ElasticSettings``. Times are in µs."""

    policy: str
    idle_period_us: int
    cool_down_us: int
    step: int
    min_gain: int


def queue_settings(queue: str, tree: QueueTree, settings: ElasticSettings) -> EffectiveSettings:
    """Return the settings of a queue."""
    own = tree.specs[queue].elastic or _UNSPECIFIED
    return EffectiveSettings(
        policy=own.policy if own.policy in ELASTIC_POLICIES else settings.policy,
        idle_period_us=(own.idle_period_s or settings.idle_period_s) * _US,
        cool_down_us=(own.cool_down_s or settings.cool_down_s) * _US,
        step=own.step or settings.step,
        min_gain=own.min_gain or settings.min_gain,
    )


def job_settings(record: JobRecord, tree: QueueTree, settings: ElasticSettings) -> EffectiveSettings:
    """Return the settings of a job; an unknown policy keeps its size."""
    effective = queue_settings(tree.account_of(record)[0], tree, settings)
    if record.job is None:
        return effective
    own = record.job.elastic
    known = own.policy if own.policy in ELASTIC_POLICIES else NONE
    return effective._replace(
        policy=known if own.policy else effective.policy,
        cool_down_us=own.cool_down_s * _US or effective.cool_down_us,
        step=own.step or effective.step,
    )


class ResizableJob(NamedTuple):
    """A job that may be resized from ``cool_down_until`` (µs) on, in its elastic ``role``."""

    record: JobRecord
    role: Role
    settings: EffectiveSettings
    cool_down_until: int


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
            cool_down_until = record.resized_at + effective.cool_down_us if record.resized_at else 0
            return (
                None if effective.policy == NONE else ResizableJob(record, role, effective, cool_down_until)
            )
    return None
