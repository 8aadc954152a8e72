"""Queues as operators define them."""

from __future__ import annotations

import enum

import msgspec

from muster_core.models.resources import ResourceLimits, Resources

DEFAULT_QUEUE = "default"
"""The queue that always exists, at the top of the tree."""

ELASTIC_POLICIES = ("marginal_gain", "dragon", "max_min", "none")
"""The elastic policies."""


class QueuePolicy(enum.StrEnum):
    """The order within a queue.

    ``fifo_skip``: priority, then arrival; a job that does not fit does not block later ones. ``strict_fifo``: the same
    order without skipping. ``drf``: the submitter with the lowest dominant share first, then as ``fifo_skip``.
    """

    FIFO_SKIP = "fifo_skip"
    STRICT_FIFO = "strict_fifo"
    DRF = "drf"


class QueueChangeKind(enum.StrEnum):
    """How applying queues changed a queue."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    DELETED = "deleted"


class QueueElastic(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """How elastic jobs of a queue are resized; 0 or empty means the platform's setting.

    ``policy`` is for jobs without their own. Jobs grow after ``idle_period_s`` idle seconds of the pool, and keep their size
    for ``cool_down_s`` seconds after a resize. A growth adds at most ``step`` replicas. ``min_gain`` is in thousandths of
    a worker: a smaller gain is not worth it.
    """

    policy: str = ""
    idle_period_s: int = 60
    cool_down_s: int = 0
    step: int = 0
    min_gain: int = 250


class QueueSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A queue as applied. Queues form a tree: ``parent`` is empty at the top.

    A resource that ``limit`` does not name is unlimited; a limit of 0 allows none of it. ``weight`` is the
    share among siblings. After ``starvation_after_s`` seconds a waiting job gets a reservation. ``preempts_within`` lets
    jobs preempt lower priorities of the queue, ``reclaims`` lets it take its guarantee back from borrowers. Jobs of
    ``namespaces`` that name no queue wait here. Without ``elastic`` the platform's settings apply.
    """

    name: str
    parent: str = ""
    guaranteed: Resources = Resources()
    limit: ResourceLimits = ResourceLimits()
    weight: int = 1
    policy: QueuePolicy = QueuePolicy.FIFO_SKIP
    starvation_after_s: int = 30
    preempts_within: bool = False
    reclaims: bool = True
    namespaces: tuple[str, ...] = ()
    elastic: QueueElastic | None = None
