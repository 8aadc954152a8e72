"""The simulator's policies by name: order within queues, and elastic policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from muster_core.models import DEFAULT_QUEUE, QueueElastic, QueuePolicy, QueueSpec


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A policy of the simulator; ``words`` describe it. Without an ``order`` queues keep their own settings."""

    name: str
    order: QueuePolicy | None
    elasticity: str
    words: str


_SKIP = "priority and arrival, skipping jobs that do not fit"
PLANS: Mapping[str, Plan] = {
    plan.name: plan
    for plan in (
        Plan(
            name="fifo",
            order=QueuePolicy.FIFO_SKIP,
            elasticity="none",
            words=f"{_SKIP}; sizes stay",
        ),
        Plan(
            name="strict_fifo",
            order=QueuePolicy.STRICT_FIFO,
            elasticity="none",
            words="priority and arrival, without skipping; sizes stay",
        ),
        Plan(
            name="drf",
            order=QueuePolicy.DRF,
            elasticity="none",
            words="lowest dominant share of a submitter first; sizes stay",
        ),
        Plan(
            name="dragon",
            order=QueuePolicy.FIFO_SKIP,
            elasticity="dragon",
            words="as fifo; donors shrink for starved jobs, the oldest grows first",
        ),
        Plan(
            name="marginal_gain",
            order=QueuePolicy.FIFO_SKIP,
            elasticity="marginal_gain",
            words="as dragon, but replicas go where they speed up most",
        ),
        Plan(
            name="max_min",
            order=QueuePolicy.FIFO_SKIP,
            elasticity="max_min",
            words="as dragon, but towards equal shares",
        ),
        Plan(
            name="current",
            order=None,
            elasticity="marginal_gain",
            words="as the queues define",
        ),
    )
}
"""Every policy by name."""


def queues_under(plan: Plan, queues: Iterable[QueueSpec]) -> tuple[QueueSpec, ...]:
    """Return ``queues`` under ``plan``; the default queue if there are none."""
    given = tuple(queues) or (QueueSpec(name=DEFAULT_QUEUE),)
    if plan.order is None:
        return given
    return tuple(
        msgspec.structs.replace(
            spec,
            policy=plan.order,
            elastic=msgspec.structs.replace(spec.elastic or QueueElastic(), policy=plan.elasticity),
        )
        for spec in given
    )
