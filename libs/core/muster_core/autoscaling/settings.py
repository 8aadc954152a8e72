"""Settings of elasticity: the platform's, overridden by a queue's, overridden by a job's."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from muster_core.models import ELASTIC_POLICIES, JobRecord, QueueElastic
from muster_core.scheduling import QueueTree

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
