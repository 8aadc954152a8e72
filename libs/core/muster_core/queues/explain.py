"""Where a job stands in its queue, and why it has not started, computed when it is asked."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from muster_core.models import JobRecord, Phase, Reason
from muster_core.placement import Shortfall, place, to_reason
from muster_core.queues import reasons
from muster_core.queues.index import PoolIndex
from muster_core.queues.keeping import Reservation
from muster_core.queues.remedies import remedies
from muster_core.queues.serving import allowed_size

_AHEAD_NAMED = 20


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is where it is.

    ``position`` counts from 1 in the order in which the waiting jobs of its ``queue`` are tried, 0 where the job does not wait; ``ahead``
    are the ids of those before it, the first of them only where there are many (``position - 1`` in all). ``feasible_when_empty`` is None
    where it does not wait for room. ``not_before`` (µs) holds back a restart, 0 for none. ``reserved_nodes`` are those on which room is
    kept for it, with ``expected_start`` (µs) where it can be known. ``remedies`` say what would let it start now, or sooner.
    """

    job_id: str
    phase: Phase
    reason: Reason
    queue: str = ""
    position: int = 0
    ahead: tuple[str, ...] = ()
    feasible_when_empty: bool | None = None
    not_before: int = 0
    reserved_nodes: tuple[str, ...] = ()
    expected_start: int | None = None
    remedies: tuple[str, ...] = ()


def explain(job_id: str, index: PoolIndex, reservations: Mapping[str, Reservation]) -> Explanation | None:
    """Why the job is where it is, or None where it is not known or settled; ``reservations`` are the last decision's, by job id."""
    record = index.records.get(job_id)
    if record is None:
        return None
    queue = (index.tree.queue_of(record.job) if record.job else None) or ""
    key = index.waiting.get(job_id)
    if key is None:
        return Explanation(job_id=job_id, phase=record.phase, reason=_said(record), queue=queue)
    ahead = sorted(
        other for other in index.waiting.values() if other < key and _queue_of(other[2], index) == queue
    )
    reason, feasible = _reason_to_wait(record, index)
    kept = reservations.get(job_id)
    return Explanation(
        job_id=job_id,
        phase=record.phase,
        reason=reason,
        queue=queue,
        position=len(ahead) + 1,
        ahead=tuple(other for _, _, other in ahead[:_AHEAD_NAMED]),
        feasible_when_empty=feasible,
        not_before=index.delayed.get(job_id, 0),
        reserved_nodes=kept.nodes if kept else (),
        expected_start=kept.expected_at if kept else None,
        remedies=remedies(reason, record),
    )


def _queue_of(job_id: str, index: PoolIndex) -> str:
    job = index.records[job_id].job
    return (index.tree.queue_of(job) if job else None) or ""


def _reason_to_wait(record: JobRecord, index: PoolIndex) -> tuple[Reason, bool | None]:
    job_id = record.job_id
    if job_id in index.builds.blocked:
        return index.builds.explain(record), None
    if job_id in index.suspended:
        return reasons.suspended(), None
    if job_id in index.homeless and record.job is not None:
        return reasons.no_such_queue(record.job.queue), None
    if job_id not in index.lines:
        return _said(record), None
    holder = index.holder_of_name(record)
    if holder is not None:
        return reasons.name_in_use(record, holder), None
    gang = allowed_size(index.lines.line_of(job_id).shape, index.ledger)
    if isinstance(gang, Reason):
        return gang, None
    found = place(gang, index.snapshot)
    if isinstance(found, Shortfall):
        return to_reason(found), found.feasible_when_empty
    return _said(record), True


def _said(record: JobRecord) -> Reason:
    return record.reason or Reason(code=record.phase.value)
