"""Where replicas of given rules could stand: the pool's node classes, split by who admits whom.

A class splits only where some rule looks at labels; otherwise its nodes stay together and are tried as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from muster_core.placement.admission import Rules, tolerates
from muster_core.placement.capacity import NodeClass, Snapshot
from muster_core.placement.room import Room


class Spot(NamedTuple):
    """Nodes that are alike to the gang: equal rooms, and each of them admits the rules of these numbers. ``names`` are sorted."""

    room: Room
    slack: int
    names: Sequence[str]
    admits: frozenset[int]


class Field:
    """The spots of ``snapshot`` for replicas of ``rules``; valid until the snapshot changes. ``numbers`` stand for the rules."""

    def __init__(self, snapshot: Snapshot, rules: Iterable[Rules]) -> None:
        self.snapshot = snapshot
        self.numbers = {rule: number for number, rule in enumerate(dict.fromkeys(rules))}

    @cached_property
    def spots(self) -> list[Spot]:
        """Every spot that admits at least one of the rules, in no particular order."""
        spots: list[Spot] = []
        by_labels = [rule for rule in self.numbers if rule.by_labels]
        by_taints = [rule for rule in self.numbers if not rule.by_labels]
        tolerated: dict[tuple[object, ...], frozenset[int]] = {}
        for one in self.snapshot.classes:
            admits = tolerated.get(one.taints)
            if admits is None:
                admits = frozenset(
                    self.numbers[rule] for rule in by_taints if tolerates(rule.tolerations, one.taints)
                )
                tolerated[one.taints] = admits
            if by_labels:
                spots.extend(self._split(one, admits, by_labels))
            elif admits:
                spots.append(Spot(one.room, self.snapshot.slack(one), one.names, admits))
        return spots

    def _split(self, one: NodeClass, admits: frozenset[int], by_labels: Sequence[Rules]) -> list[Spot]:
        admitted = [(self.numbers[rule], self.snapshot.verdicts(rule).admitted) for rule in by_labels]
        parts: dict[frozenset[int], list[str]] = {}
        for name in one.names:
            also = frozenset(rule for rule, names in admitted if name in names)
            parts.setdefault(admits | also, []).append(name)
        slack = self.snapshot.slack(one)
        return [Spot(one.room, slack, names, rules) for rules, names in parts.items() if rules]
