"""Layouts with inter-replica affinity: replica by replica, counting replicas in the topology domains of the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from muster_core.models import Node
from muster_core.scheduling.placement.affinity import Evenly, Neighbours, Peer
from muster_core.scheduling.placement.candidates import Cost, Field
from muster_core.scheduling.placement.demand import Slot
from muster_core.scheduling.placement.filters import chosen_by_labels
from muster_core.scheduling.placement.free_capacity import Room, count, take
from muster_core.scheduling.placement.layout import Group, Layout
from muster_core.scheduling.placement.snapshot import Snapshot


class Neighbourhood:
    """The replicas around those of ``slots``; check one with ``admit``, then ``add`` it."""

    def __init__(self, snapshot: Snapshot, slots: Iterable[Slot]) -> None:
        self._nodes = snapshot.nodes
        self._slots = tuple(dict.fromkeys(slot for slot in slots if slot.peer is not None))
        self._peers = tuple(dict.fromkeys(slot.peer for slot in self._slots if slot.peer is not None))
        asked = [one for peer in self._peers for one in _asked(peer)]
        self._counts: dict[Neighbours, Counter[str]] = {one: Counter() for one in asked}
        self._barred: dict[Peer, dict[str, set[str]]] = {peer: {} for peer in self._peers}
        self._eligible: dict[tuple[Slot, str], frozenset[str]] = {}
        for hold in snapshot.holds.values():
            if hold.peer is not None:
                self.add(hold.peer, hold.node)

    def add(self, peer: Peer, name: str) -> None:
        """Add a replica on node ``name``; on an unknown node it affects nothing."""
        node = self._nodes.get(name)
        if node is None:
            return
        for asked, counts in self._counts.items():
            domain = node.labels.get(asked.topology)
            if domain is not None and asked.include(peer):
                counts[domain] += 1
        for apart in peer.apart:
            domain = node.labels.get(apart.topology)
            for other in self._peers if domain is not None else ():
                if domain is not None and apart.include(other):
                    self._barred[other].setdefault(apart.topology, set()).add(domain)

    def admits(self, slot: Slot, node: Node) -> bool:
        """Return whether a replica of ``slot`` may go on ``node``: its own requirements and those of others about it."""
        peer = slot.peer
        if peer is None:
            return True
        barred = any(node.labels.get(label) in domains for label, domains in self._barred[peer].items())
        return (
            not barred
            and all(self._beside(one, peer, node) for one in peer.beside)
            and not any(self._number(one, node) for one in peer.apart)
            and all(self._even(one, slot, peer, node) for one in peer.evenly)
        )

    def wish(self, slot: Slot, node: Node) -> int:
        """Return the preference of a replica of ``slot`` for ``node`` because of others."""
        wishes = slot.peer.wishes if slot.peer else ()
        return sum(weight * self._number(one, node) for weight, one in wishes)

    def _number(self, asked: Neighbours, node: Node) -> int:
        domain = node.labels.get(asked.topology)
        return self._counts[asked][domain] if domain is not None else 0

    def _beside(self, asked: Neighbours, peer: Peer, node: Node) -> bool:
        """The first of replicas that require one another may go anywhere, as in Kubernetes."""
        if asked.topology not in node.labels:
            return False
        return self._number(asked, node) > 0 or (
            not any(self._counts[asked].values()) and asked.include(peer)
        )

    def _even(self, asked: Evenly, slot: Slot, peer: Peer, node: Node) -> bool:
        label = asked.among.topology
        if label not in node.labels:
            return False
        domains = self._domains(slot, label)
        counts = self._counts[asked.among]
        fewest = (
            min((counts[domain] for domain in domains), default=0) if len(domains) >= asked.min_domains else 0
        )
        return self._number(asked.among, node) + int(asked.among.include(peer)) - fewest <= asked.max_skew

    def _domains(self, slot: Slot, label: str) -> frozenset[str]:
        """Return the domains that count for the spread: those of nodes that pass the replica's selector and affinity."""
        domains = self._eligible.get((slot, label))
        if domains is None:
            allowed = (node for node in self._nodes.values() if chosen_by_labels(slot.rules, node))
            domains = frozenset(node.labels[label] for node in allowed if label in node.labels)
            self._eligible[slot, label] = domains
        return domains


def _asked(peer: Peer) -> Iterable[Neighbours]:
    yield from peer.beside
    yield from peer.apart
    yield from (one.among for one in peer.evenly)
    yield from (one for _, one in peer.wishes)


class _Seat:
    """A node during the search: its remaining capacity, and the replicas of each group on it."""

    __slots__ = ("admits", "cost", "counts", "name", "room")

    def __init__(self, name: str, room: Room, cost: Cost, admits: frozenset[int], groups: int) -> None:
        self.name = name
        self.room = room
        self.cost = cost
        self.admits = admits
        self.counts = [0] * groups


def lay_out_one_by_one(groups: Sequence[Group], field: Field, *, spread: bool) -> Layout | None:
    """Lay out all of ``groups`` within every affinity rule, or return None."""
    layout = _Trial(groups, field, spread=spread).layout()
    if layout is not None:
        return layout
    for label in _gathering(groups):
        for _, names in sorted(field.snapshot.domains(label).items()):
            bound = names if field.names is None else [name for name in names if name in set(field.names)]
            layout = _Trial(groups, field.within(bound), spread=spread).layout()
            if layout is not None:
                return layout
    return None


def most_one_by_one(groups: Sequence[Group], field: Field, *, spread: bool) -> int:
    """Return how many of the replicas fit."""
    transaction = _Trial(groups, field, spread=spread)
    transaction.layout()
    return transaction.placed


class _Trial:
    """One attempt to place the groups in turn."""

    def __init__(self, groups: Sequence[Group], field: Field, *, spread: bool) -> None:
        self._groups = groups
        self._nodes = field.snapshot.nodes
        self._spread = spread
        self._neighbourhood = Neighbourhood(field.snapshot, (group.slot for group in groups))
        self._seats = [
            _Seat(name, spot.room, spot.cost, spot.admits, len(groups))
            for spot in field.spots
            for name in spot.names
        ]
        self._used: dict[str, _Seat] = {}

    @property
    def placed(self) -> int:
        """Return how many replicas are placed."""
        return sum(sum(seat.counts) for seat in self._used.values())

    def layout(self) -> Layout | None:
        """Place all replicas, or return that it does not work."""
        for position, group in enumerate(self._groups):
            if not self._seat(position, group):
                return None
        nodes = tuple((seat.name, tuple(seat.counts)) for seat in self._used.values())
        return Layout(groups=tuple(self._groups), nodes=nodes)

    def _seat(self, position: int, group: Group) -> bool:
        fresh = [seat for seat in self._seats if group.rule in seat.admits and seat.name not in self._used]
        fits = {seat.name: count(seat.room, group.need, group.count) for seat in fresh}
        fresh = [seat for seat in fresh if fits[seat.name]]
        if self._spread:
            fresh.sort(key=lambda seat: (seat.cost, seat.name))
        else:
            fresh.sort(key=lambda seat: (-fits[seat.name], seat.cost, seat.name))
        for _ in range(group.count):
            seat = self._choice(group, fresh)
            if seat is None:
                return False
            seat.room, _ = take(seat.room, group.need, 1)
            seat.counts[position] += 1
            self._used[seat.name] = seat
            if group.slot.peer is not None:
                self._neighbourhood.add(group.slot.peer, seat.name)
        return True

    def _choice(self, group: Group, fresh: Sequence[_Seat]) -> _Seat | None:
        used = [
            seat
            for seat in self._used.values()
            if group.rule in seat.admits and count(seat.room, group.need, 1)
        ]
        if self._spread:
            used.sort(key=lambda seat: (sum(seat.counts), seat.cost, seat.name))
        ranked = [*fresh, *used] if self._spread else [*used, *fresh]
        allowed = (seat for seat in ranked if self._admits(group, seat) and self._has_room(group, seat))
        if group.slot.peer is None or not group.slot.peer.wishes:
            return next(allowed, None)
        return max(
            allowed,
            key=lambda seat: self._neighbourhood.wish(group.slot, self._nodes[seat.name]),
            default=None,
        )

    def _has_room(self, group: Group, seat: _Seat) -> bool:
        return count(seat.room, group.need, 1) > 0

    def _admits(self, group: Group, seat: _Seat) -> bool:
        return self._neighbourhood.admits(group.slot, self._nodes[seat.name])


def _gathering(groups: Sequence[Group]) -> list[str]:
    """Return the labels in whose domains replicas of the gang must be together."""
    peers = [group.slot.peer for group in groups if group.slot.peer is not None]
    return sorted(
        {one.topology for peer in peers for one in peer.beside if any(one.include(other) for other in peers)}
    )
