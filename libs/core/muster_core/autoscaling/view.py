"""The pool as autoscaling sees it: a scheduler's state, read and tried on, never changed.

The planner keeps its own state from the same events, so that proposals are evaluated by the scheduler's rules.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from muster_core.events import CapacityChanged, NodeChanged
from muster_core.models import JobRecord, Node, QueueSpec
from muster_core.scheduling import PoolState
from muster_core.scheduling.placement import Gang
from muster_core.scheduling.reservations import ReservationCache, RuntimeEstimates
from muster_core.scheduling.state import PoolIndex

_HERE = "here"


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """A pool at one moment; valid until its state changes.

    ``decided_at`` is the time (µs) of the last placement or resize, 0 for none.
    """

    index: PoolIndex
    feasible: dict[Gang, bool]
    runtime_estimates: RuntimeEstimates
    reservation_cache: ReservationCache
    decided_at: int = 0


def view_of_state(state: PoolState, *, capacity: CapacityChanged | None = None) -> PoolView:
    """Return the view of a pool state; ``capacity`` is the scheduler's last total, which includes decisions about deleted jobs."""
    return PoolView(
        index=state.index,
        feasible=state.feasible,
        runtime_estimates=state.runtime_estimates,
        reservation_cache=state.reservation_cache,
        decided_at=max(state.decided_at, capacity.decided_at if capacity else 0),
    )


def view_of(
    *,
    records: Iterable[JobRecord],
    nodes: Iterable[Node],
    queues: Iterable[QueueSpec] = (),
    capacity: CapacityChanged | None = None,
) -> PoolView:
    """Return the view of a pool with ``nodes`` and valid ``queues``; ``records`` are its jobs."""
    state = PoolState(pool=_HERE)
    for node in nodes:
        state.observe_node(NodeChanged(pool=_HERE, node=node))
    state.apply_queues(queues)
    state.restore(records)
    return view_of_state(state, capacity=capacity)
