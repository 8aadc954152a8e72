"""Whether a waiting job would start, as the pool stands: beside the room that is kept for others.

What would let a waiting gang start now, each found by trying it on the pool: a smaller gang, more room on one node, less for others,
fewer rules.

Everything happens inside an open transaction, in which the room that is kept for others is not free.

How much more room a node would need to take certain replicas: the nearest miss, node by node.

Which rule about nodes, if it were not there, would let a waiting gang start now: each is left out in turn, and the gang tried.

Whose shrinking would make room for a waiting gang: one job if there is one, and the least of it.

Only what jobs have above their minimum counts. It is tried on the pool inside an open transaction; nobody is asked to leave by this.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from muster_core.events import Assignment
from muster_core.models import GPU_MILLI, JobRecord, Node, Toleration
from muster_core.scheduling.placement import Gang, Placement, Shortfall, Snapshot, find_room, place
from muster_core.scheduling.placement.admission import (
    NODE_AFFINITY,
    NODE_SELECTOR,
    POD_AFFINITY,
    POD_RULES,
    TAINT,
    TOPOLOGY,
    barring,
    refusal,
    tolerates,
)
from muster_core.scheduling.placement.field import Field
from muster_core.scheduling.placement.roles import is_pinned
from muster_core.scheduling.placement.room import Room, Want, fill, whole_gpus
from muster_core.scheduling.placement.slot import Slot, without_peer
from muster_core.scheduling.placement.words import counted, demand_in_words, listed
from muster_core.scheduling.queues import Amounts, SchedulingKey, gang_amounts, largest_allowed, minimum_gang
from muster_core.scheduling.reservations import ExpectedRelease, Reservations, earliest_placement
from muster_core.scheduling.state import Transaction, surplus


class WhatIfTrial:
    """The chances of the job of ``record``, which waits as ``shape``, on the pool of ``transaction``.

    Room is kept anew for every question, since what is kept is part of what is free; between questions none of it stands.
    """

    def __init__(
        self, transaction: Transaction, kept: Reservations, record: JobRecord, shape: SchedulingKey
    ) -> None:
        kept.lift_all()
        self.transaction = transaction
        self.record = record
        self.shape = shape
        self._kept = kept

    @contextmanager
    def beside_others(self) -> Generator[None]:
        """Inside, room is kept for those before whose start the job would not have ended; the pool must not change there."""
        self._kept.stand()
        self._kept.lift(self.record.job_id, self.shape, self.transaction.now)
        try:
            yield
        finally:
            self._kept.lift_all()

    @property
    def nodes_of_others(self) -> frozenset[str]:
        """The nodes on which room is kept for others: whatever becomes free there is theirs first."""
        now, bound = self.transaction.now, self.shape.bound_s
        others = (one for one in self._kept.all if one.reservation.job_id != self.record.job_id)
        return frozenset(
            node for one in others if not one.outlasts(bound, now) for node in one.reservation.nodes
        )

    def try_out(self, gang: Gang) -> Placement | Shortfall:
        """Where ``gang`` would go now, or why nowhere."""
        with self.beside_others():
            return place(gang, self.transaction.snapshot)

    def place(self, gang: Gang) -> Placement | None:
        """Where ``gang`` would go now, or None."""
        with self.beside_others():
            return find_room(gang, self.transaction.snapshot)

    def allows(self, amounts: Amounts) -> bool:
        """Whether the limits of the job's queue, and of those above, allow it so much."""
        return self.transaction.ledger.exceeded_limit(self.shape.queue, amounts) is None


_CLOSED_NAMED = 3


class WhatIf:
    """What would let a waiting job start now, by its ``chance``: each answer ends "would start now".

    ``contested`` says that others wait who may come first, so that freed room need not be the job's.
    """

    def __init__(self, chance: WhatIfTrial, *, contested: bool) -> None:
        self._chance = chance
        self._trial = chance.transaction
        self._unless = ", unless another that waits takes it first" if contested else ""
        self._floor = minimum_gang(chance.shape.gang)
        self._fewer = self._find_fewer()

    @property
    def others_come_first(self) -> bool:
        """Whether room is kept for others, who would take what becomes free."""
        return bool(self._chance.nodes_of_others)

    def fits_without_limit(self) -> bool:
        """Whether the floor finds room, whatever the limits of its queues say."""
        return self._chance.place(self._floor) is not None

    def _find_fewer(self) -> Placement | None:
        """Where as much of the gang as fits now would stand, if its floor were lower."""
        roles = tuple(
            role if is_pinned(role.name) else msgspec.structs.replace(role, min=min(role.min, 1))
            for role in self._chance.shape.gang.roles
        )
        lowered = Gang(roles=roles, policy=self._chance.shape.gang.policy)
        if lowered.floor >= self._floor.full:
            return None
        allowed = largest_allowed(lowered, self._chance.allows)
        return self._chance.place(allowed) if allowed is not None else None

    def with_fewer(self) -> Iterator[str]:
        """``with 8 workers instead of 9``."""
        if self._fewer is None:
            return
        number = {role.name: 0 for role in self._floor.roles}
        for one in self._fewer.replicas:
            number[one.role] += 1
        less = [
            f"{counted(number[role.name], role.name)} instead of {role.replicas}"
            for role in self._floor.roles
            if number[role.name] < role.replicas
        ]
        if less:
            yield f"with {listed(less)}"

    def with_more_room(self, *, feasible: bool) -> Iterator[str]:
        """``with 1 more GPU free on n2``: what one node lacks for whatever does not fit now.

        Where rules bind replicas together one node's room would not tell. What the empty pool could hold (``feasible``) needs no
        larger node: then only room counts that is in other hands.
        """
        if self._floor.policy.topology_required or any(
            slot.peer is not None for slot in slots_of(self._floor)
        ):
            return
        fitting = self._fewer.replicas if self._fewer else ()
        mark = self._trial.checkpoint()
        try:
            self._trial.allocate(self._chance.record, self._chance.record.attempt + 1, fitting)
            wanted = self._missing(fitting)
            lack = nearest(wanted, self._trial.snapshot, self._chance.nodes_of_others)
            closed = list(unavailable_nodes(wanted, self._trial.snapshot))
        finally:
            self._trial.rollback(mark)
        if lack is not None and lack.amounts:
            taken = lack.is_taken(self._trial.snapshot)
            if taken or not feasible:
                yield f"with {lack.in_words(taken=taken)}{self._unless}"
        for node in closed[:_CLOSED_NAMED]:
            yield f"if {node.name} were {'uncordoned' if node.ready else 'ready'}{self._unless}"

    def with_less_for_others(self) -> Iterator[str]:
        """``if a shrank by 2 workers``."""
        shrinks = ShrinkSearch(self._floor, self._chance).in_words()
        if shrinks:
            yield f"if {shrinks}{self._unless}"

    def with_fewer_rules(self, shortfall: Shortfall) -> Iterator[str]:
        """``without its node selector disk=ssd``."""
        yield from ConstraintRelaxation(self._floor, self._chance).in_words(shortfall)

    def _missing(self, fitting: Iterable[Assignment]) -> Wanted:
        """The replicas of the floor that are not among ``fitting``, by what they ask."""
        placed = {(one.role, one.index) for one in fitting}
        wanted: dict[Slot, int] = {}
        for role in self._floor.roles:
            overrides = dict(role.overrides)
            for index in range(role.replicas):
                if (role.name, index) not in placed:
                    slot = overrides.get(index, role.slot)
                    wanted[slot] = wanted.get(slot, 0) + 1
        return list(wanted.items())


Wanted = Sequence[tuple[Slot, int]]
"""Replicas by what they ask, and how many of each."""

_UNIT = 1_000_000


class NodeShortage(NamedTuple):
    """What ``node`` lacks, by resource."""

    rank: tuple[int, int, str]
    node: str
    amounts: tuple[tuple[str, int], ...]

    def in_words(self, *, taken: bool) -> str:
        """``1 more CPU and 2 more GiB of memory on n1``; ``1 more GPU free on n2`` where it is only ``taken``."""
        parts = [demand_in_words(name, amount).replace(" ", " more ", 1) for name, amount in self.amounts]
        return f"{' and '.join(parts)}{' free' if taken else ''} on {self.node}"

    def is_taken(self, snapshot: Snapshot) -> bool:
        """Whether the node has as much in other hands, so that it only has to become free."""
        node, room = snapshot.nodes[self.node], snapshot.room(self.node)
        offered = {**node.allocatable.amounts(), "pods": node.pods, "gpu": len(room.gpus) * GPU_MILLI}
        free = {name: snapshot.free_of(room, name) for name, _ in self.amounts}
        free["gpu"] = whole_gpus(room) * GPU_MILLI
        return all(offered.get(name, 0) - free[name] >= amount for name, amount in self.amounts)


def nearest(wanted: Wanted, snapshot: Snapshot, but: Container[str]) -> NodeShortage | None:
    """The node that lacks least for all of ``wanted`` at once, of those that admit them; None where none admits them, or what is lacking
    cannot be said as an amount. The nodes ``but`` are left out."""
    field = Field(snapshot, (slot for slot, _ in wanted))
    numbers = set(field.numbers.values())
    spots = (spot for spot in field.spots if spot.admits >= numbers)
    rooms = ((next((name for name in spot.names if name not in but), ""), spot.room) for spot in spots)
    found = (_lack(name, room, wanted, snapshot) for name, room in rooms if name)
    return min((one for one in found if one is not None), default=None)


def unavailable_nodes(wanted: Wanted, snapshot: Snapshot) -> Iterator[Node]:
    """The nodes that would take all of ``wanted`` if they were ready and not cordoned, by name."""
    needs = [Want(snapshot.need(slot.demand), number) for slot, number in wanted]
    limits = [want.limit for want in needs]
    for name in sorted(snapshot.nodes):
        node = snapshot.nodes[name]
        if node.ready and not node.unschedulable:
            continue
        opened = _opened(node)
        admitted = not any(refusal(slot.rules, opened) for slot, _ in wanted)
        if admitted and fill(snapshot.room(name), needs) == limits:
            yield node


def _opened(node: Node) -> Node:
    return Node(name=node.name, allocatable=node.allocatable, labels=node.labels, taints=node.taints)


def _lack(name: str, room: Room, wanted: Wanted, snapshot: Snapshot) -> NodeShortage | None:
    """What the node lacks; None where more of the resources would not help."""
    if any(slot.demand.together for slot, _ in wanted):
        return None
    needed: dict[str, int] = {}
    for slot, number in wanted:
        for resource, amount in slot.demand.amounts:
            needed[resource] = needed.get(resource, 0) + amount * number
    short = {name: amount - snapshot.free_of(room, name) for name, amount in needed.items()}
    short = {name: amount for name, amount in short.items() if amount > 0}
    gpus = _gpus_short(name, room, wanted, snapshot)
    if gpus is None:
        return None
    relative = sum(amount * _UNIT // needed[one] for one, amount in short.items())
    if gpus:
        short["gpu"] = gpus * GPU_MILLI
        relative += gpus * _UNIT
    return NodeShortage((relative, len(short), name), name, tuple(sorted(short.items())))


def _gpus_short(name: str, room: Room, wanted: Wanted, snapshot: Snapshot) -> int | None:
    """How many more whole GPUs would do, were there enough of everything else; None where none would."""
    needs = [
        Want(snapshot.need(slot.demand)._replace(amounts=(), possible=True), number)
        for slot, number in wanted
        if slot.demand.gpus or slot.demand.gpu_share
    ]
    limits = [want.limit for want in needs]
    memory = max((want.need.memory for want in needs), default=0)
    of_one = max(memory, snapshot.nodes[name].gpu_memory)

    def do(more: int) -> bool:
        gpus, gpu_memory = (GPU_MILLI,) * more, (of_one,) * more
        larger = room._replace(gpus=room.gpus + gpus, gpu_memory=room.gpu_memory + gpu_memory, islands=())
        return fill(larger, needs) == limits

    most = sum(want.limit * max(want.need.gpus, 1) for want in needs)
    more = bisect_left(range(most + 1), True, key=do)
    return more if more <= most else None


_EVERY_TAINT = (Toleration(operator="Exists"),)


class ConstraintRelaxation:
    """Tries ``gang`` with fewer rules."""

    def __init__(self, gang: Gang, chance: WhatIfTrial) -> None:
        self._gang = gang
        self._chance = chance
        self._slots = slots_of(gang)

    def in_words(self, shortfall: Shortfall) -> Iterator[str]:
        """Without what it would fit, ``without its node selector disk=ssd``, of the rules that count in ``shortfall``."""
        broken = {constraint for constraint, _ in shortfall.ruled_out}
        if TAINT in broken and (found := self._with_rules(tolerations=_EVERY_TAINT)):
            yield f"if it tolerated {listed(self._untolerated(found))}"
        if NODE_SELECTOR in broken and self._with_rules(selector=()):
            pairs = sorted({pair for slot in self._slots for pair in slot.rules.selector})
            yield f"without its node selector {listed(f'{key}={value}' for key, value in pairs)}"
        if NODE_AFFINITY in broken and self._with_rules(terms=None):
            yield "without its required node affinity"
        if (TOPOLOGY in broken or shortfall.topology) and self._in_any_domain():
            yield f"if one domain of {self._gang.policy.topology} were preferred and not required"
        if (shortfall.apart or broken & {POD_AFFINITY, POD_RULES}) and self._without_peers():
            yield "without its rules about other pods"

    def _with_rules(self, **changes: object) -> Placement | None:
        return self._place(_changed(self._gang, **changes))

    def _in_any_domain(self) -> Placement | None:
        policy = msgspec.structs.replace(self._gang.policy, topology_required=False)
        return self._place(msgspec.structs.replace(_changed(self._gang, labels=()), policy=policy))

    def _without_peers(self) -> Placement | None:
        return self._place(_mapped(_changed(self._gang, understood=True), without_peer))

    def _place(self, gang: Gang) -> Placement | None:
        return self._chance.place(gang)

    def _untolerated(self, found: Placement) -> list[str]:
        """The taints of the nodes on which it would stand that some replica does not tolerate."""
        taints = {
            taint
            for name in {one.node for one in found.replicas}
            for taint in barring(self._chance.transaction.snapshot.nodes[name].taints)
            if not all(tolerates(slot.rules.tolerations, (taint,)) for slot in self._slots)
        }
        return sorted(f"{t.key}={t.value}:{t.effect}" if t.value else f"{t.key}:{t.effect}" for t in taints)


def slots_of(gang: Gang) -> list[Slot]:
    """What the replicas of ``gang`` ask, by role: the usual, then that of single indices."""
    return [slot for role in gang.roles for slot in (role.slot, *(slot for _, slot in role.overrides))]


def _changed(gang: Gang, **changes: object) -> Gang:
    def change(slot: Slot) -> Slot:
        return Slot(slot.demand, msgspec.structs.replace(slot.rules, **changes), slot.peer)

    return _mapped(gang, change)


def _mapped(gang: Gang, change: Callable[[Slot], Slot]) -> Gang:
    roles = tuple(
        msgspec.structs.replace(
            role,
            slot=change(role.slot),
            overrides=tuple((index, change(slot)) for index, slot in role.overrides),
        )
        for role in gang.roles
    )
    return msgspec.structs.replace(gang, roles=roles)


_MOST_JOBS = 16
_MOST_UNITS = 256
_MOST_GIVEN_BACK = 64
_NAMED = 3


class ShrinkSearch:
    """Tries to make ``gang`` fit."""

    def __init__(self, gang: Gang, chance: WhatIfTrial) -> None:
        self._gang = gang
        self._chance = chance
        self._trial = chance.transaction

    def in_words(self) -> str:
        """``a shrank by 2 workers``; empty where no shrinking helps."""
        by_job = self._units()
        everything = [unit for units in by_job for unit in units]
        together = self._needed(everything)
        if together is None:
            return ""
        alone = (self._needed(units) for units in by_job[:_MOST_JOBS])
        return _in_words(min((found for found in alone if found is not None), key=len, default=together))

    def _units(self) -> list[list[ExpectedRelease]]:
        """What running jobs have above their minimum, by job: those furthest above it first."""
        index = self._trial.index
        held = self._trial.snapshot.holds
        elastic = [
            (-above, job_id)
            for job_id in index.allocations
            if (above := _above_minimum(index.records[job_id])) > 0
        ]
        found: list[list[ExpectedRelease]] = []
        number = 0
        for above, job_id in sorted(elastic):
            number -= above
            if number > _MOST_UNITS:
                break
            record = index.records[job_id]
            units = [
                ExpectedRelease(record, holds, None)
                for _, holds in surplus(record, index.allocations[job_id])
            ]
            found.append([unit for unit in units if all(key in held for key, _ in unit.holds)])
        return found

    def _needed(self, units: Sequence[ExpectedRelease]) -> list[ExpectedRelease] | None:
        """What of ``units`` must leave for the gang to fit; None where not even all of it helps."""
        mark = self._trial.checkpoint()
        try:
            found = earliest_placement(self._trial, units, self._gang, self._fits)
            if found is None:
                return None
            released = units[: found[0]]
            return self._give_back(released) if len(released) <= _MOST_GIVEN_BACK else list(released)
        finally:
            self._trial.rollback(mark)

    def _give_back(self, released: Sequence[ExpectedRelease]) -> list[ExpectedRelease]:
        """Those of ``released`` without whose room it does not fit, the ones to leave last tried first."""
        needed: list[ExpectedRelease] = []
        for unit in reversed(released):
            self._trial.add_allocations(unit.record, unit.holds)
            if self._fits() is None:
                self._trial.release(unit.record, unit.holds)
                needed.append(unit)
        return needed

    def _fits(self) -> Placement | None:
        return self._chance.place(self._gang) if self._chance.allows(gang_amounts(self._gang)) else None


def _above_minimum(record: JobRecord) -> int:
    """About how many replicas the job has above its minimum."""
    roles = record.job.roles if record.job else ()
    if all(role.min == role.max or is_pinned(role.name) for role in roles):
        return 0
    return len(record.replicas) - sum(role.min for role in roles)


def _in_words(needed: Sequence[ExpectedRelease]) -> str:
    by_job: dict[str, dict[str, int]] = {}
    for unit in needed:
        roles = by_job.setdefault(unit.record.name or unit.record.job_id, {})
        for (_, _, role, _), _ in unit.holds:
            roles[role] = roles.get(role, 0) + 1
    if len(by_job) > _NAMED:
        return f"{counted(len(by_job), 'job')} gave up {counted(len(needed), 'replica')} above their minimum"
    return listed(
        f"{name} shrank by {listed(counted(number, role) for role, number in sorted(roles.items()))}"
        for name, roles in sorted(by_job.items())
    )
