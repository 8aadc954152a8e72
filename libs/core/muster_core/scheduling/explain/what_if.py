"""What-if trials: which single change lets a waiting job start now, confirmed by trying it on the pool.

Each what-if run happens inside an open transaction of the caller, in which capacity reserved for other jobs is not free. The runs
are: a smaller gang, more capacity on one node, smaller running jobs, fewer constraints, no limit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from muster_core.events import Assignment
from muster_core.models import GPU_MILLI, JobRecord, Node, Toleration
from muster_core.scheduling.explain.remedies import Remedy, RemedyKind, SizeChange
from muster_core.scheduling.placement import (
    NO_MATCHING_NODE,
    NODE_AFFINITY,
    NODE_SELECTOR,
    POD_AFFINITY,
    POD_RULES,
    TAINT,
    TOPOLOGY,
    Candidates,
    FreeCapacity,
    Gang,
    Placement,
    ReplicaRequest,
    Shortfall,
    Snapshot,
    Want,
    excluding_filter,
    find_placement,
    fit_counts,
    hard_taints,
    is_pinned,
    place,
    tolerates,
    unused_gpus,
    without_affinity,
)
from muster_core.scheduling.queues import Amounts, SchedulingKey, gang_amounts, largest_allowed, minimum_gang
from muster_core.scheduling.reservations import (
    LAUNCH_MARGIN_US,
    ExpectedRelease,
    Reservation,
    Reservations,
    earliest_placement,
)
from muster_core.scheduling.state import Transaction, size_of, surplus

Wanted = Sequence[tuple[ReplicaRequest, int]]
"""Replicas grouped by what they ask for, with the number of each."""

_US = 1_000_000
_UNAVAILABLE_NODES_NAMED = 3
_MOST_DONORS_ALONE = 16
_MOST_SURPLUS = 256
_MOST_MINIMISED = 64
_SCORE_UNIT = 1_000_000
_EVERY_TAINT = (Toleration(operator="Exists"),)


class WhatIfRun:
    """Tries to place the waiting job ``record`` beside the capacity that is reserved for others.

    Reservations are enforced anew for each run, because the capacity that they withhold depends on what is free.
    """

    def __init__(
        self, transaction: Transaction, reservations: Reservations, record: JobRecord, key: SchedulingKey
    ) -> None:
        reservations.lift_all()
        self.transaction = transaction
        self.record = record
        self.key = key
        self._reservations = reservations

    @property
    def reserved_nodes(self) -> frozenset[str]:
        """The nodes with capacity reserved for other jobs: what is freed there is theirs first."""
        now, bound = self.transaction.now, self.key.bound_s
        others = (one for one in self._reservations.all if one.reservation.job_id != self.record.job_id)
        return frozenset(
            node for one in others if not one.permits(bound, now) for node in one.reservation.nodes
        )

    def diagnose(self, gang: Gang) -> Placement | Shortfall:
        """Return where ``gang`` fits now, or what is missing."""
        with self._enforced():
            return place(gang, self.transaction.snapshot)

    def place(self, gang: Gang) -> Placement | None:
        """Return where ``gang`` fits now, or None."""
        with self._enforced():
            return find_placement(gang, self.transaction.snapshot)

    def within_limits(self, amounts: Amounts) -> bool:
        """Return whether the limits of the job's queue and of its ancestors allow ``amounts``."""
        return self.transaction.ledger.exceeded_limit(self.key.queue, amounts) is None

    @contextmanager
    def _enforced(self) -> Generator[None]:
        """Withhold the capacity of reservations that the job must respect."""
        self._reservations.enforce()
        self._reservations.lift(self.record.job_id, self.key, self.transaction.now)
        try:
            yield
        finally:
            self._reservations.lift_all()


class WhatIf:
    """Finds remedies for a waiting job by ``run``; ``contested`` is whether other jobs may take freed capacity first."""

    def __init__(self, run: WhatIfRun, *, contested: bool) -> None:
        self._run = run
        self._transaction = run.transaction
        self._contested = contested
        self._gang = minimum_gang(run.key.gang)
        self._smaller = self._place_smaller()

    def remedies(
        self, reason_code: str, shortfall: Shortfall | None, blocked_by: Reservation | None
    ) -> tuple[Remedy, ...]:
        """Return what lets the job start, confirmed remedies first.

        Args:
            reason_code: Why the job waits.
            shortfall: What is missing in the pool; None if a limit of the queue keeps the job waiting.
            blocked_by: The reservation of another job whose capacity the job would fit in.
        """
        if shortfall is None:
            return (self._raised_limit(), *self._fewer_replicas(), *self._smaller_others())
        capacity = list(self._more_capacity(feasible=shortfall.feasible_when_empty))
        confirmed = [
            *self._fewer_replicas(),
            *capacity,
            *self._smaller_others(),
            *ConstraintRelaxation(self._gang, self._run).remedies(shortfall),
        ]
        if blocked_by is not None:
            return (*confirmed, *self._earlier_deadline(blocked_by))
        return (*confirmed, *self._unconfirmed(reason_code, shortfall, confirmed, capacity))

    def _unconfirmed(
        self, code: str, shortfall: Shortfall, confirmed: Sequence[Remedy], capacity: Sequence[Remedy]
    ) -> Iterator[Remedy]:
        """Yield advice that no run confirms."""
        if code == NO_MATCHING_NODE:
            if not confirmed and shortfall.nodes:
                yield Remedy(kind=RemedyKind.CHANGE_CONSTRAINTS)
            yield Remedy(kind=RemedyKind.ADD_MATCHING_NODES if shortfall.nodes else RemedyKind.ADD_NODES)
        elif not shortfall.feasible_when_empty:
            yield Remedy(kind=RemedyKind.ADD_NODES)
        elif not capacity and shortfall.misses and not self._run.reserved_nodes:
            amounts = {miss.resource: miss.short for miss in shortfall.misses}
            yield Remedy(kind=RemedyKind.FREE_CAPACITY, amounts=amounts)

    def _place_smaller(self) -> Placement | None:
        """Place as much of the gang as fits now if every role had a minimum of 1."""
        roles = tuple(
            role if is_pinned(role.name) else msgspec.structs.replace(role, min=min(role.min, 1))
            for role in self._run.key.gang.roles
        )
        lowered = Gang(roles=roles, policy=self._run.key.gang.policy)
        if lowered.minimum >= self._gang.full:
            return None
        allowed = largest_allowed(lowered, self._run.within_limits)
        return self._run.place(allowed) if allowed is not None else None

    def _fewer_replicas(self) -> Iterator[Remedy]:
        if self._smaller is None:
            return
        number = {role.name: 0 for role in self._gang.roles}
        for one in self._smaller.replicas:
            number[one.role] += 1
        changes = tuple(
            SizeChange(role=role.name, before=role.replicas, after=number[role.name])
            for role in self._gang.roles
            if number[role.name] < role.replicas
        )
        if changes:
            yield Remedy(kind=RemedyKind.FEWER_REPLICAS, verified=True, replicas=changes)

    def _raised_limit(self) -> Remedy:
        """Return the limit that the gang needs; it is no remedy by itself if the pool lacks free capacity too."""
        ledger, needed = self._transaction.ledger, gang_amounts(self._gang)
        queue, resource = ledger.exceeded_limit(self._run.key.queue, needed) or (self._run.key.queue, "")
        amount = needed.get(resource, 0) + ledger.usage((queue,)).get(resource, 0)
        return Remedy(
            kind=RemedyKind.RAISE_LIMIT,
            verified=self._run.place(self._gang) is not None,
            queue=queue,
            amounts={resource: amount},
        )

    def _earlier_deadline(self, blocked_by: Reservation) -> Iterator[Remedy]:
        """Yield the deadline with which the job ends before the reserved capacity is needed."""
        if blocked_by.expected_at is None:
            return
        seconds = (blocked_by.expected_at - self._transaction.now - LAUNCH_MARGIN_US) // _US
        if seconds > 0:
            yield Remedy(kind=RemedyKind.SET_ACTIVE_DEADLINE, verified=True, seconds=seconds)

    def _more_capacity(self, *, feasible: bool) -> Iterator[Remedy]:
        """Yield what one node lacks for the replicas that do not fit now.

        A gang that the empty pool could hold (``feasible``) needs no larger node: then only capacity that others use counts.
        Constraints that bind replicas together cannot be solved by one node.
        """
        if self._gang.policy.topology_required or any(
            request.affinity is not None for request in _requests_of(self._gang)
        ):
            return
        fitting = self._smaller.replicas if self._smaller else ()
        snapshot = self._transaction.snapshot
        mark = self._transaction.checkpoint()
        try:
            self._transaction.allocate(self._run.record, self._run.record.attempt + 1, fitting)
            wanted = self._missing(fitting)
            shortage = nearest_shortage(wanted, snapshot, self._run.reserved_nodes)
            unavailable = list(unavailable_nodes(wanted, snapshot))
        finally:
            self._transaction.rollback(mark)
        if shortage is not None and shortage.amounts:
            in_use = shortage.is_in_use(snapshot)
            if in_use or not feasible:
                yield Remedy(
                    kind=RemedyKind.FREE_CAPACITY if in_use else RemedyKind.MORE_CAPACITY,
                    verified=True,
                    contested=self._contested,
                    node=shortage.node,
                    amounts=dict(shortage.amounts),
                )
        for node in unavailable[:_UNAVAILABLE_NODES_NAMED]:
            kind = RemedyKind.UNCORDON_NODE if node.ready else RemedyKind.REPAIR_NODE
            yield Remedy(kind=kind, verified=True, contested=self._contested, node=node.name)

    def _smaller_others(self) -> Iterator[Remedy]:
        changes = ShrinkSearch(self._gang, self._run).changes()
        if changes:
            yield Remedy(
                kind=RemedyKind.SHRINK_OTHERS, verified=True, contested=self._contested, replicas=changes
            )

    def _missing(self, fitting: Sequence[Assignment]) -> Wanted:
        """Return the replicas of the gang that are not among ``fitting``."""
        placed = {(one.role, one.index) for one in fitting}
        wanted: dict[ReplicaRequest, int] = {}
        for role in self._gang.roles:
            overrides = dict(role.overrides)
            for index in range(role.replicas):
                if (role.name, index) not in placed:
                    request = overrides.get(index, role.request)
                    wanted[request] = wanted.get(request, 0) + 1
        return list(wanted.items())


class NodeShortage(NamedTuple):
    """What ``node`` lacks, by resource."""

    rank: tuple[int, int, str]
    node: str
    amounts: tuple[tuple[str, int], ...]

    def is_in_use(self, snapshot: Snapshot) -> bool:
        """Return whether other replicas use as much on the node, so that it only has to become free."""
        node, capacity = snapshot.nodes[self.node], snapshot.free_capacity(self.node)
        offered = {**node.allocatable.amounts(), "pods": node.pods, "gpu": len(capacity.gpus) * GPU_MILLI}
        free = {name: snapshot.free_of(capacity, name) for name, _ in self.amounts}
        free["gpu"] = unused_gpus(capacity) * GPU_MILLI
        return all(offered.get(name, 0) - free[name] >= amount for name, amount in self.amounts)


def nearest_shortage(wanted: Wanted, snapshot: Snapshot, excluded: Container[str]) -> NodeShortage | None:
    """Return the node, other than ``excluded``, that lacks least for all of ``wanted`` at once (the nearest miss).

    None if no node is feasible for all of them, or more of its resources would not help.
    """
    field = Candidates(snapshot, (request for request, _ in wanted))
    numbers = set(field.numbers.values())
    node_sets = (node_set for node_set in field.node_sets if node_set.feasible_for >= numbers)
    capacities = (
        (next((name for name in node_set.names if name not in excluded), ""), node_set.capacity)
        for node_set in node_sets
    )
    found = (_shortage(name, capacity, wanted, snapshot) for name, capacity in capacities if name)
    return min((one for one in found if one is not None), default=None)


def unavailable_nodes(wanted: Wanted, snapshot: Snapshot) -> Iterator[Node]:
    """Yield the nodes, by name, that would take all of ``wanted`` if they were ready and not cordoned."""
    needs = [Want(snapshot.need(request.demand), number) for request, number in wanted]
    limits = [want.limit for want in needs]
    for name in sorted(snapshot.nodes):
        node = snapshot.nodes[name]
        if node.ready and not node.unschedulable:
            continue
        available = Node(name=node.name, allocatable=node.allocatable, labels=node.labels, taints=node.taints)
        feasible = not any(excluding_filter(request.rules, available) for request, _ in wanted)
        if feasible and fit_counts(snapshot.free_capacity(name), needs) == limits:
            yield node


def _shortage(name: str, capacity: FreeCapacity, wanted: Wanted, snapshot: Snapshot) -> NodeShortage | None:
    """Return what the node lacks; None if more of the resources would not help."""
    if any(request.demand.together for request, _ in wanted):
        return None
    needed: dict[str, int] = {}
    for request, number in wanted:
        for resource, amount in request.demand.amounts:
            needed[resource] = needed.get(resource, 0) + amount * number
    short = {name: amount - snapshot.free_of(capacity, name) for name, amount in needed.items()}
    short = {name: amount for name, amount in short.items() if amount > 0}
    gpus = _gpus_short(name, capacity, wanted, snapshot)
    if gpus is None:
        return None
    relative = sum(amount * _SCORE_UNIT // needed[one] for one, amount in short.items())
    if gpus:
        short["gpu"] = gpus * GPU_MILLI
        relative += gpus * _SCORE_UNIT
    return NodeShortage((relative, len(short), name), name, tuple(sorted(short.items())))


def _gpus_short(name: str, capacity: FreeCapacity, wanted: Wanted, snapshot: Snapshot) -> int | None:
    """Return how many more whole GPUs suffice if all other resources do; None if no number does."""
    needs = [
        Want(snapshot.need(request.demand)._replace(amounts=(), possible=True), number)
        for request, number in wanted
        if request.demand.gpus or request.demand.gpu_share
    ]
    limits = [want.limit for want in needs]
    memory = max((want.need.memory for want in needs), default=0)
    of_one = max(memory, snapshot.nodes[name].gpu_memory)

    def suffices(more: int) -> bool:
        gpus, gpu_memory = (GPU_MILLI,) * more, (of_one,) * more
        larger = capacity._replace(
            gpus=capacity.gpus + gpus, gpu_memory=capacity.gpu_memory + gpu_memory, nvlink_domains=()
        )
        return fit_counts(larger, needs) == limits

    most = sum(want.limit * max(want.need.gpus, 1) for want in needs)
    more = bisect_left(range(most + 1), True, key=suffices)
    return more if more <= most else None


class ConstraintRelaxation:
    """Tries ``gang`` without one of its constraints at a time."""

    def __init__(self, gang: Gang, run: WhatIfRun) -> None:
        self._gang = gang
        self._run = run
        self._requests = _requests_of(gang)

    def remedies(self, shortfall: Shortfall) -> Iterator[Remedy]:
        """Yield the constraints that count in ``shortfall`` and without which the gang fits."""
        broken = {constraint for constraint, _ in shortfall.filtered}
        if TAINT in broken and (found := self._place_with(tolerations=_EVERY_TAINT)):
            yield _dropped(TAINT, *self._untolerated(found))
        if NODE_SELECTOR in broken and self._place_with(selector=()):
            pairs = sorted({pair for request in self._requests for pair in request.rules.selector})
            yield _dropped(NODE_SELECTOR, *(f"{key}={value}" for key, value in pairs))
        if NODE_AFFINITY in broken and self._place_with(terms=None):
            yield _dropped(NODE_AFFINITY)
        if (TOPOLOGY in broken or shortfall.topology) and self._place_in_any_domain():
            yield _dropped(TOPOLOGY, self._gang.policy.topology)
        if (
            shortfall.has_affinity_rules or broken & {POD_AFFINITY, POD_RULES}
        ) and self._place_without_pod_rules():
            yield _dropped(POD_AFFINITY)

    def _place_with(self, **changes: object) -> Placement | None:
        return self._run.place(_with_rules(self._gang, **changes))

    def _place_in_any_domain(self) -> Placement | None:
        policy = msgspec.structs.replace(self._gang.policy, topology_required=False)
        return self._run.place(msgspec.structs.replace(_with_rules(self._gang, labels=()), policy=policy))

    def _place_without_pod_rules(self) -> Placement | None:
        return self._run.place(_with_requests(_with_rules(self._gang, supported=True), without_affinity))

    def _untolerated(self, found: Placement) -> list[str]:
        """Return the taints on the nodes of ``found`` that some replica does not tolerate."""
        taints = {
            taint
            for name in {one.node for one in found.replicas}
            for taint in hard_taints(self._run.transaction.snapshot.nodes[name].taints)
            if not all(tolerates(request.rules.tolerations, (taint,)) for request in self._requests)
        }
        return sorted(f"{t.key}={t.value}:{t.effect}" if t.value else f"{t.key}:{t.effect}" for t in taints)


class ShrinkSearch:
    """Finds running jobs whose surplus replicas occupy what ``gang`` needs: one job if one suffices, and no more than needed."""

    def __init__(self, gang: Gang, run: WhatIfRun) -> None:
        self._gang = gang
        self._run = run
        self._transaction = run.transaction

    def changes(self) -> tuple[SizeChange, ...]:
        """Return by how much which jobs have to shrink; empty if shrinking does not help."""
        by_job = self._surplus()
        needed = self._needed([unit for units in by_job for unit in units])
        if needed is None:
            return ()
        alone = (self._needed(units) for units in by_job[:_MOST_DONORS_ALONE])
        return _changes(min((found for found in alone if found is not None), key=len, default=needed))

    def _surplus(self) -> list[list[ExpectedRelease]]:
        """Return the replicas above the minimum of each running job, the job with most of them first."""
        index = self._transaction.index
        allocated = self._transaction.snapshot.allocations
        elastic = [
            (-above, job_id)
            for job_id in index.allocations
            if (above := _above_minimum(index.records[job_id])) > 0
        ]
        found: list[list[ExpectedRelease]] = []
        number = 0
        for above, job_id in sorted(elastic):
            number -= above
            if number > _MOST_SURPLUS:
                break
            record = index.records[job_id]
            units = (
                ExpectedRelease(record, one, None) for _, one in surplus(record, index.allocations[job_id])
            )
            found.append([unit for unit in units if all(key in allocated for key, _ in unit.allocations)])
        return found

    def _needed(self, units: Sequence[ExpectedRelease]) -> list[ExpectedRelease] | None:
        """Return which of ``units`` must go for the gang to fit; None if it does not fit without all of them."""
        mark = self._transaction.checkpoint()
        try:
            found = earliest_placement(self._transaction, units, self._gang, self._fits)
            if found is None:
                return None
            released = units[: found[0]]
            return self._minimised(released) if len(released) <= _MOST_MINIMISED else list(released)
        finally:
            self._transaction.rollback(mark)

    def _minimised(self, released: Sequence[ExpectedRelease]) -> list[ExpectedRelease]:
        """Return those of ``released`` without which the gang does not fit, trying the last released first."""
        needed: list[ExpectedRelease] = []
        for unit in reversed(released):
            self._transaction.add_allocations(unit.record, unit.allocations)
            if self._fits() is None:
                self._transaction.release(unit.record, unit.allocations)
                needed.append(unit)
        return needed

    def _fits(self) -> Placement | None:
        return self._run.place(self._gang) if self._run.within_limits(gang_amounts(self._gang)) else None


def _above_minimum(record: JobRecord) -> int:
    """Return about how many replicas the job has above its minimum."""
    roles = record.job.roles if record.job else ()
    if all(role.min == role.max or is_pinned(role.name) for role in roles):
        return 0
    return len(record.replicas) - sum(role.min for role in roles)


def _changes(needed: Sequence[ExpectedRelease]) -> tuple[SizeChange, ...]:
    removed: dict[tuple[str, str, str], int] = {}
    records: dict[str, JobRecord] = {}
    for unit in needed:
        records[unit.record.job_id] = unit.record
        for (job_id, _, role, _), _ in unit.allocations:
            key = (unit.record.name or job_id, role, job_id)
            removed[key] = removed.get(key, 0) + 1
    return tuple(
        SizeChange(job=name, role=role, before=(size := size_of(records[job_id], role)), after=size - number)
        for (name, role, job_id), number in sorted(removed.items())
    )


def _dropped(constraint: str, *values: str) -> Remedy:
    return Remedy(kind=RemedyKind.DROP_CONSTRAINT, verified=True, constraint=constraint, values=values)


def _requests_of(gang: Gang) -> list[ReplicaRequest]:
    """Return what the replicas of ``gang`` ask for: per role the template, then its overrides."""
    return [request for role in gang.roles for request in role.requests]


def _with_rules(gang: Gang, **changes: object) -> Gang:
    def change(request: ReplicaRequest) -> ReplicaRequest:
        return ReplicaRequest(
            request.demand, msgspec.structs.replace(request.rules, **changes), request.affinity
        )

    return _with_requests(gang, change)


def _with_requests(gang: Gang, change: Callable[[ReplicaRequest], ReplicaRequest]) -> Gang:
    roles = tuple(
        msgspec.structs.replace(
            role,
            request=change(role.request),
            overrides=tuple((index, change(request)) for index, request in role.overrides),
        )
        for role in gang.roles
    )
    return msgspec.structs.replace(gang, roles=roles)
