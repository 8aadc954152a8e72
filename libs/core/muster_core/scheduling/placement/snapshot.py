"""Snapshot of a pool: nodes, allocations and free capacity, with transactions.

Two things keep cycles cheap: nodes with equal free capacity and taints form one class that is evaluated once; label rules
are evaluated once for each node, not for each gang. A cycle changes a few nodes of thousands: an index over all nodes
remembers its position in the change log and updates only the nodes after it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Container, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol

from muster_core.models import Job, Node, Resources, Taint
from muster_core.scheduling.placement.affinity import Peer, peer_of
from muster_core.scheduling.placement.demand import PODS, Demand, demand_of
from muster_core.scheduling.placement.filters import Rules, Verdicts, barring
from muster_core.scheduling.placement.free_capacity import (
    BASE_AXES,
    Need,
    Reach,
    Room,
    empty_room,
    is_overfull,
    need_of,
    reach_of,
    subtract,
    take_foreign_gpus,
)

_KEPT = 1 << 16


class View(Protocol):
    """An index over all nodes that is kept up to date."""

    @property
    def weight(self) -> int:
        """Return how many entries it keeps."""
        ...


class Changes:
    """A log of node names; its beginning is dropped in time."""

    __slots__ = ("_names", "_start")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._start = 0

    @property
    def end(self) -> int:
        """Return the position after the newest entry."""
        return self._start + len(self._names)

    def note(self, name: str) -> None:
        """Record that the capacity, labels or taints of a node changed, or that it is gone."""
        self._names.append(name)
        if len(self._names) > _KEPT:
            half = len(self._names) // 2
            del self._names[:half]
            self._start += half

    def note_all(self) -> None:
        """Record that every node changed."""
        self._start = self.end + 1
        self._names.clear()

    def since(self, position: int) -> Collection[str] | None:
        """Return the nodes that changed after ``position``, each once; None if that is no longer known."""
        if position < self._start:
            return None
        return dict.fromkeys(self._names[position - self._start :])


AllocationKey = tuple[str, int, str, int]
"""The key of an allocation: job id, attempt, role, index."""

_NAMED = frozenset({"cpu", "memory", "gpu", "gpu_memory", "ephemeral_storage"})
"""The resources that have their own field."""
_SLACK_UNIT = 1_000_000
_FEWEST_VERDICTS_KEPT = 16
_JUDGED_KEPT = 2_000_000


class Allocation(NamedTuple):
    """What one replica takes of a node, and its labels and affinity if known."""

    node: str
    demand: Demand
    gpus: tuple[int, ...] = ()
    peer: Peer | None = None


class NodeClass:
    """Nodes with equal free capacity and taints, which differ in name and labels only. ``names`` are sorted."""

    __slots__ = ("key", "names", "room", "slack", "taints")

    def __init__(self, *, key: tuple[int, Room], taints: tuple[Taint, ...]) -> None:
        self.key = key
        self.room = key[1]
        self.taints = taints
        self.names: list[str] = []
        self.slack: int | None = None


class Snapshot:
    """Nodes, their allocations, and free capacity.

    ``changes`` logs nodes whose free capacity changed; ``views`` are derived indexes that are kept up to date with it.
    Between ``checkpoint`` and the matching ``commit`` or ``rollback`` only ``hold`` and ``release`` are allowed;
    checkpoints nest.
    """

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._axes: dict[str, int] = {name: position for position, name in enumerate(BASE_AXES)}
        self._nodes: dict[str, Node] = {}
        self._rooms: dict[str, Room] = {}
        self._empty_rooms: dict[str, Room] = {}
        self._barring: dict[str, tuple[Taint, ...]] = {}
        self._holds: dict[AllocationKey, Allocation] = {}
        self._on_node: dict[str, dict[AllocationKey, Allocation]] = {}
        self._classes: dict[tuple[int, Room], NodeClass] = {}
        self._class_of: dict[str, NodeClass] = {}
        self._taint_numbers: dict[tuple[Taint, ...], int] = {}
        self._domains: dict[str, dict[str, list[str]]] = {}
        self._needs: dict[Demand, Need] = {}
        self._verdicts: dict[Rules, Verdicts] = {}
        self._scale: tuple[int, ...] | None = None
        self._emptied: Snapshot | None = None
        self._allocatable: Resources | None = None
        self._reach: tuple[int, Reach] | None = None
        self._log: list[tuple[AllocationKey, Allocation, bool, Room | None]] = []
        self._open = 0
        self.changes = Changes()
        self.views: dict[Hashable, View] = {}
        for node in nodes:
            self.put_node(node)

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Return every node by name."""
        return self._nodes

    @property
    def holds(self) -> Mapping[AllocationKey, Allocation]:
        """Return every allocation, including those on unknown nodes."""
        return self._holds

    @property
    def classes(self) -> Iterable[NodeClass]:
        """Return the classes of schedulable nodes, in no particular order."""
        return self._classes.values()

    def put_node(self, node: Node) -> None:
        """Add or replace ``node``; its allocations stay."""
        self._refuse_inside_transaction()
        known = self._nodes.get(node.name)
        if known == node:
            return
        self._emptied = self._allocatable = None
        self._unclassify(node.name)
        self._nodes[node.name] = node
        self._empty_rooms.pop(node.name, None)
        if known is None or known.allocatable != node.allocatable:
            self._forget_scale()
        if known is None or _admission(known) != _admission(node):
            self._domains.clear()
            for verdicts in self._verdicts.values():
                verdicts.judge(node)
        self._barring[node.name] = barring(node.taints)
        unmet = sorted(name for name in node.allocatable.extended if name not in self._axes)
        if unmet:
            self._add_axes(unmet)
        self._replace_room(node.name, self._room_from_scratch(node))

    def drop_node(self, name: str) -> None:
        """Remove a node that left the pool; its allocations stay."""
        self._refuse_inside_transaction()
        if self._nodes.get(name) is None:
            return
        self._unclassify(name)
        del self._nodes[name], self._rooms[name], self._barring[name]
        self._empty_rooms.pop(name, None)
        self.changes.note(name)
        self._emptied = self._allocatable = None
        self._forget_scale()
        self._domains.clear()
        for verdicts in self._verdicts.values():
            verdicts.forget(name)

    def hold(self, key: AllocationKey, hold: Allocation) -> None:
        """Add an allocation; raises ValueError if ``key`` has one already."""
        self.hold_all(((key, hold),))

    def hold_all(self, holds: Iterable[tuple[AllocationKey, Allocation]]) -> None:
        """Add several allocations, which costs less than one by one.

        Raises ValueError if a key has an allocation already or is repeated; then nothing is added.
        """
        wanted = tuple(holds)
        for key, _ in wanted:
            if key in self._holds:
                raise ValueError(f"{key} has an allocation on {self._holds[key].node} already")
        if len({key for key, _ in wanted}) != len(wanted):
            raise ValueError("a key is repeated")
        rooms: dict[str, Room] = {}
        for key, hold in wanted:
            before = rooms.get(hold.node) or self._rooms.get(hold.node)
            self._remember(key, hold, added=True, before=before)
            self._holds[key] = hold
            self._on_node.setdefault(hold.node, {})[key] = hold
            if before is not None:
                rooms[hold.node] = subtract(before, self.need(hold.demand), hold.gpus)
        for name, room in rooms.items():
            node = self._nodes[name]
            # Others are assumed to use GPUs without a replica: which ones depends on all allocations.
            self._replace_room(name, self._room_from_scratch(node) if node.foreign.gpu else room)

    def release(self, key: AllocationKey) -> None:
        """Remove an allocation; raises KeyError if ``key`` has none."""
        hold = self._holds.pop(key)
        self._remember(key, hold, added=False, before=self._rooms.get(hold.node))
        del self._on_node[hold.node][key]
        node = self._nodes.get(hold.node)
        if node is not None:
            self._replace_room(hold.node, self._room_from_scratch(node))

    def checkpoint(self) -> int:
        """Open a transaction; pass the result to ``commit`` or ``rollback``."""
        self._open += 1
        return len(self._log)

    def commit(self, mark: int) -> None:
        """Keep the changes since ``mark``; an enclosing transaction may still roll them back."""
        self._close(mark)
        if not self._open:
            self._log.clear()

    def rollback(self, mark: int) -> None:
        """Undo all changes since ``mark``."""
        self._close(mark)
        while len(self._log) > mark:
            key, hold, added, before = self._log.pop()
            if added:
                del self._holds[key], self._on_node[hold.node][key]
            else:
                self._holds[key] = hold
                self._on_node[hold.node][key] = hold
            if before is not None:
                self._replace_room(hold.node, before)

    def need(self, demand: Demand) -> Need:
        """Return ``demand`` on the axes of this snapshot."""
        need = self._needs.get(demand)
        if need is None:
            need = self._needs[demand] = need_of(demand, self._axes)
        return need

    def room(self, name: str) -> Room:
        """Return the free capacity of a node; raises KeyError for an unknown node."""
        return self._rooms[name]

    def room_without(self, name: str, gone: Container[AllocationKey]) -> Room:
        """Return the free capacity of a node without the allocations ``gone``; raises KeyError for an unknown node."""
        return self._room_from_scratch(self._nodes[name], gone)

    def class_of(self, name: str) -> NodeClass | None:
        """Return the class of a node, or None if it is unknown or not schedulable."""
        return self._class_of.get(name)

    def slack(self, of: NodeClass) -> int:
        """Return what is left on a node of this class, each resource relative to the largest node; less is tighter."""
        if of.slack is None:
            scale = self._scales()
            amounts = (*of.room.free, sum(of.room.gpus))
            of.slack = sum(_SLACK_UNIT * a // s for a, s in zip(amounts, scale, strict=True) if s)
        return of.slack

    def verdicts(self, rules: Rules) -> Verdicts:
        """Return which nodes pass these rules."""
        verdicts = self._verdicts.get(rules)
        if verdicts is None:
            if len(self._verdicts) >= max(_FEWEST_VERDICTS_KEPT, _JUDGED_KEPT // max(len(self._nodes), 1)):
                del self._verdicts[next(iter(self._verdicts))]
            verdicts = self._verdicts[rules] = Verdicts(rules, self._nodes.values())
        return verdicts

    def domains(self, label: str) -> Mapping[str, Sequence[str]]:
        """Return the values of a node label, with the sorted names of the nodes that have each."""
        domains = self._domains.get(label)
        if domains is None:
            domains = self._domains[label] = {}
            for name in sorted(self._nodes):
                value = self._nodes[name].labels.get(label)
                if value is not None:
                    domains.setdefault(value, []).append(name)
        return domains

    def free_of(self, room: Room, resource: str) -> int:
        """Return the free amount of a resource by name (``gpu`` in milli-GPU), never below 0."""
        if resource == "gpu":
            return sum(max(milli, 0) for milli in room.gpus)
        if resource == "gpu_memory":
            return sum(max(memory, 0) for memory in room.gpu_memory)
        axis = self._axes.get(resource)
        return 0 if axis is None else max(room.free[axis], 0)

    def free_total(self) -> Resources:
        """Return the free capacity of schedulable nodes; ``gpu_memory`` is the sum over their GPUs."""
        totals = dict.fromkeys(("gpu", "gpu_memory", *self._axes), 0)
        for one in self._classes.values():
            for resource in totals:
                totals[resource] += len(one.names) * self.free_of(one.room, resource)
        return _as_resources(totals)

    def allocatable_total(self) -> Resources:
        """Return the allocatable capacity of schedulable nodes; ``gpu_memory`` is the sum over their GPUs."""
        if self._allocatable is None:
            self._allocatable = self._sum_of_allocatable()
        return self._allocatable

    def _sum_of_allocatable(self) -> Resources:
        total = Resources()
        for name in (name for one in self._classes.values() for name in one.names):
            node = self._nodes[name]
            gpu_memory = node.gpu_memory * (node.allocatable.gpu // 1000)
            total += node.allocatable
            total += Resources(gpu_memory=gpu_memory - node.allocatable.gpu_memory)
        return total

    def reach(self) -> Reach:
        """Return the largest free amount of each resource on any schedulable node."""
        if self._reach is None or self._reach[0] != self.changes.end:
            self._reach = (
                self.changes.end,
                reach_of((one.room for one in self._classes.values()), len(self._axes)),
            )
        return self._reach[1]

    def overfull(self) -> list[str]:
        """Return the overcommitted nodes, sorted."""
        return sorted(name for name, room in self._rooms.items() if is_overfull(room))

    def emptied(self) -> Snapshot:
        """Return the same nodes without Muster's allocations; do not change it."""
        if self._emptied is None:
            self._emptied = Snapshot(self._nodes.values())
        return self._emptied

    def _usable(self, name: str) -> bool:
        node = self._nodes[name]
        return node.ready and not node.unschedulable

    def _room_from_scratch(self, node: Node, gone: Container[AllocationKey] = ()) -> Room:
        room = self._empty_rooms.get(node.name)
        if room is None:
            room = self._empty_rooms[node.name] = empty_room(node, self._axes)
        for key, hold in self._on_node.get(node.name, {}).items():
            if key not in gone:
                room = subtract(room, self.need(hold.demand), hold.gpus)
        return take_foreign_gpus(room, node.foreign.gpu)

    def _replace_room(self, name: str, room: Room) -> None:
        self._unclassify(name)
        self._set_room(name, room)

    def _set_room(self, name: str, room: Room) -> None:
        self._rooms[name] = room
        self.changes.note(name)
        if not self._usable(name):
            return
        taints = self._barring[name]
        key = (self._taint_numbers.setdefault(taints, len(self._taint_numbers)), room)
        members = self._classes.get(key)
        if members is None:
            members = self._classes[key] = NodeClass(key=key, taints=taints)
        insort(members.names, name)
        self._class_of[name] = members

    def _unclassify(self, name: str) -> None:
        members = self._class_of.pop(name, None)
        if members is None:
            return
        del members.names[bisect_left(members.names, name)]
        if not members.names:
            del self._classes[members.key]

    def _add_axes(self, names: Iterable[str]) -> None:
        for name in names:
            self._axes[name] = len(self._axes)
        self._needs.clear()
        self._empty_rooms.clear()
        self.views.clear()
        self._classes.clear()
        self._class_of.clear()
        self._forget_scale()
        for name in self._rooms:
            self._set_room(name, self._room_from_scratch(self._nodes[name]))

    def _scales(self) -> tuple[int, ...]:
        if self._scale is None:
            offers = [node.allocatable for node in self._nodes.values()]
            self._scale = tuple(0 if name == PODS else _most(name, offers) for name in (*self._axes, "gpu"))
        return self._scale

    def _forget_scale(self) -> None:
        if self._scale is not None:
            self._scale = None
            self.changes.note_all()
            for one in self._classes.values():
                one.slack = None

    def _remember(self, key: AllocationKey, hold: Allocation, *, added: bool, before: Room | None) -> None:
        if self._open:
            self._log.append((key, hold, added, before))

    def _close(self, mark: int) -> None:
        if not self._open or mark > len(self._log):
            raise ValueError("no transaction is open at this mark")
        self._open -= 1

    def _refuse_inside_transaction(self) -> None:
        if self._open:
            raise ValueError("nodes must not change inside a transaction")


def _most(resource: str, offers: Iterable[Resources]) -> int:
    """Return the largest amount of a resource in ``offers``."""
    if resource in _NAMED:
        return max(map(attrgetter(resource), offers), default=0)
    return max((offer.extended.get(resource, 0) for offer in offers), default=0)


def _admission(node: Node) -> tuple[object, ...]:
    return (node.ready, node.unschedulable, node.taints, node.labels)


def _as_resources(totals: dict[str, int]) -> Resources:
    return Resources(
        cpu=totals["cpu"],
        memory=totals["memory"],
        gpu=totals["gpu"],
        gpu_memory=totals["gpu_memory"],
        ephemeral_storage=totals["ephemeral_storage"],
        extended={name: amount for name, amount in totals.items() if name not in _NAMED and name != PODS},
    )


def allocation_of(job: Job, role: str, index: int, node: str, gpus: tuple[int, ...] = ()) -> Allocation:
    """Return the allocation of one replica of ``job`` on ``node``; raises KeyError for an unknown role."""
    known = job.role(role)
    if known is None:
        raise KeyError(role)
    template = known.template_of(index)
    demand = demand_of(template.requests, together=job.placement.gpu_topology)
    return Allocation(node, demand, gpus, peer_of(template, job.namespace))
