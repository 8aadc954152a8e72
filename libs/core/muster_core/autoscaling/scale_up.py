"""Scale-up: idle capacity goes to jobs one replica at a time, in policy order.

If jobs have different policies, the policy whose jobs have received least goes next.
"""

from __future__ import annotations

import heapq

from muster_core.autoscaling.policies import POLICIES, ElasticJob, Policy, Rank, elastic_job
from muster_core.autoscaling.proposals import ScaleProposal, scale_up_proposal
from muster_core.autoscaling.settings import ElasticSettings, ResizableJob, growable
from muster_core.events import Assignment
from muster_core.lifecycle import AVOIDED_FOR_US, avoided_at
from muster_core.models import ReplicaRecord
from muster_core.scheduling.placement import Candidates, place_more, request_of
from muster_core.scheduling.queues import max_replica_amounts
from muster_core.scheduling.state import Transaction


class _GrowingJob:
    """A job that could grow, with the replicas that it has received so far."""

    def __init__(self, job: ResizableJob, before: ElasticJob) -> None:
        self.job = job
        self.before = before
        self.after = before
        self.replicas: tuple[ReplicaRecord, ...] = job.record.replicas
        step = job.settings.step
        self.max_size = min(job.role.max, before.size + step) if step else job.role.max

    def add(self, added: Assignment) -> None:
        record = self.job.record
        self.after = self.after.resized(1)
        replica = ReplicaRecord(
            role=added.role,
            index=added.index,
            attempt=record.attempt,
            generation=record.generation + 1,
            node=added.node,
            gpus=added.gpus,
        )
        # The replica that had the index before has ended.
        others = tuple(one for one in self.replicas if one.key != replica.key or not one.ended)
        self.replicas = (*others, replica)


class _PolicyQueue:
    """The jobs of one policy by rank; ``received`` is the share of the pool that they have received."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.received = 0
        self._jobs: list[tuple[Rank, _GrowingJob]] = []

    def push(self, job: _GrowingJob) -> None:
        """Add a job if it may grow further."""
        rank = self.policy.scale_up_rank(job.after) if job.after.size < job.max_size else None
        if rank is not None:
            heapq.heappush(self._jobs, (rank, job))

    def pop(self) -> _GrowingJob | None:
        return heapq.heappop(self._jobs)[1] if self._jobs else None


def plan_scale_up(
    transaction: Transaction, decided_at: int, settings: ElasticSettings
) -> list[ScaleProposal]:
    """Propose to grow jobs into idle, unreserved capacity; ``transaction`` is left unchanged.

    Args:
        transaction: The pool.
        decided_at: When (µs) the scheduler last placed or resized a job, 0 for never.
        settings: The platform's settings.
    """
    queues: dict[str, _PolicyQueue] = {}
    for job in growable_jobs(transaction, settings):
        if grows_at(job, decided_at) <= transaction.now:
            name = job.settings.policy
            queues.setdefault(name, _PolicyQueue(POLICIES[name])).push(
                _GrowingJob(job, elastic_job(job, transaction.index))
            )
    mark = transaction.checkpoint()
    try:
        grown = _distribute(queues, transaction)
    finally:
        transaction.rollback(mark)
    return [scale_up_proposal(one.job, one.before, one.after, transaction.snapshot) for one in grown]


def growable_jobs(transaction: Transaction, settings: ElasticSettings) -> list[ResizableJob]:
    """Return the jobs that may grow, now or after the idle period."""
    tree = transaction.index.tree
    jobs = (growable(record, tree, settings) for record in transaction.index.records.values())
    return [job for job in jobs if job is not None and job.record.job_id not in transaction.decided]


def grows_at(job: ResizableJob, decided_at: int) -> int:
    """Return when (µs) a job may grow if nothing else happens."""
    idle_at = decided_at + job.settings.idle_period_us if decided_at else 0
    return max(idle_at, job.cool_down_until)


def next_node_allowed(job: ResizableJob, now: int) -> int | None:
    """Return the next time (µs) after ``now`` at which the job stops avoiding a node, or None."""
    ends = (at + AVOIDED_FOR_US for at in job.record.avoided.values())
    return min((at for at in ends if at > now), default=None)


def _distribute(queues: dict[str, _PolicyQueue], transaction: Transaction) -> list[_GrowingJob]:
    grown: dict[str, _GrowingJob] = {}
    while queues:
        queue = min(queues.values(), key=lambda one: (one.received, one.policy.name))
        growing = queue.pop()
        if growing is None:
            del queues[queue.policy.name]
            continue
        added = _place_one_more(growing, transaction)
        if added is None:
            continue
        record = growing.job.record
        transaction.allocate(record, record.attempt, (added,))
        growing.add(added)
        grown[record.job_id] = growing
        queue.received += growing.after.share
        queue.push(growing)
    return list(grown.values())


def _place_one_more(growing: _GrowingJob, transaction: Transaction) -> Assignment | None:
    """Return the placement of one more replica, or None if none fits or the queue is at its limit.

    Capacity only shrinks within a plan, so None is final.
    """
    record, role = growing.job.record, growing.job.role
    if record.job is None:
        return None
    queue = transaction.index.tree.account_of(record)[0]
    if transaction.ledger.exceeded_limit(queue, max_replica_amounts(role)) is not None:
        return None
    if not role.overrides:
        request = request_of(role.template, record.job.placement, record.job.namespace)
        if not Candidates(transaction.snapshot, [request]).fit_index(request).total:
            return None
    avoided = transaction.usable_nodes(avoided_at(record, transaction.now))
    with transaction.excluding_nodes(avoided, record.job_id):
        added = place_more(
            record.job, growing.replicas, role.name, growing.after.size + 1, transaction.snapshot
        )
    return added[0] if added else None
