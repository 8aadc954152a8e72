"""Gangs with inter-replica affinity, placed replica by replica, since each choice changes the next.

Greedy: a replica goes to a node that the gang uses already, else to the one that could take most of what is missing;
reversed for a spread gang. Preferences about others come before both. If replicas must be together and the first domain
is too small, the other domains are tried.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster_core.scheduling.placement.field import Cost, Field
from muster_core.scheduling.placement.layout import Group, Layout
from muster_core.scheduling.placement.neighbourhood import Neighbourhood
from muster_core.scheduling.placement.room import Room, count, take


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
