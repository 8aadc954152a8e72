"""Candidate nodes of a gang: the pool's node classes, or some of its nodes, split by feasibility.

A class splits only if a rule looks at labels; otherwise its nodes are evaluated as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from muster_core.scheduling.placement.demand import Slot
from muster_core.scheduling.placement.filters import Rules, Verdicts, tolerates
from muster_core.scheduling.placement.fit_index import Fits, fits_of
from muster_core.scheduling.placement.fragmentation import TYPICAL, Workload, fragments_of
from muster_core.scheduling.placement.free_capacity import Room, Want, count, fill
from muster_core.scheduling.placement.snapshot import NodeClass, Snapshot

_AS_OFTEN_AS_IT_FITS = 1 << 30


class Cost(NamedTuple):
    """The cost of using a node, lower is better: penalty, fragmentation, what is left of it."""

    penalty: int
    growth: int
    slack: int


class Spot(NamedTuple):
    """Nodes that are alike to the gang: equal free capacity, and feasible for the rules with these numbers. ``names`` are sorted."""

    room: Room
    cost: Cost
    names: Sequence[str]
    admits: frozenset[int]


class Field:
    """The nodes of ``snapshot`` for replicas of ``slots``; valid until the snapshot changes.

    ``numbers`` identify the rules; ``names`` are the nodes to use, sorted, or None for all. With a ``workload``,
    everything is placed where its fragmentation grows least; without one only GPU shares are, by a typical workload, and
    everything else goes where it is tightest.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        slots: Iterable[Slot],
        *,
        workload: Workload | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.slots = tuple(dict.fromkeys(slots))
        self.numbers = {
            rule: number for number, rule in enumerate(dict.fromkeys(slot.rules for slot in self.slots))
        }
        self.workload = workload
        self.names = names

    def within(self, names: Sequence[str]) -> Field:
        """Return the same on some of the nodes; ``names`` are sorted."""
        return Field(self.snapshot, self.slots, workload=self.workload, names=names)

    def fits(self, slot: Slot) -> Fits:
        """Return how many replicas of ``slot`` fit on each node of the pool."""
        need = self.snapshot.need(slot.demand)

        def measure(room: Room) -> tuple[int, int]:
            times = count(room, need, _AS_OFTEN_AS_IT_FITS)
            return times, self._growth(room, (slot,)) if times else 0

        key = ("one", slot.demand, slot.rules, self.workload)
        return fits_of(self.snapshot, key, (slot.rules,), measure)

    def fits_all(self, wants: Sequence[tuple[Slot, int]]) -> Fits:
        """Return the nodes that fit all of these replicas, taken in this order."""
        needs = [Want(self.snapshot.need(slot.demand), number) for slot, number in wants]
        slots = tuple(slot for slot, _ in wants)
        rules = tuple(dict.fromkeys(slot.rules for slot in slots))

        def measure(room: Room) -> tuple[int, int]:
            if fill(room, needs) != [want.limit for want in needs]:
                return 0, 0
            return 1, self._growth(room, slots)

        demands = tuple((slot.demand, number) for slot, number in wants)
        key = ("all", demands, rules, self.workload)
        return fits_of(self.snapshot, key, rules, measure)

    @cached_property
    def spots(self) -> list[Spot]:
        """Return every spot that is feasible for at least one of the rules, in no particular order."""
        spots: list[Spot] = []
        verdicts = {rule: self.snapshot.verdicts(rule) for rule in self.numbers}
        split = [rule for rule in self.numbers if rule.by_labels or verdicts[rule].penalties]
        by_taints = [rule for rule in self.numbers if rule not in split]
        tolerated: dict[tuple[object, ...], frozenset[int]] = {}
        for one, names in self._classes():
            admits = tolerated.get(one.taints)
            if admits is None:
                admits = frozenset(
                    self.numbers[rule]
                    for rule in by_taints
                    if rule.understood and tolerates(rule.tolerations, one.taints)
                )
                tolerated[one.taints] = admits
            if split:
                spots.extend(self._split(one, names, admits, split))
            elif admits:
                spots.append(Spot(one.room, self._cost(one, 0), names, admits))
        return spots

    def _classes(self) -> Iterable[tuple[NodeClass, Sequence[str]]]:
        if self.names is None:
            return ((one, one.names) for one in self.snapshot.classes)
        members: dict[int, tuple[NodeClass, list[str]]] = {}
        for name in self.names:
            one = self.snapshot.class_of(name)
            if one is not None:
                members.setdefault(id(one), (one, []))[1].append(name)
        return members.values()

    def _split(
        self, one: NodeClass, names: Sequence[str], admits: frozenset[int], rules: Sequence[Rules]
    ) -> list[Spot]:
        parts: list[tuple[frozenset[int], int, Sequence[str]]] = [(admits, 0, names)]
        for rule in rules:
            also = frozenset((self.numbers[rule],))
            verdicts = self.snapshot.verdicts(rule)
            parts = [
                (numbers | also if admitted else numbers, penalty + more, some)
                for numbers, penalty, members in parts
                for admitted, more, some in _judged(verdicts, members)
            ]
        return [
            Spot(one.room, self._cost(one, penalty), some, numbers)
            for numbers, penalty, some in parts
            if numbers
        ]

    def _cost(self, one: NodeClass, penalty: int) -> Cost:
        return Cost(penalty, self._growth(one.room, self.slots), self.snapshot.slack(one))

    def _growth(self, room: Room, slots: Iterable[Slot]) -> int:
        growth = 0
        for demand in dict.fromkeys(slot.demand for slot in slots):
            if self.workload is None and not demand.gpu_share:
                continue
            need = self.snapshot.need(demand)
            if count(room, need, 1):
                growth += fragments_of(self.snapshot, self.workload or TYPICAL).growth(room, need)
        return growth


def _judged(verdicts: Verdicts, names: Sequence[str]) -> Iterable[tuple[bool, int, Sequence[str]]]:
    """Yield the nodes by feasibility and penalty; each part is sorted like ``names``."""
    admitted, penalties = verdicts.admitted, verdicts.penalties
    inside = [name for name in names if name in admitted]
    if len(inside) < len(names):
        yield False, 0, [name for name in names if name not in admitted]
    if not penalties:
        if inside:
            yield True, 0, inside
        return
    by_penalty: dict[int, list[str]] = {}
    for name in inside:
        by_penalty.setdefault(penalties.get(name, 0), []).append(name)
    for penalty, some in by_penalty.items():
        yield True, penalty, some
