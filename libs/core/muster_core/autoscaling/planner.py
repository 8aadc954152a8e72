"""The plan for a pool: capacity for starved jobs first; jobs grow only if no starved job needs the capacity.

Both are tried in a transaction on the pool, with the scheduler's reservations, and rolled back.
"""

from __future__ import annotations

from muster_core.autoscaling.proposals import ScaleProposal
from muster_core.autoscaling.scale_down import (
    ScaleDownPlanner,
    blocks_scale_up,
    next_starvation,
    starved_jobs,
    waiting_jobs,
)
from muster_core.autoscaling.scale_up import growable_jobs, grows_at, next_node_allowed, plan_scale_up
from muster_core.autoscaling.settings import ElasticSettings, shrinkable
from muster_core.scheduling import PoolState
from muster_core.scheduling.reservations import ReservationPlanner, Reservations
from muster_core.scheduling.state import Transaction


def plan(
    state: PoolState, now: int, settings: ElasticSettings, *, decided_at: int = 0
) -> list[ScaleProposal]:
    """Return every worthwhile resize; the state is unchanged afterwards, and equal states give equal plans.

    Args:
        state: The pool.
        now: The time in µs.
        settings: The platform's settings.
        decided_at: When (µs) the scheduler last placed or resized a job, if it has done so for jobs that the state does
            not have any more.
    """
    transaction = Transaction(index=state.index, feasible=state.feasible, now=now)
    mark = transaction.checkpoint()
    try:
        reservations = Reservations(transaction.snapshot)
        ReservationPlanner(transaction, reservations, state.runtime_estimates, state.reservation_cache).run()
        waiting = waiting_jobs(transaction)
        if starved := starved_jobs(waiting, now):
            planner = ScaleDownPlanner(transaction, reservations, settings)
            planner.run(starved)
            if planner.proposals or planner.awaits_terminating:
                return planner.proposals
        if blocks_scale_up(waiting, now):
            return []
        return plan_scale_up(transaction, max(state.decided_at, decided_at), settings)
    finally:
        transaction.rollback(mark)


def next_check(state: PoolState, now: int, settings: ElasticSettings, *, decided_at: int = 0) -> int | None:
    """Return the next time (µs) at which ``plan`` may propose something new without an event, or None if at no time."""
    transaction = Transaction(index=state.index, feasible=state.feasible, now=now)
    waiting = waiting_jobs(transaction)
    growing = growable_jobs(transaction, settings)
    times = [grows_at(job, max(state.decided_at, decided_at)) for job in growing]
    times += [at for job in growing if (at := next_node_allowed(job, now)) is not None]
    if waiting:
        tree = transaction.index.tree
        donors = (shrinkable(record, tree, settings) for record in transaction.index.records.values())
        times += [donor.cool_down_until for donor in donors if donor is not None]
    if (starves_at := next_starvation(waiting, now)) is not None:
        times.append(starves_at)
    return min((at for at in times if at > now), default=None)
