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
    """Nodes that are alike to the gang: equal rooms, and each of them admits exactly the rules in ``admits``. ``names`` are sorted."""

    room: Room
    slack: int
    names: Sequence[str]
    admits: frozenset[Rules]


class Field:
    """The spots of ``snapshot`` for replicas of ``rules``; valid until the snapshot changes."""

    def __init__(self, snapshot: Snapshot, rules: Iterable[Rules]) -> None:
        self.snapshot = snapshot
        self.rules = frozenset(rules)

    @cached_property
    def spots(self) -> list[Spot]:
        """Every spot that admits at least one of the rules, in no particular order."""
        spots: list[Spot] = []
        by_labels = [rule for rule in self.rules if rule.by_labels]
        by_taints = [rule for rule in self.rules if not rule.by_labels]
        tolerated: dict[tuple[object, ...], frozenset[Rules]] = {}
        for one in self.snapshot.classes:
            admits = tolerated.get(one.taints)
            if admits is None:
                admits = frozenset(rule for rule in by_taints if tolerates(rule.tolerations, one.taints))
                tolerated[one.taints] = admits
            if by_labels:
                spots.extend(self._split(one, admits, by_labels))
            elif admits:
                spots.append(Spot(one.room, self.snapshot.slack(one), one.names, admits))
        return spots

    def _split(self, one: NodeClass, admits: frozenset[Rules], by_labels: Sequence[Rules]) -> list[Spot]:
        admitted = [(rule, self.snapshot.verdicts(rule).admitted) for rule in by_labels]
        parts: dict[frozenset[Rules], list[str]] = {}
        for name in one.names:
            also = frozenset(rule for rule, names in admitted if name in names)
            parts.setdefault(admits | also, []).append(name)
        slack = self.snapshot.slack(one)
        return [Spot(one.room, slack, names, rules) for rules, names in parts.items() if rules]
