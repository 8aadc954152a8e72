"""What an operator says of a queue: whose jobs wait there, what they are sure of, and what they may never exceed."""

from __future__ import annotations

import enum

import msgspec

from muster_core.models.resources import Resources

DEFAULT_QUEUE = "default"
"""The queue that is always there, at the top of the tree."""

ELASTIC_POLICIES = ("marginal_gain", "dragon", "max_min", "none")
"""By what elastic jobs may grow and shrink."""


class QueuePolicy(enum.StrEnum):
    """Who goes next within a queue.

    ``fifo_skip``: priority, then arrival; who does not fit does not block those behind. ``strict_fifo``: the same order, and nobody
    passes the first. ``drf``: the submitter whose dominant share is lowest, then as ``fifo_skip``.
    """

    FIFO_SKIP = "fifo_skip"
    STRICT_FIFO = "strict_fifo"
    DRF = "drf"


class QueueChangeKind(enum.StrEnum):
    """What became of a queue when queues were applied."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    DELETED = "deleted"


class QueueElastic(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """How elastic jobs of a queue grow and shrink; what is 0, or empty, is as the platform's settings say.

    ``policy`` is for jobs that name none themselves. A queue grows its jobs after ``quiet_s`` seconds without scheduling or scaling, and
    leaves a job alone for ``cool_down_s`` seconds after a change of its size. A change is of at most ``step`` replicas. ``min_gain`` is in
    thousandths of a worker: growth that speeds a job up by less is not worth it.
    """

    policy: str = ""
    quiet_s: int = 60
    cool_down_s: int = 0
    step: int = 0
    min_gain: int = 250


class QueueSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A queue as applied. Queues form a tree: ``parent`` is empty at the top.

    A resource that ``guaranteed`` or ``limit`` gives no amount (0) is not guaranteed and not limited. ``weight`` is the share among
    siblings. After ``starvation_after_s`` seconds a job that waits for room gets a reservation. ``preempts_within`` lets jobs of the queue
    take room from those of lower priority in it, ``reclaims`` from queues that have borrowed what is guaranteed here. Jobs of
    ``namespaces`` that name no queue wait here. Without ``elastic`` the queue grows and shrinks as the platform's settings say.
    """

    name: str
    parent: str = ""
    guaranteed: Resources = Resources()
    limit: Resources = Resources()
    weight: int = 1
    policy: QueuePolicy = QueuePolicy.FIFO_SKIP
    starvation_after_s: int = 30
    preempts_within: bool = False
    reclaims: bool = True
    namespaces: tuple[str, ...] = ()
    elastic: QueueElastic | None = None
