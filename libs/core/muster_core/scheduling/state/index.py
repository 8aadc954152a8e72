"""The pool index: the unsettled job records, and everything that scheduling cycles look up in them.

The index follows from the records alone, one record at a time, so that a restart ends in the same state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from muster_core.lifecycle import ACTIVE_PHASES, WAITING_PHASES, start_due, was_disrupted
from muster_core.models import JobRecord, Phase
from muster_core.scheduling.placement import Allocation, AllocationKey, Snapshot, gang_of
from muster_core.scheduling.queues import (
    BuildDependencies,
    QueueKey,
    QueueTree,
    QuotaLedger,
    SchedulingClasses,
    SchedulingKey,
    amounts_of,
    drained,
    queue_key,
)
from muster_core.scheduling.state.allocations import ReleaseIndex, allocations_of

_WITHOUT_REPLICAS = WAITING_PHASES | {Phase.SUSPENDED}
"""Phases in which a drained job leaves its name to other jobs."""


class PoolIndex:
    """The unsettled records of a pool, indexed; what they hold is allocated on ``snapshot``."""

    def __init__(self, snapshot: Snapshot, *, start_timeout_s: int = 0) -> None:
        self.snapshot = snapshot
        self.start_timeout_s = start_timeout_s
        #: The queue key of every job that waits to be placed.
        self.waiting: dict[str, QueueKey] = {}
        #: Of those, the jobs that may start as soon as they fit.
        self.classes = SchedulingClasses()
        #: Of those, the jobs of unknown queues.
        self.unknown_queue: set[str] = set()
        #: Of those, the jobs with replicas of an earlier attempt that have not ended.
        self.draining: set[str] = set()
        #: The instants (µs) before which jobs in ``classes`` must not start.
        self.delayed: dict[str, int] = {}
        #: The active jobs with replicas that their node has lost or rejected.
        self.disrupted: set[str] = set()
        #: The active jobs with replicas that have not started, and when they must have (µs).
        self.starting: dict[str, int] = {}
        #: What every job holds.
        self.allocations: dict[str, dict[AllocationKey, Allocation]] = {}
        self.releases = ReleaseIndex()
        #: Changes with the nodes, the queues, ``allocations`` and ``releases``.
        self.version = 0
        #: By donor, the waiting jobs for which it released replicas.
        self.beneficiaries: dict[str, frozenset[str]] = {}
        self._capacity: dict[str, int] | None = None
        self.tree = QueueTree()
        self.ledger = QuotaLedger(self.tree, self.capacity)
        #: The unsettled records by job id.
        self.records: dict[str, JobRecord] = {}
        self._names: dict[tuple[str, str], set[str]] = {}
        #: Of ``waiting``, the jobs that wait for a build.
        self.builds = BuildDependencies(self.records)

    def capacity(self) -> Mapping[str, int]:
        """Return the allocatable total of the pool, by resource."""
        if self._capacity is None:
            self._capacity = self.snapshot.allocatable_total().amounts()
        return self._capacity

    def node_changed(self) -> None:
        """Invalidate what depends on the nodes."""
        self._capacity = None
        self.version += 1

    def apply_tree(self, tree: QueueTree) -> None:
        """Move every job to its queue in ``tree``."""
        self.tree = tree
        self.version += 1
        self.ledger = QuotaLedger(tree, self.capacity)
        for job_id, allocations in self.allocations.items():
            self.ledger.add(tree.account_of(self.records[job_id]), amounts_of(allocations.values()))
        for record in self.records.values():
            self._index_waiting(record)

    def put(self, record: JobRecord) -> None:
        """Index the new record of a job; a settled job is removed."""
        job_id = record.job_id
        before = self.records.get(job_id)
        if before is None or before.replicas is not record.replicas or before.phase is not record.phase:
            self._index_allocations(before, record)
            self._index_beneficiaries(record)
        if record.settled:
            self.records.pop(job_id, None)
        else:
            self.records[job_id] = record
        self._index_name(before, record)
        self._index_waiting(record)
        if before is None or before.terminal is not record.terminal:
            self.observe_build(record)
        disrupted = record.phase in ACTIVE_PHASES and any(was_disrupted(member) for member in record.gang())
        (self.disrupted.add if disrupted else self.disrupted.discard)(job_id)
        due = start_due(record, self.start_timeout_s)
        if due is None:
            self.starting.pop(job_id, None)
        else:
            self.starting[job_id] = due

    def observe_build(self, record: JobRecord) -> None:
        """Update the jobs that wait for ``record``, which has appeared or ended; it is not indexed itself."""
        self.builds.observe(record)
        for job_id in self.builds.dependents(record.job_id):
            self._index_waiting(self.records[job_id])

    def holder_of_name(self, record: JobRecord) -> str | None:
        """Return the job that keeps ``record`` from using its name: a placed one, else one that arrived earlier."""
        namesakes = self._names.get(_name_of(record), ())
        if len(namesakes) < 2:
            return None
        others = [self.records[job_id] for job_id in namesakes if job_id != record.job_id]
        placed = [other for other in others if other.phase not in _WITHOUT_REPLICAS or not drained(other)]
        arrival = (record.queued_at, record.job_id)
        ahead = placed or [other for other in others if (other.queued_at, other.job_id) < arrival]
        return min(ahead, key=lambda other: (other.queued_at, other.job_id)).job_id if ahead else None

    def _index_allocations(self, before: JobRecord | None, record: JobRecord) -> None:
        held = self.allocations.get(record.job_id, {})
        same_job = before is not None and before.job is record.job
        holds = {} if record.settled else allocations_of(record, held if same_job else {})
        released = [key for key, allocation in held.items() if holds.get(key) != allocation]
        added = [(key, allocation) for key, allocation in holds.items() if held.get(key) != allocation]
        for key in released:
            self.snapshot.release(key)
        self.snapshot.allocate_all(added)
        if released or added:
            account = self.tree.account_of(record)
            self.ledger.subtract(account, amounts_of(held[key] for key in released))
            self.ledger.add(account, amounts_of(allocation for _, allocation in added))
        if holds:
            self.allocations[record.job_id] = holds
        else:
            self.allocations.pop(record.job_id, None)
        if self.releases.put(record, holds) or released or added:
            self.version += 1

    def _index_beneficiaries(self, record: JobRecord) -> None:
        beneficiaries = frozenset(one.beneficiary for one in record.replicas if one.beneficiary)
        if beneficiaries and record.phase in ACTIVE_PHASES:
            self.beneficiaries[record.job_id] = beneficiaries
        else:
            self.beneficiaries.pop(record.job_id, None)

    def _index_name(self, before: JobRecord | None, record: JobRecord) -> None:
        name = _name_of(record)
        namesakes = self._names.get(name, set[str]())
        changed = (
            before is None
            or before.phase is not record.phase
            or record.settled
            or record.job_id not in namesakes
        )
        if record.job is None or not changed:
            return
        if record.settled:
            namesakes.discard(record.job_id)
        else:
            namesakes.add(record.job_id)
        for job_id in namesakes:
            self.classes.invalidate(job_id)
        if namesakes:
            self._names[name] = namesakes
        else:
            self._names.pop(name, None)

    def _index_waiting(self, record: JobRecord) -> None:
        job_id = record.job_id
        self.waiting.pop(job_id, None)
        self.unknown_queue.discard(job_id)
        self.draining.discard(job_id)
        self.delayed.pop(job_id, None)
        self.classes.drop(job_id)
        self.builds.unblock(record)
        if record.job is None or record.phase not in WAITING_PHASES or record.cancel_requested:
            return
        job = self.waiting[job_id] = queue_key(record)
        if self.builds.block(record):
            return
        if self.tree.queue_of(record.job) is None:
            self.unknown_queue.add(job_id)
        elif drained(record):
            bound_s = record.job.run.active_deadline_s
            key = SchedulingKey(self.tree.account_of(record), gang_of(record.job), bound_s)
            self.classes.put(job_id, job, key, has_reason=record.reason is not None)
            if record.not_before:
                self.delayed[job_id] = record.not_before
        else:
            self.draining.add(job_id)


def _name_of(record: JobRecord) -> tuple[str, str]:
    return (record.job.namespace, record.job.name) if record.job else ("", record.name)


class InvariantBroken(AssertionError):
    """An invariant of the pool does not hold; the message has one violation per line."""


def violations(
    index: PoolIndex, *, shrunk_nodes: frozenset[str], lowered_queues: frozenset[str]
) -> list[str]:
    """Return every invariant of the pool that does not hold, in words. Tests check them, production counts them.

    ``shrunk_nodes`` shrank below what was allocated, and ``lowered_queues`` got a limit below their usage: both may be over.
    """
    found = [
        f"node {name} is over its capacity"
        for name in index.snapshot.overcommitted()
        if name not in shrunk_nodes
    ]
    allocated: set[AllocationKey] = set()
    for record in index.records.values():
        found.extend(_size_violations(record))
        found.extend(_duplicates(record))
        allocated |= allocations_of(record).keys()
    if allocated != set(index.snapshot.allocations):
        found.append("the allocations in the snapshot differ from those of the records")
    found.extend(
        f"queue {name} is over its limit" for name in sorted(index.ledger.over_limit() - lowered_queues)
    )
    found.extend(_ledger_violations(index))
    return found


def _ledger_violations(index: PoolIndex) -> Iterator[str]:
    expected = QuotaLedger(index.tree, index.capacity)
    for job_id, allocations in index.allocations.items():
        expected.add(index.tree.account_of(index.records[job_id]), amounts_of(allocations.values()))
    for name in index.tree.specs:
        if expected.usage((name,)) != index.ledger.usage((name,)):
            yield f"the usage of queue {name} differs from what its jobs hold"


def _size_violations(record: JobRecord) -> Iterator[str]:
    if record.job is None or record.phase not in ACTIVE_PHASES:
        return
    members = record.gang()
    for role in record.job.roles:
        number = sum(1 for member in members if member.role == role.name)
        if not min(role.min, role.replicas) <= number <= max(role.max, role.replicas):
            yield f"{record.job_id} has {number} {role.name}, not {role.min} to {role.max}"
    if len(members) < min(record.job.min_available or 0, sum(role.replicas for role in record.job.roles)):
        yield f"{record.job_id} runs with fewer than {record.job.min_available} replicas"


def _duplicates(record: JobRecord) -> Iterator[str]:
    seen: set[tuple[str, int]] = set()
    for replica in record.replicas:
        if not replica.ended:
            if replica.key in seen:
                yield f"{record.job_id} has {replica.role}-{replica.index} in two places"
            seen.add(replica.key)
