"""The policies of the simulator by name: the order within queues, and who grows and shrinks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from muster_core.models import DEFAULT_QUEUE, QueueElastic, QueuePolicy, QueueSpec


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a name stands for; ``words`` say it to people. Without an ``order`` queues keep what they say themselves, of both."""

    name: str
    order: QueuePolicy | None
    elasticity: str
    words: str


_SKIP = "priority and arrival, who does not fit blocks nobody"
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
            words="priority and arrival, nobody passes the first; sizes stay",
        ),
        Plan(
            name="drf",
            order=QueuePolicy.DRF,
            elasticity="none",
            words="the submitter who holds least goes next; sizes stay",
        ),
        Plan(
            name="dragon",
            order=QueuePolicy.FIFO_SKIP,
            elasticity="dragon",
            words="as fifo; the starved are made room for, idle room goes to the oldest",
        ),
        Plan(
            name="marginal_gain",
            order=QueuePolicy.FIFO_SKIP,
            elasticity="marginal_gain",
            words="as dragon, but each replica goes where it speeds up most",
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
            words="what the queues say themselves",
        ),
    )
}
"""Every plan by name."""


def queues_under(plan: Plan, queues: Iterable[QueueSpec]) -> tuple[QueueSpec, ...]:
    """``queues`` as ``plan`` would have them; where there are none, the default queue."""
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
