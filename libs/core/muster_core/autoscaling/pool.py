"""A pool that applies events cheaply and computes its full state only on demand.

Most pools have no elastic job most of the time. Computing what an event means for queues, nodes and scheduling classes
costs several times as much as the event itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from muster_core.events import NodeChanged, StoredEvent
from muster_core.lifecycle import apply_event
from muster_core.models import JobKind, JobRecord, Problem, QueueSpec
from muster_core.scheduling import PoolState
from muster_core.scheduling.placement import is_pinned

_SETTLED_LIMIT = 50_000


class LazyPoolState:
    """The unsettled jobs of ``pool`` by their events, and the full ``state`` on demand."""

    def __init__(self, *, pool: str) -> None:
        self._state = PoolState(pool=pool)
        self._records: dict[str, JobRecord] = {}
        self._pending: dict[str, None] = {}
        self._elastic: set[str] = set()
        self._settled: dict[str, None] = {}

    @property
    def has_elastic_jobs(self) -> bool:
        """Return whether there is a job whose size may ever change; without one there is nothing to plan."""
        return bool(self._elastic)

    @property
    def records(self) -> Collection[JobRecord]:
        """The unsettled records."""
        return self._records.values()

    def record(self, job_id: str) -> JobRecord | None:
        """Return the record of a job, or None if it is unknown or settled."""
        return self._records.get(job_id)

    def restore(self, records: Iterable[JobRecord]) -> None:
        """Start from stored records; events up to each record's sequence then change nothing."""
        settled: list[JobRecord] = []
        for record in records:
            if record.settled:
                settled.append(record)
            else:
                self._put(record)
        self._state.restore(settled)

    def observe_settled(self, record: JobRecord) -> None:
        """Take note of a settled job of the past, as ``PoolState.observe_settled`` does."""
        self._state.observe_settled(record)

    def observe(self, stored: StoredEvent) -> str | None:
        """Apply one event, as ``PoolState.observe`` does."""
        before = self._records.get(stored.job_id)
        if stored.job_id in self._settled or (
            before is not None and stored.sequence <= before.applied_sequence
        ):
            return None
        transition = apply_event(before, stored)
        if transition.record is not None:
            self._put(transition.record)
        return transition.invalid

    def observe_node(self, changed: NodeChanged) -> None:
        """Apply a node event of this pool."""
        self._state.observe_node(changed)

    def apply_queues(self, specs: Iterable[QueueSpec]) -> tuple[Problem, ...]:
        """Replace all queues by ``specs``, or return what is wrong with them and change nothing."""
        return self._state.apply_queues(specs)

    def state(self) -> PoolState:
        """Return the pool state after all events so far; valid until the next one."""
        for job_id in self._pending:
            self._state.put_record(self._records[job_id])
        self._pending.clear()
        return self._state

    def _put(self, record: JobRecord) -> None:
        job_id = record.job_id
        (self._elastic.add if _is_elastic(record) else self._elastic.discard)(job_id)
        if not record.settled:
            self._records[job_id] = record
            self._pending[job_id] = None
            return
        # Its run time is recorded, and jobs that wait for its build are updated.
        self._records.pop(job_id, None)
        self._pending.pop(job_id, None)
        self._state.put_record(record)
        self._settled[job_id] = None
        if len(self._settled) > _SETTLED_LIMIT:
            del self._settled[next(iter(self._settled))]


def _is_elastic(record: JobRecord) -> bool:
    job = record.job
    if job is None or record.settled or job.kind is not JobKind.BATCH:
        return False
    return any(role.min != role.max and not is_pinned(role.name) for role in job.roles)
