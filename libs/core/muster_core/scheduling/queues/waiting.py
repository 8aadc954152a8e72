"""Waiting jobs: their order, their scheduling classes, and the builds that they depend on.

A scheduling class groups the jobs of one account with equal gangs. A gang that does not fit is tried once per class, not once
per job: ten thousand waiting jobs of few classes cost a cycle what the classes cost.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sized
from typing import NamedTuple

from muster_core.lifecycle import awaits_build, is_build
from muster_core.models import JobRecord, Phase, Reason
from muster_core.scheduling import reasons
from muster_core.scheduling.placement import Gang
from muster_core.scheduling.queues.quota import (
    Account,
    Amounts,
    QuotaLedger,
    ShareKey,
    gang_amounts,
    largest_allowed,
    minimum_gang,
)
from muster_core.scheduling.reasons import EndedBuild

QueueKey = tuple[int, int, str]
"""The order of jobs within a queue: priority descending, then arrival (µs), then job id."""

_MOST_ENDED_BUILDS = 50_000


def queue_key(record: JobRecord) -> QueueKey:
    """Return the sort key of a validated job in its queue."""
    return (-record.job.priority if record.job else 0, record.queued_at, record.job_id)


def drained(record: JobRecord) -> bool:
    """Return whether every replica of earlier attempts has ended, so that a new one cannot run beside it."""
    return all(replica.ended for replica in record.replicas)


class SchedulingKey(NamedTuple):
    """What the jobs of a scheduling class have in common; ``bound_s`` is their active deadline, None if they have none."""

    account: Account
    gang: Gang
    bound_s: int | None = None

    @property
    def queue(self) -> str:
        """The queue of the account."""
        return self.account[0]


def gang_within_limits(key: SchedulingKey, ledger: QuotaLedger) -> Gang | Reason:
    """Return the gang as large as the limits of its queue allow, or why they do not allow its minimum."""

    def allowed(amounts: Amounts) -> bool:
        return ledger.exceeded_limit(key.queue, amounts) is None

    gang = largest_allowed(key.gang, allowed)
    if gang is not None:
        return gang
    needed = gang_amounts(minimum_gang(key.gang))
    queue, resource = ledger.exceeded_limit(key.queue, needed) or (key.queue, "")
    return reasons.queue_limit(
        queue,
        resource,
        limit=ledger.limit(queue, resource),
        used=ledger.usage((queue,)).get(resource, 0),
        needed=needed[resource],
    )


def exceeds_limit_alone(key: SchedulingKey, ledger: QuotaLedger) -> bool:
    """Return whether the minimum of the gang exceeds a limit even if its queues use nothing."""
    return ledger.exceeds_limit_alone(key.queue, gang_amounts(minimum_gang(key.gang)))


class ClassDiagnosis(NamedTuple):
    """The ``reason`` why a class did not fit at ``at`` (µs), None if it fitted after all.

    It is valid as long as ``basis`` is the same; None: only for the cycle that found it.
    """

    at: int
    basis: Hashable
    reason: Reason | None


class SchedulingClass:
    """The waiting jobs with one scheduling key, in order."""

    __slots__ = ("diagnosis", "has_unreported", "jobs", "key", "oldest_wait", "reported")

    def __init__(self, key: SchedulingKey) -> None:
        self.key = key
        self.jobs: list[QueueKey] = []
        #: The reason that every job has been given; None if that differs or is unknown.
        self.reported: Reason | None = None
        #: The start (µs) of the longest wait, if nothing but capacity keeps any of the jobs; None if unknown.
        self.oldest_wait: int | None = None
        self.diagnosis: ClassDiagnosis | None = None
        #: A job without any reason joined since the class was last reported.
        self.has_unreported = False


class SchedulingClasses:
    """The jobs that may start as soon as they fit, by scheduling key."""

    def __init__(self) -> None:
        self._classes: dict[SchedulingKey, SchedulingClass] = {}
        self._of_job: dict[str, tuple[SchedulingClass, QueueKey]] = {}

    def __len__(self) -> int:
        return len(self._of_job)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._of_job

    def __iter__(self) -> Iterator[SchedulingClass]:
        """Iterate over the classes in the order of their first jobs."""
        return iter(sorted(self._classes.values(), key=lambda one: one.jobs[0]))

    @property
    def keys(self) -> Sized:
        """The scheduling keys."""
        return self._classes.keys()

    def class_of(self, job_id: str) -> SchedulingClass:
        """Return the class of a job; raises KeyError if it has none."""
        return self._of_job[job_id][0]

    def put(self, job_id: str, job: QueueKey, key: SchedulingKey, *, has_reason: bool) -> None:
        """Add a job, or move it to another class; ``has_reason`` is whether it was ever given a reason for waiting."""
        self.drop(job_id)
        one = self._classes.get(key)
        if one is None:
            one = self._classes[key] = SchedulingClass(key)
        insort(one.jobs, job)
        one.reported = one.oldest_wait = None
        one.has_unreported = one.has_unreported or not has_reason
        self._of_job[job_id] = (one, job)

    def drop(self, job_id: str) -> None:
        """Remove a job if it is in a class."""
        entry = self._of_job.pop(job_id, None)
        if entry is None:
            return
        one, job = entry
        one.oldest_wait = None
        del one.jobs[bisect_left(one.jobs, job)]
        if not one.jobs:
            del self._classes[one.key]

    def invalidate(self, job_id: str) -> None:
        """Forget the reported reason and the longest wait of a job's class."""
        entry = self._of_job.get(job_id)
        if entry is not None:
            entry[0].reported = entry[0].oldest_wait = None


class BuildDependencies:
    """The jobs that wait for builds, among ``records``.

    How a build ended is kept here, because its record is removed sooner than the jobs that need it.
    """

    def __init__(self, records: Mapping[str, JobRecord]) -> None:
        #: The reason of every job that may not start because of its build, by job id.
        self.blocked: dict[str, Reason] = {}
        #: The blocked jobs that were not yet given their reason.
        self.unreported: set[str] = set()
        self._records = records
        self._dependents: dict[str, set[str]] = {}
        self._ended: dict[str, EndedBuild] = {}

    def observe(self, record: JobRecord) -> None:
        """Remember how a build ended; other records change nothing."""
        if not record.terminal or not (is_build(record) or record.job_id in self._dependents):
            return
        message = record.reason.message if record.reason else ""
        self._ended[record.job_id] = EndedBuild(name=record.name, phase=record.phase, message=message)
        if len(self._ended) > _MOST_ENDED_BUILDS:
            del self._ended[next(iter(self._ended))]

    def dependents(self, build: str) -> tuple[str, ...]:
        """Return the jobs that wait for a build."""
        return tuple(self._dependents.get(build, ()))

    def block(self, record: JobRecord) -> bool:
        """Record a waiting job that may not start because of its build; return whether it is one."""
        reason = self._reason(record) if awaits_build(record) else None
        if reason is None:
            return False
        self._dependents.setdefault(record.built_by, set()).add(record.job_id)
        self.blocked[record.job_id] = reason
        if record.reason is None or record.reason.code != reason.code:
            self.unreported.add(record.job_id)
        return True

    def unblock(self, record: JobRecord) -> None:
        """Forget that a job waits for its build."""
        self.blocked.pop(record.job_id, None)
        self.unreported.discard(record.job_id)
        dependents = self._dependents.get(record.built_by)
        if dependents is not None:
            dependents.discard(record.job_id)
            if not dependents:
                del self._dependents[record.built_by]

    def explain(self, record: JobRecord) -> Reason:
        """Return why a blocked job waits, with the phase of its build."""
        build = self._records.get(record.built_by)
        if build is not None and not build.terminal:
            return reasons.waiting_for_build(build, phase=True)
        return self.blocked[record.job_id]

    def _reason(self, record: JobRecord) -> Reason | None:
        end = self._ended.get(record.built_by)
        if end is not None:
            return None if end.phase is Phase.SUCCEEDED else reasons.build_failed(record.built_by, end)
        build = self._records.get(record.built_by)
        return reasons.waiting_for_build(build) if build else reasons.build_failed(record.built_by, None)


_Rank = tuple[int, int, ShareKey]
"""Lower goes first: 0 if within the guarantee else 1, the dominant share by weight, the name."""


class AdmissionOrder:
    """The order in which a cycle tries the jobs of ``classes``: fair share between queues, the queue's policy within.

    On each level of the tree, a queue within its guarantee goes first, then the one with the lowest dominant share by weight.
    An admission changes the shares on one path of the tree, so that only this path is ranked again. ``ledger`` may change
    between jobs, for the account of the last job only.
    """

    def __init__(self, classes: Iterable[SchedulingClass], ledger: QuotaLedger) -> None:
        self._ledger = ledger
        self._nodes: dict[str, _QueueNode] = {"": _QueueNode("", None)}
        accounts: dict[Account, _AccountNode] = {}
        for one in classes:
            account = one.key.account
            node = accounts.get(account)
            if node is None:
                parent = self._node(account[0])
                node = accounts[account] = _AccountNode(account, parent)
                parent.children.append(node)
            node.add(one)

    def jobs(
        self, blocked: Container[SchedulingClass], closed: Container[Account]
    ) -> Iterator[tuple[str, SchedulingClass]]:
        """Yield each job id with its class.

        Args:
            blocked: Classes to which the caller adds the class of a job that did not start: the rest of it is skipped.
            closed: Accounts of which the caller wants no more jobs.
        """
        top = self._nodes[""]
        while (node := self._next(top)) is not None:
            (_, _, job_id), one, position, at = node.pop()
            yield job_id, one
            if node.account in closed:
                node.close()
            elif one not in blocked:
                node.advance(position, at)
            self._invalidate(node)

    def _node(self, queue: str) -> _QueueNode:
        node = self._nodes.get(queue)
        if node is None:
            parent = self._node(self._ledger.tree.specs[queue].parent)
            node = self._nodes[queue] = _QueueNode(queue, parent)
            parent.children.append(node)
        return node

    def _invalidate(self, node: _AccountNode) -> None:
        child: _AccountNode | _QueueNode = node
        while (parent := child.parent) is not None:
            parent.ranks.pop(child.share_key, None)
            parent.ranked = False
            child = parent

    def _next(self, node: _QueueNode) -> _AccountNode | None:
        """Return the account below ``node`` that goes next; None if no job is left there."""
        if not node.ranked:
            node.ranked = True
            best: tuple[_Rank, _AccountNode] | None = None
            for child in node.children:
                account = self._next(child) if isinstance(child, _QueueNode) else child
                rank = self._rank(node, child, account)
                if rank is not None and account is not None and (best is None or rank < best[0]):
                    best = (rank, account)
            node.next_account = best[1] if best else None
        return node.next_account

    def _rank(
        self, node: _QueueNode, child: _QueueNode | _AccountNode, account: _AccountNode | None
    ) -> _Rank | None:
        if child.share_key in node.ranks:
            return node.ranks[child.share_key]
        first = account.first() if account is not None else None
        if first is None:
            rank = None
        elif len(node.children) == 1:
            rank = (0, 0, child.share_key)
        elif isinstance(child, _AccountNode):
            rank = (1, self._ledger.share(child.share_key), child.share_key)
        else:
            needed = gang_amounts(minimum_gang(first.key.gang))
            covered = self._ledger.within_guarantee(child.queue, needed)
            share = self._ledger.share(child.share_key) // self._ledger.tree.specs[child.queue].weight
            rank = (0 if covered else 1, share, child.share_key)
        node.ranks[child.share_key] = rank
        return rank


class _AccountNode:
    """The classes of one account, merged in the order of their jobs."""

    def __init__(self, account: Account, parent: _QueueNode) -> None:
        self.account = account
        self.parent = parent
        self.share_key: ShareKey = account
        self._classes: list[SchedulingClass] = []
        self._heap: list[tuple[QueueKey, int, int]] = []

    def add(self, one: SchedulingClass) -> None:
        heapq.heappush(self._heap, (one.jobs[0], len(self._classes), 0))
        self._classes.append(one)

    def first(self) -> SchedulingClass | None:
        return self._classes[self._heap[0][1]] if self._heap else None

    def pop(self) -> tuple[QueueKey, SchedulingClass, int, int]:
        job, position, at = heapq.heappop(self._heap)
        return job, self._classes[position], position, at

    def advance(self, position: int, at: int) -> None:
        """Push the job that follows the one at ``at`` in its class."""
        jobs = self._classes[position].jobs
        if at + 1 < len(jobs):
            heapq.heappush(self._heap, (jobs[at + 1], position, at + 1))

    def close(self) -> None:
        self._heap.clear()


class _QueueNode:
    """A queue, with its children that have waiting jobs; the top node has an empty ``queue``."""

    def __init__(self, queue: str, parent: _QueueNode | None) -> None:
        self.queue = queue
        self.parent = parent
        self.share_key: ShareKey = (queue,)
        self.children: list[_QueueNode | _AccountNode] = []
        self.ranks: dict[ShareKey, _Rank | None] = {}
        self.next_account: _AccountNode | None = None
        self.ranked = False
