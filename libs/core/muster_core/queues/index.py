"""The records of the jobs that are not settled, and everything that a decision looks up in them.

What is indexed here is derived from the records alone, one record at a time, so that a restart ends in the same state.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster_core.lifecycle.moves import ACTIVE_PHASES, WAITING_PHASES
from muster_core.models import JobRecord, Phase, ReplicaState
from muster_core.placement import Snapshot, gang_of
from muster_core.queues.holdings import holdings_of
from muster_core.queues.lines import WaitingLines
from muster_core.queues.order import QueueKey, drained, queue_key, ready_at


class PoolIndex:
    """Unsettled records, and by them: what is held (in ``snapshot``), who waits, whose name is whose.

    ``waiting`` has the queue key of every job that wants to be placed. Of those, ``lines`` have the ones that may start when they fit,
    ``suspended`` those that may not start at all; the rest wait for the end of an earlier attempt. ``delayed`` has the instants (µs) before
    which jobs in ``lines`` must not start. ``rejected`` are the active jobs with a member that its node rejected.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.lines = WaitingLines()
        self.waiting: dict[str, QueueKey] = {}
        self.suspended: set[str] = set()
        self.delayed: dict[str, int] = {}
        self.rejected: set[str] = set()
        self._records: dict[str, JobRecord] = {}
        self._names: dict[tuple[str, str], set[str]] = {}

    @property
    def records(self) -> Mapping[str, JobRecord]:
        """The unsettled records by job id."""
        return self._records

    def put(self, record: JobRecord) -> None:
        """Index the new record of a job; a settled one is forgotten."""
        job_id = record.job_id
        before = self._records.get(job_id)
        if before is None or before.replicas is not record.replicas or before.phase is not record.phase:
            self._reindex_holdings(record)
        if record.settled:
            self._records.pop(job_id, None)
        else:
            self._records[job_id] = record
        self._reindex_name(before, record)
        self._reindex_waiting(record)
        rejected = record.phase in ACTIVE_PHASES and any(
            member.state is ReplicaState.REJECTED for member in record.members()
        )
        (self.rejected.add if rejected else self.rejected.discard)(job_id)

    def holder_of_name(self, record: JobRecord) -> str | None:
        """The job that keeps ``record`` from using its name: one that was placed, else one that came earlier."""
        rivals = self._names.get(_name_of(record), ())
        if len(rivals) < 2:
            return None
        others = [self._records[job_id] for job_id in rivals if job_id != record.job_id]
        placed = [other for other in others if other.phase not in WAITING_PHASES or not drained(other)]
        arrival = (record.queued_at, record.job_id)
        ahead = placed or [other for other in others if (other.queued_at, other.job_id) < arrival]
        return min(ahead, key=lambda other: (other.queued_at, other.job_id)).job_id if ahead else None

    def _reindex_holdings(self, record: JobRecord) -> None:
        before = self._records.get(record.job_id)
        held = holdings_of(before) if before is not None else {}
        holds = {} if record.settled else holdings_of(record)
        for key, hold in held.items():
            if holds.get(key) != hold:
                self.snapshot.release(key)
        for key, hold in holds.items():
            if held.get(key) != hold:
                self.snapshot.hold(key, hold)

    def _reindex_name(self, before: JobRecord | None, record: JobRecord) -> None:
        name = _name_of(record)
        rivals = self._names.get(name, set[str]())
        changed = (
            before is None
            or before.phase is not record.phase
            or record.settled
            or record.job_id not in rivals
        )
        if record.job is None or not changed:
            return
        if record.settled:
            rivals.discard(record.job_id)
        else:
            rivals.add(record.job_id)
        for rival in rivals:
            self.lines.retell(rival)
        if rivals:
            self._names[name] = rivals
        else:
            self._names.pop(name, None)

    def _reindex_waiting(self, record: JobRecord) -> None:
        job_id = record.job_id
        self.waiting.pop(job_id, None)
        self.suspended.discard(job_id)
        self.delayed.pop(job_id, None)
        self.lines.drop(job_id)
        if record.job is None or record.phase not in WAITING_PHASES or record.cancel_requested:
            return
        key = self.waiting[job_id] = queue_key(record)
        if record.phase is Phase.SUSPENDED or record.job.run.suspend:
            self.suspended.add(job_id)
        elif drained(record):
            self.lines.put(job_id, key, gang_of(record.job))
            if ready := ready_at(record):
                self.delayed[job_id] = ready


def _name_of(record: JobRecord) -> tuple[str, str]:
    return (record.job.namespace, record.job.name) if record.job else ("", record.name)
