"""The records of the jobs that are not settled, and everything that a decision looks up in them.

What is indexed here is derived from the records alone, one record at a time, so that a restart ends in the same state.

What must hold of a pool after every event, whatever happened; tests check it, production counts it.

The reservations of the last pass, for as long as nothing that they follow from has changed.

To derive them costs milliseconds on a large pool, and most passes follow events that free or take no room: another submission, a
reason that was told. What is remembered is what would be derived again, so that it makes no difference to what is decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from muster_core.lifecycle import start_due, was_taken
from muster_core.lifecycle.moves import ACTIVE_PHASES, WAITING_PHASES
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
    ready_at,
)
from muster_core.scheduling.state.allocations import ReleaseIndex, allocations_of

_PLACELESS_PHASES = WAITING_PHASES | {Phase.SUSPENDED}
"""Phases in which a job whose replicas have gone leaves its name to others."""


class PoolIndex:
    """Unsettled records, and by them: what is held (in ``snapshot``, by queue in ``ledger``), who waits, whose name is whose.

    ``waiting`` has the queue key of every job that wants to be placed. Of those, ``lines`` have the ones that may start when they fit,
    ``builds`` those that wait for their build, ``unknown_queue`` those of an unknown queue, ``draining`` those that wait for the end of
    an earlier attempt. ``delayed`` has the instants (µs) before which jobs in ``lines`` must not start. ``disrupted`` are the active
    jobs with a member that its node has taken, ``starting`` those of which not all has started, with the instants (µs) by which it must
    have. ``allocations`` has what every job holds, ``releases`` what of it becomes free when; ``version`` changes whenever one of them
    or a node does. ``gifts`` are, by job that gave replicas up, the waiting jobs for which it did.
    """

    def __init__(self, snapshot: Snapshot, *, start_timeout_s: int = 0) -> None:
        self.snapshot = snapshot
        self.start_timeout_s = start_timeout_s
        self.classes = SchedulingClasses()
        self.waiting: dict[str, QueueKey] = {}
        self.unknown_queue: set[str] = set()
        self.draining: set[str] = set()
        self.delayed: dict[str, int] = {}
        self.disrupted: set[str] = set()
        self.starting: dict[str, int] = {}
        self.allocations: dict[str, dict[AllocationKey, Allocation]] = {}
        self.releases = ReleaseIndex()
        self.version = 0
        self.beneficiaries: dict[str, frozenset[str]] = {}
        self._capacity: dict[str, int] | None = None
        self.tree = QueueTree()
        self.ledger = QuotaLedger(self.tree, self.capacity)
        self._records: dict[str, JobRecord] = {}
        self._names: dict[tuple[str, str], set[str]] = {}
        self.builds = BuildDependencies(self._records)

    @property
    def records(self) -> Mapping[str, JobRecord]:
        """The unsettled records by job id."""
        return self._records

    def capacity(self) -> Mapping[str, int]:
        """What the pool offers in all, by resource."""
        if self._capacity is None:
            self._capacity = self.snapshot.allocatable_total().amounts()
        return self._capacity

    def note_node(self) -> None:
        """Take in that a node has changed."""
        self._capacity = None
        self.version += 1

    def apply(self, tree: QueueTree) -> None:
        """Put every job into its queue of ``tree``."""
        self.tree = tree
        self.version += 1
        self.ledger = QuotaLedger(tree, self.capacity)
        for job_id, holds in self.allocations.items():
            self.ledger.add(tree.account_of(self._records[job_id]), amounts_of(holds.values()))
        for record in self._records.values():
            self._reindex_waiting(record)

    def put(self, record: JobRecord) -> None:
        """Index the new record of a job; a settled one is forgotten."""
        job_id = record.job_id
        before = self._records.get(job_id)
        if before is None or before.replicas is not record.replicas or before.phase is not record.phase:
            self._reindex_holdings(before, record)
            self._reindex_gifts(record)
        if record.settled:
            self._records.pop(job_id, None)
        else:
            self._records[job_id] = record
        self._reindex_name(before, record)
        self._reindex_waiting(record)
        if before is None or before.terminal is not record.terminal:
            self.note_build(record)
        disrupted = record.phase in ACTIVE_PHASES and any(was_taken(member) for member in record.members())
        (self.disrupted.add if disrupted else self.disrupted.discard)(job_id)
        due = start_due(record, self.start_timeout_s)
        if due is None:
            self.starting.pop(job_id, None)
        else:
            self.starting[job_id] = due

    def note_build(self, record: JobRecord) -> None:
        """Take in that a job has appeared or ended, for those that wait for it; a settled one is not indexed by this."""
        self.builds.note_end(record)
        for job_id in self.builds.users(record.job_id):
            self._reindex_waiting(self._records[job_id])

    def holder_of_name(self, record: JobRecord) -> str | None:
        """The job that keeps ``record`` from using its name: one that was placed, else one that came earlier."""
        rivals = self._names.get(_name_of(record), ())
        if len(rivals) < 2:
            return None
        others = [self._records[job_id] for job_id in rivals if job_id != record.job_id]
        placed = [other for other in others if other.phase not in _PLACELESS_PHASES or not drained(other)]
        arrival = (record.queued_at, record.job_id)
        ahead = placed or [other for other in others if (other.queued_at, other.job_id) < arrival]
        return min(ahead, key=lambda other: (other.queued_at, other.job_id)).job_id if ahead else None

    def _reindex_holdings(self, before: JobRecord | None, record: JobRecord) -> None:
        held = self.allocations.get(record.job_id, {})
        same_job = before is not None and before.job is record.job
        holds = {} if record.settled else allocations_of(record, held if same_job else {})
        released = [key for key, hold in held.items() if holds.get(key) != hold]
        taken = [(key, hold) for key, hold in holds.items() if held.get(key) != hold]
        for key in released:
            self.snapshot.release(key)
        self.snapshot.hold_all(taken)
        if released or taken:
            account = self.tree.account_of(record)
            self.ledger.take(account, amounts_of(held[key] for key in released))
            self.ledger.add(account, amounts_of(hold for _, hold in taken))
        if holds:
            self.allocations[record.job_id] = holds
        else:
            self.allocations.pop(record.job_id, None)
        if self.releases.put(record, holds) or released or taken:
            self.version += 1

    def _reindex_gifts(self, record: JobRecord) -> None:
        takers = frozenset(one.leaves_for for one in record.replicas if one.leaves_for)
        if takers and record.phase in ACTIVE_PHASES:
            self.beneficiaries[record.job_id] = takers
        else:
            self.beneficiaries.pop(record.job_id, None)

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
            self.classes.retell(rival)
        if rivals:
            self._names[name] = rivals
        else:
            self._names.pop(name, None)

    def _reindex_waiting(self, record: JobRecord) -> None:
        job_id = record.job_id
        self.waiting.pop(job_id, None)
        self.unknown_queue.discard(job_id)
        self.draining.discard(job_id)
        self.delayed.pop(job_id, None)
        self.classes.drop(job_id)
        self.builds.release(record)
        if record.job is None or record.phase not in WAITING_PHASES or record.cancel_requested:
            return
        key = self.waiting[job_id] = queue_key(record)
        if self.builds.block(record):
            return
        if self.tree.queue_of(record.job) is None:
            self.unknown_queue.add(job_id)
        elif drained(record):
            shape = SchedulingKey(
                self.tree.account_of(record), gang_of(record.job), record.job.run.active_deadline_s
            )
            self.classes.put(job_id, key, shape, heard=record.reason is not None)
            if ready := ready_at(record):
                self.delayed[job_id] = ready
        else:
            self.draining.add(job_id)


def _name_of(record: JobRecord) -> tuple[str, str]:
    return (record.job.namespace, record.job.name) if record.job else ("", record.name)


class InvariantBroken(AssertionError):
    """Something that must always hold does not; carries every violation, one a line."""


def violations(index: PoolIndex, *, shrunk: frozenset[str], lowered: frozenset[str]) -> list[str]:
    """Every violation in words.

    ``shrunk`` are nodes that offered less after replicas had been placed, ``lowered`` queues that were limited when they held more
    already: those may be overfull.
    """
    found = [f"node {name} is over its capacity" for name in index.snapshot.overfull() if name not in shrunk]
    held: set[AllocationKey] = set()
    for record in index.records.values():
        found.extend(_of_membership(record))
        found.extend(_of_presence(record))
        held |= allocations_of(record).keys()
    if held != set(index.snapshot.holds):
        found.append("what is held is not what the records say")
    found.extend(f"queue {name} is over its limit" for name in sorted(index.ledger.over_limit() - lowered))
    found.extend(_of_ledger(index))
    return found


def _of_ledger(index: PoolIndex) -> Iterator[str]:
    fresh = QuotaLedger(index.tree, index.capacity)
    for job_id, holds in index.allocations.items():
        fresh.add(index.tree.account_of(index.records[job_id]), amounts_of(holds.values()))
    for name in index.tree.specs:
        if fresh.held((name,)) != index.ledger.held((name,)):
            yield f"what queue {name} holds is not what its jobs hold"


def _of_membership(record: JobRecord) -> Iterator[str]:
    if record.job is None or record.phase not in ACTIVE_PHASES:
        return
    members = record.members()
    for role in record.job.roles:
        number = sum(1 for member in members if member.role == role.name)
        if not min(role.min, role.replicas) <= number <= max(role.max, role.replicas):
            yield f"{record.job_id} has {number} {role.name}, not {role.min} to {role.max}"
    if len(members) < min(record.job.min_available or 0, sum(role.replicas for role in record.job.roles)):
        yield f"{record.job_id} runs with fewer than {record.job.min_available} replicas"


def _of_presence(record: JobRecord) -> Iterator[str]:
    seen: set[tuple[str, int]] = set()
    for replica in record.replicas:
        if not replica.ended:
            if replica.key in seen:
                yield f"{record.job_id} has {replica.role}-{replica.index} in two places"
            seen.add(replica.key)
