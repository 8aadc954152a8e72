"""Where a job stands in its queue, and why it has not started, computed when it is asked."""

from __future__ import annotations

import msgspec

from muster_core.models import Phase, Reason


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is where it is.

    ``position`` counts from 1 in the order in which waiting jobs are tried, 0 where the job does not wait; ``ahead`` are the ids of those
    before it, the first of them only where there are many (``position - 1`` in all). ``feasible_when_empty`` is None where it does not wait
    for room. ``not_before`` (µs) holds back a restart, 0 for none.
    """

    job_id: str
    phase: Phase
    reason: Reason
    position: int = 0
    ahead: tuple[str, ...] = ()
    feasible_when_empty: bool | None = None
    not_before: int = 0
