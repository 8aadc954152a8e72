"""What is done about replicas that have not started in time: a gang is taken down as a whole, and a growth is taken back.

Who joined a running gang and does not come up is left out again, unless the gang may not be without it: then it goes the way of one that
never started.
"""

from __future__ import annotations

from muster_core.events import ReplicaRef
from muster_core.lifecycle import late_joiners, start_timeout_of, unstarted
from muster_core.models import JobRecord, Phase
from muster_core.scheduling.queues import reasons
from muster_core.scheduling.queues.instructions import Evict, Resize
from muster_core.scheduling.queues.replacing import goes_on_without


def timed_out(record: JobRecord, default_s: int, now: int) -> Resize | Evict:
    """What becomes of a job whose start, or growth, is overdue at ``now`` (µs); its nodes are avoided for a while."""
    timeout_s = start_timeout_of(record, default_s)
    is_running = record.phase is Phase.RUNNING
    late = late_joiners(record, default_s, now) if is_running else unstarted(record)
    nodes = tuple(sorted({one.node for one in late}))
    if is_running and goes_on_without(record, late):
        return Resize(
            job_id=record.job_id,
            attempt=record.attempt,
            generation=record.generation + 1,
            reason=reasons.taken_back(record, late, timeout_s),
            removed=tuple(ReplicaRef(role=one.role, index=one.index) for one in late),
            avoid=nodes,
        )
    return Evict(
        job_id=record.job_id,
        attempt=record.attempt,
        reason=reasons.start_timeout(record, late, timeout_s),
        avoid=nodes,
    )
