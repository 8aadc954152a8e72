"""Settings of elasticity: of the platform, overridden by a queue, overridden by a job."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from muster_core.models import ELASTIC_POLICIES, JobRecord, QueueElastic
from muster_core.scheduling.queues import QueueTree

NONE = "none"
"""The policy of jobs that keep their size."""

_US = 1_000_000


class ElasticSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The platform's settings, for queues and jobs without their own.

    ``policy`` ranks jobs. Jobs grow when nothing was placed or resized for ``idle_period_s`` seconds, by at most ``step``
    replicas at once (0: unlimited). A job keeps its size for ``cool_down_s`` seconds after a resize. A gain below
    ``min_gain`` thousandths of a worker is not worth a replica, for policies that weigh gains.
    """

    policy: str = "marginal_gain"
    idle_period_s: int = 60
    cool_down_s: int = 0
    step: int = 0
    min_gain: int = 250


class Numbers(NamedTuple):
    """The effective settings of one job or queue; see ``ElasticSettings``. Times are in µs."""

    policy: str
    quiet_us: int
    cool_down_us: int
    step: int
    min_gain: int


def numbers_of_queue(queue: str, tree: QueueTree, settings: ElasticSettings) -> Numbers:
    """Return the settings of a queue."""
    own = tree.specs[queue].elastic or _SILENT
    return Numbers(
        policy=own.policy if own.policy in ELASTIC_POLICIES else settings.policy,
        quiet_us=(own.idle_period_s or settings.idle_period_s) * _US,
        cool_down_us=(own.cool_down_s or settings.cool_down_s) * _US,
        step=own.step or settings.step,
        min_gain=own.min_gain or settings.min_gain,
    )


def numbers_of(record: JobRecord, tree: QueueTree, settings: ElasticSettings) -> Numbers:
    """Return the settings of a job: its own, else its queue's, else the platform's. An unknown policy keeps the size."""
    numbers = numbers_of_queue(tree.account_of(record)[0], tree, settings)
    if record.job is None:
        return numbers
    own = record.job.elastic
    known = own.policy if own.policy in ELASTIC_POLICIES else NONE
    return numbers._replace(
        policy=known if own.policy else numbers.policy,
        cool_down_us=own.cool_down_s * _US or numbers.cool_down_us,
        step=own.step or numbers.step,
    )


_SILENT = QueueElastic(idle_period_s=0, min_gain=0)
