"""What an operator says of a queue: whose jobs wait there, what they are sure of, and what they may never exceed."""

from __future__ import annotations

import enum

import msgspec

from muster_core.models.resources import Resources

DEFAULT_QUEUE = "default"
"""The queue that is always there, at the top of the tree."""


class QueuePolicy(enum.StrEnum):
    """Who goes next within a queue.

    ``fifo_skip``: priority, then arrival; who does not fit does not block those behind. ``strict_fifo``: the same order, and nobody
    passes the first. ``drf``: the submitter whose dominant share is lowest, then as ``fifo_skip``.
    """

    FIFO_SKIP = "fifo_skip"
    STRICT_FIFO = "strict_fifo"
    DRF = "drf"


class QueueSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A queue as applied. Queues form a tree: ``parent`` is empty at the top.

    A resource that ``guaranteed`` or ``limit`` gives no amount (0) is not guaranteed and not limited. ``weight`` is the share among
    siblings. After ``starvation_after_s`` seconds a job that waits for room gets a reservation. ``preempts_within`` lets jobs of the queue
    take room from those of lower priority in it, ``reclaims`` from queues that have borrowed what is guaranteed here. Jobs of
    ``namespaces`` that name no queue wait here.
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
