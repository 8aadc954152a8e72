"""Scale-down: which replicas running elastic jobs give up, so that a job that has waited too long can start.

A waiting job is starved once it has waited longer than its queue allows. It is then a beneficiary: other jobs, its donors,
shrink for it, but only if its minimum gang can start afterwards.

The search is greedy and simulated in a transaction of the scheduler. A bundle is a set of replicas on one node: remove all
and one more replica of the gang fits there; leave any one and it does not. Bundles are removed in the order of the policy
until the gang fits; then every replica that the gang does not need is put back. The results of a plan (one run of
``ScaleDownPlanner``) are proposals to shrink donors for a few beneficiaries, which can all start together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from muster_core.autoscaling.policies import POLICIES, Policy, Rank, elastic_job
from muster_core.autoscaling.proposals import ScaleProposal, scale_down_proposal
from muster_core.autoscaling.settings import (
    NONE,
    ElasticSettings,
    ResizableJob,
    job_settings,
    queue_settings,
    shrinkable,
)
from muster_core.events import ReplicaRef
from muster_core.models import JobRecord, QueuePolicy
from muster_core.scheduling.placement import (
    Candidates,
    Gang,
    Placement,
    ReplicaRequest,
    find_placement,
    fit_count,
    is_anchor,
)
from muster_core.scheduling.queues import (
    QueueKey,
    SchedulingClass,
    gang_amounts,
    max_replica_amounts,
    minimum_gang,
)
from muster_core.scheduling.reservations import Reservations
from muster_core.scheduling.resizing import BeneficiaryFit, RemovableReplica, terminating_released
from muster_core.scheduling.state import Transaction

_US = 1_000_000
_UNLIMITED = 1 << 30

_MAX_BENEFICIARIES = 8
"""The most jobs one plan frees capacity for."""

_MAX_JOBS_PER_CLASS = 8
"""The most jobs of one scheduling class that a plan looks at: it cannot free capacity for more."""


class WaitingJob(NamedTuple):
    """A job that waits for capacity; it is starved from ``starves_at`` (µs) on."""

    starves_at: int
    key: QueueKey
    record: JobRecord
    scheduling_class: SchedulingClass


def waiting_jobs(transaction: Transaction) -> dict[str, list[WaitingJob]]:
    """Return by queue the jobs within their limits that would fit if the pool were empty, in queue order.

    At most ``_MAX_JOBS_PER_CLASS`` jobs of a scheduling class are returned, and only the first of a STRICT_FIFO queue.
    """
    waiting: dict[str, list[WaitingJob]] = {}
    for scheduling_class in transaction.index.classes:
        queue, gang = scheduling_class.key.queue, scheduling_class.key.gang
        if transaction.ledger.exceeded_limit(queue, gang_amounts(minimum_gang(gang))) is not None:
            continue
        if not transaction.is_feasible(gang):
            continue
        threshold_us = transaction.index.tree.specs[queue].starvation_after_s * _US
        for key in scheduling_class.jobs[:_MAX_JOBS_PER_CLASS]:
            _, _, job_id = key
            if transaction.is_eligible(job_id):
                record = transaction.index.records[job_id]
                job = WaitingJob(record.waiting_since + threshold_us, key, record, scheduling_class)
                waiting.setdefault(queue, []).append(job)
    for queue, jobs in waiting.items():
        jobs.sort(key=lambda job: job.key)
        if transaction.index.tree.specs[queue].policy is QueuePolicy.STRICT_FIFO:
            del jobs[1:]
    return waiting


def starved_jobs(waiting: dict[str, list[WaitingJob]], now: int) -> list[WaitingJob]:
    """Return the starved jobs by queue, in queue order; queues are ordered by when their first job starves or starved."""
    queues = sorted(waiting.values(), key=lambda jobs: (jobs[0].starves_at, jobs[0].key))
    return [job for jobs in queues for job in jobs if job.starves_at <= now]


def blocks_scale_up(waiting: dict[str, list[WaitingJob]], now: int) -> bool:
    """Return whether the first job of any queue is not starved yet: it may still start on capacity that a scale-up would use.

    Starved jobs do not block: the plan has found no scale-down for them, and a scale-up cannot use what they have reserved.
    """
    return any(jobs[0].starves_at > now for jobs in waiting.values())


def next_starvation(waiting: dict[str, list[WaitingJob]], now: int) -> int | None:
    """Return the next time (µs) at which a job becomes starved."""
    return min(
        (job.starves_at for jobs in waiting.values() for job in jobs if job.starves_at > now), default=None
    )


Bundle = tuple[RemovableReplica, ...]


class Donor:
    """A job that could shrink.

    Attributes:
        job: The job, its role and settings.
        original: The job before any replica is removed.
        replicas: The replicas that could be removed, by node in the order of removal: on nodes without its parameter
            servers (``is_anchor``) first, then the highest index.
    """

    def __init__(
        self, job: ResizableJob, candidates: list[RemovableReplica], policy: Policy, transaction: Transaction
    ) -> None:
        self.job = job
        self.original = elastic_job(job, transaction.index)
        self.replicas: dict[str, list[RemovableReplica]] = {}
        parameter_servers = [replica for replica in job.record.gang() if is_anchor(replica.role)]
        self._parameter_server_nodes = {server.node for server in parameter_servers if not server.ended}
        self._all_removable = sorted(candidates, key=self._order)
        self._policy = policy
        self.reset()

    @property
    def spare(self) -> int:
        """Return how many more replicas can be removed."""
        return self._simulated.spare

    def rank(self, replica: RemovableReplica) -> tuple[Rank, bool, int]:
        """Return the rank of a replica: of its job, then its order within the job; lower goes first."""
        if self._rank is None:
            self._rank = self._policy.scale_down_rank(self._simulated)
        return (self._rank, *self._order(replica))

    def resize(self, by: int) -> None:
        """Change the simulated size by ``by`` replicas."""
        self._simulated = self._simulated.resized(by)
        self._rank = None

    def reset(self) -> None:
        """Forget all simulated removals."""
        self._simulated, self._rank = self.original, None
        self.replicas.clear()
        for replica in self._all_removable:
            self.replicas.setdefault(replica.allocation.node, []).append(replica)

    def _order(self, replica: RemovableReplica) -> tuple[bool, int]:
        return (replica.allocation.node in self._parameter_server_nodes, -replica.ref.index)


class Donors:
    """The possible donors for a job in ``queue``, by job id and by node, ranked by ``policy``."""

    def __init__(
        self, transaction: Transaction, settings: ElasticSettings, queue: str, policy: Policy
    ) -> None:
        self.by_job: dict[str, Donor] = {}
        self.on_node: dict[str, list[Donor]] = defaultdict(list)
        self._queue = queue
        self._transaction = transaction
        tree = transaction.index.tree
        for job_id, record in transaction.index.records.items():
            job = shrinkable(record, tree, settings)
            # A decided job is a victim of the preemptions that the reservations need.
            if job is None or job_id in transaction.decided or job.cool_down_until > transaction.now:
                continue
            candidates = _candidates(job, transaction)
            if candidates:
                donor = self.by_job[job_id] = Donor(job, candidates, policy, transaction)
                for node in donor.replicas:
                    self.on_node[node].append(donor)

    def may_shrink(self, job_id: str) -> bool:
        """Return whether the guarantees of queues let a donor shrink.

        False if a queue that holds the donor but not the beneficiary has guarantees of resources that the donor's role uses,
        and is within all of them.
        """
        donor = self.by_job[job_id]
        tree, ledger = self._transaction.index.tree, self._transaction.ledger
        beneficiary_path = tree.path(self._queue)
        donor_path = tree.path(tree.account_of(donor.job.record)[0])
        used = max_replica_amounts(donor.job.role)
        donor_only_queues = [queue for queue in donor_path if queue not in beneficiary_path]
        for queue in donor_only_queues:
            guaranteed_resources = [resource for resource in ledger.guaranteed(queue) if used.get(resource)]
            if guaranteed_resources and not ledger.borrows(queue, guaranteed_resources):
                return False
        return True

    def exclude(self, job_id: str) -> None:
        """Exclude a donor; ids of other jobs are ignored."""
        donor = self.by_job.get(job_id)
        for donors in self.on_node.values() if donor is not None else ():
            if donor in donors:
                donors.remove(donor)

    def include(self, job_id: str) -> None:
        """Include an excluded donor again."""
        donor = self.by_job[job_id]
        for node in donor.replicas:
            if donor not in self.on_node[node]:
                self.on_node[node].append(donor)


class DonorSearch:
    """The search for replicas to remove so that the gang of ``fit`` starts; use it within ``terminating_released``."""

    def __init__(self, transaction: Transaction, fit: BeneficiaryFit, donors: Donors) -> None:
        self._transaction = transaction
        self._fit = fit
        self._donors = donors
        self._requests = _replicas_by_request(fit.gang)
        #: By node and request. Approximate: a removal changes its donor's rank, but renews the bundles of its own node only.
        self._bundles: dict[tuple[str, ReplicaRequest], Bundle] = {}
        self._released: list[RemovableReplica] = []
        self._excluded_in_search: set[str] = set()

    def run(self) -> tuple[list[RemovableReplica], Placement] | None:
        """Find the replicas to remove.

        Returns:
            The replicas and the placement of the gang. Capacity stays released in the transaction; only the ``Donor`` objects
            forget it (the planner excludes these donors next). None, with nothing released, if the gang cannot start.
        """
        if not self._could_suffice_in_total():
            return None
        try:
            return self._search()
        finally:
            for job_id in {replica.record.job_id for replica in self._released}:
                self._donors.by_job[job_id].reset()
            # Perhaps only the removals of this search brought their queues to the guarantee: the next search checks again.
            for job_id in self._excluded_in_search:
                self._donors.include(job_id)

    def _search(self) -> tuple[list[RemovableReplica], Placement] | None:
        while True:
            lacking = [
                request for request, count in self._requests.items() if self._pool_fit_count(request) < count
            ]
            placement = None if lacking else self._fit.find()
            if placement is not None:
                return self._fit.minimised(self._released, placement)
            bundle = self._best_bundle(lacking or self._requests)
            if bundle is None:
                for replica in self._released:
                    self._fit.restore(replica)
                return None
            if not self._exclude_protected_donors(bundle):
                for replica in bundle:
                    self._release(replica)

    def _exclude_protected_donors(self, bundle: Bundle) -> bool:
        """Exclude donors in ``bundle`` that may not shrink because of a guarantee; return whether there are any."""
        jobs = {replica.record.job_id for replica in bundle}
        protected = [job_id for job_id in jobs if not self._donors.may_shrink(job_id)]
        for job_id in protected:
            self._donors.exclude(job_id)
            # A bundle of any node may contain its replicas.
            self._bundles.clear()
        self._excluded_in_search.update(protected)
        return bool(protected)

    def _could_suffice_in_total(self) -> bool:
        """Return whether everything free or removable, on any node and of excluded donors too, suffices: necessary only."""
        free = self._transaction.snapshot.free_total().amounts()
        for donor in self._donors.by_job.values():
            for name, amount in max_replica_amounts(donor.job.role).items():
                free[name] = free.get(name, 0) + amount * donor.spare
        needed = gang_amounts(self._fit.gang)
        # A replica with whole GPUs occupies all of their memory, but its amounts contain only what it requests.
        return all(amount <= free.get(name, 0) for name, amount in needed.items() if name != "gpu_memory")

    def _pool_fit_count(self, request: ReplicaRequest) -> int:
        return Candidates(self._transaction.snapshot, [request]).fit_index(request).total

    def _release(self, replica: RemovableReplica) -> None:
        self._fit.release(replica)
        self._released.append(replica)
        donor, node = self._donors.by_job[replica.record.job_id], replica.allocation.node
        donor.resize(-1)
        donor.replicas[node].remove(replica)
        for request in self._requests:
            self._bundles.pop((node, request), None)

    def _best_bundle(self, requests: Iterable[ReplicaRequest]) -> Bundle | None:
        """Return the first bundle, by rank of its first replica's donor, fewest replicas, replica order of ``Donor``, node name."""
        best: tuple[object, ...] | None = None
        chosen: Bundle | None = None
        for request in requests:
            for node in list(self._donors.on_node):
                bundle = self._bundle(node, request)
                if not bundle:
                    continue
                donor = self._donors.by_job[bundle[0].record.job_id]
                job_rank, on_parameter_server_node, minus_index = donor.rank(bundle[0])
                key = (job_rank, len(bundle), on_parameter_server_node, minus_index, node)
                if best is None or key < best:
                    best, chosen = key, bundle
        return chosen

    def _bundle(self, node: str, request: ReplicaRequest) -> Bundle:
        known = self._bundles.get((node, request))
        if known is None or not self._within_spare(known):
            known = self._bundles[(node, request)] = self._compute_bundle(node, request)
        return known

    def _within_spare(self, bundle: Bundle) -> bool:
        removed = Counter(replica.record.job_id for replica in bundle)
        return all(self._donors.by_job[job_id].spare >= count for job_id, count in removed.items())

    def _compute_bundle(self, node: str, request: ReplicaRequest) -> Bundle:
        """Return a bundle on ``node`` that lets one more of ``request`` fit; empty if none does."""
        snapshot = self._transaction.snapshot
        # A node without a class is not schedulable.
        if snapshot.class_of(node) is None or node not in snapshot.filter(request.rules).feasible:
            return ()
        need = snapshot.need(request.demand)
        target_count = fit_count(snapshot.free_capacity(node), need, _UNLIMITED) + 1
        mark = snapshot.checkpoint()
        try:
            released: list[RemovableReplica] = []
            for replica in self._removal_order(node):
                snapshot.release(replica.key)
                released.append(replica)
                if fit_count(snapshot.free_capacity(node), need, target_count) >= target_count:
                    break
            else:
                return ()
            needed: list[RemovableReplica] = []
            for replica in reversed(released):
                snapshot.allocate(replica.key, replica.allocation)
                if fit_count(snapshot.free_capacity(node), need, target_count) < target_count:
                    snapshot.release(replica.key)
                    needed.append(replica)
            return tuple(reversed(needed))
        finally:
            snapshot.rollback(mark)

    def _removal_order(self, node: str) -> list[RemovableReplica]:
        """Return the removable replicas on ``node`` in policy order; simulates the sizes, then restores them."""
        remaining = [(donor, list(donor.replicas.get(node, ()))) for donor in self._donors.on_node[node]]
        removed: list[tuple[Donor, RemovableReplica]] = []
        while ready := [(donor, replicas) for donor, replicas in remaining if replicas and donor.spare > 0]:
            donor, replicas = min(ready, key=lambda entry: entry[0].rank(entry[1][0]))
            donor.resize(-1)
            removed.append((donor, replicas.pop(0)))
        for donor, _ in removed:
            donor.resize(1)
        return [replica for _, replica in removed]


class ScaleDownPlanner:
    """Frees capacity for starved jobs, one after the other.

    Attributes:
        proposals: The proposals to shrink donors.
        awaits_terminating: Whether some starved job fits without donors: now, or once terminating replicas are gone.
    """

    def __init__(
        self, transaction: Transaction, reservations: Reservations, settings: ElasticSettings
    ) -> None:
        self.proposals: list[ScaleProposal] = []
        self.awaits_terminating = False
        self._transaction = transaction
        self._reservations = reservations
        self._settings = settings
        self._donors: dict[tuple[str, str], Donors] = {}
        self._hopeless_classes: set[SchedulingClass] = set()
        self._beneficiaries: list[tuple[WaitingJob, list[RemovableReplica]]] = []

    def run(self, starved: list[WaitingJob]) -> None:
        """Plan for the ``starved`` jobs in their order."""
        reserved = {reservation.job_id for reservation in self._reservations.reservations}
        # Leaving ``terminating_released`` rolls back what the plan simulates, and restores the reservations.
        with terminating_released(self._transaction, self._reservations):
            for job in starved:
                if len(self._beneficiaries) == _MAX_BENEFICIARIES:
                    break
                if job.scheduling_class in self._hopeless_classes:
                    continue
                fit = BeneficiaryFit(self._transaction, self._reservations, job.record.job_id)
                fits = fit.find() is not None
                # ``find`` enforced reservations; lift them again, as ``terminating_released`` did.
                self._reservations.lift_all()
                if not fits:
                    self._plan_for(job, fit)
                    continue
                self.awaits_terminating = True
                if job.record.job_id not in reserved:
                    # Nothing reserves the capacity this job waits for, so later proposals could count on the same capacity.
                    break
        # The first beneficiary needs no check alone: its own search placed it.
        while len(self._beneficiaries) > 1 and not self._can_start_together():
            job, _ = self._beneficiaries.pop()
            job_id = job.record.job_id
            self.proposals = [proposal for proposal in self.proposals if proposal.event.beneficiary != job_id]

    def _plan_for(self, job: WaitingJob, fit: BeneficiaryFit) -> None:
        """Propose to shrink donors for a job, and allocate it; if it would not start, skip its scheduling class in this plan."""
        policy = self._policy_for(job)
        donors = self._donors_for(fit.key.queue, policy) if policy is not None else None
        result = DonorSearch(self._transaction, fit, donors).run() if donors is not None else None
        self._reservations.lift_all()
        if policy is None or donors is None or result is None:
            self._hopeless_classes.add(job.scheduling_class)
            return
        replicas, placement = result
        self._beneficiaries.append((job, replicas))
        self._propose(job, replicas, donors, policy)
        # It would start as its next attempt; later jobs find its capacity allocated instead of reserved.
        self._transaction.allocate(job.record, job.record.attempt + 1, placement.replicas)
        self._reservations.remove(job.record.job_id)

    def _can_start_together(self) -> bool:
        """Return whether the scheduler can place all beneficiaries, the longest-waiting first, once all donors have shrunk."""
        with terminating_released(self._transaction, self._reservations):
            for _, replicas in self._beneficiaries:
                for replica in replicas:
                    self._transaction.release(replica.record, ((replica.key, replica.allocation),))
            jobs = (job for job, _ in self._beneficiaries)
            for job in sorted(jobs, key=lambda job: (job.record.waiting_since, job.record.job_id)):
                gang = minimum_gang(job.scheduling_class.key.gang)
                placement = find_placement(gang, self._transaction.snapshot)
                if placement is None:
                    return False
                self._transaction.allocate(job.record, job.record.attempt + 1, placement.replicas)
        return True

    def _donors_for(self, queue: str, policy: Policy) -> Donors:
        """Return the donors that no proposal of this plan shrinks yet."""
        donors = self._donors.get((queue, policy.name))
        if donors is None:
            donors = Donors(self._transaction, self._settings, queue, policy)
            self._donors[queue, policy.name] = donors
        for proposal in self.proposals:
            donors.exclude(proposal.job_id)
        return donors

    def _policy_for(self, job: WaitingJob) -> Policy | None:
        """Return the policy that ranks the donors: the beneficiary's, or its queue's if that is ``NONE``; None if both are."""
        tree = self._transaction.index.tree
        name = job_settings(job.record, tree, self._settings).policy
        if name == NONE:
            name = queue_settings(job.scheduling_class.key.queue, tree, self._settings).policy
        return POLICIES.get(name)

    def _propose(
        self, job: WaitingJob, replicas: list[RemovableReplica], donors: Donors, policy: Policy
    ) -> None:
        by_donor: dict[str, list[RemovableReplica]] = defaultdict(list)
        for replica in replicas:
            by_donor[replica.record.job_id].append(replica)
        for job_id, removed in sorted(by_donor.items()):
            donor = donors.by_job[job_id]
            self.proposals.append(
                scale_down_proposal(
                    donor.job,
                    donor.original,
                    removed,
                    job.record,
                    donors=len(by_donor),
                    policy=policy.name,
                    now=self._transaction.now,
                )
            )


def _candidates(job: ResizableJob, transaction: Transaction) -> list[RemovableReplica]:
    """Return the replicas of a job that could be removed: all of its role but index 0, with their allocations."""
    record = job.record
    allocations = transaction.index.allocations.get(record.job_id, {})
    candidates: list[RemovableReplica] = []
    for replica in record.gang():
        key = (record.job_id, record.attempt, replica.role, replica.index)
        if replica.role == job.role.name and replica.index and key in allocations:
            ref = ReplicaRef(role=replica.role, index=replica.index)
            candidates.append(RemovableReplica(record, ref, key, allocations[key]))
    return candidates


def _replicas_by_request(gang: Gang) -> dict[ReplicaRequest, int]:
    """Return how many replicas of each request the gang has."""
    numbers = Counter[ReplicaRequest]()
    for role in gang.roles:
        overrides = [request for index, request in role.overrides if index < role.replicas]
        numbers[role.request] += role.replicas - len(overrides)
        numbers.update(overrides)
    return +numbers
