"""Feasibility of nodes under given rules, evaluated once for each node and again only when it changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set

from muster_core.models import Node
from muster_core.scheduling.placement.admission import Rules, penalty, refusal

_ALIKE_KEPT = 4096


class Verdicts:
    """Which nodes pass ``rules``, by name; how many each filter excludes; ``penalties`` of feasible nodes (above 0)."""

    __slots__ = ("_admitted", "_alike", "_keys", "_penalties", "_refusals", "_ruled_out", "_rules")

    def __init__(self, rules: Rules, nodes: Iterable[Node]) -> None:
        self._rules = rules
        self._keys = rules.keys
        self._alike: dict[tuple[object, ...], tuple[str, int]] = {}
        self._admitted: set[str] = set()
        self._refusals: dict[str, str] = {}
        self._penalties: dict[str, int] = {}
        self._ruled_out: Counter[str] | None = None
        for node in nodes:
            self._judge(node)

    @property
    def admitted(self) -> Set[str]:
        """Return the names of the feasible nodes."""
        return self._admitted

    @property
    def penalties(self) -> Mapping[str, int]:
        """Return the penalties of nodes; some names may be of infeasible nodes."""
        return self._penalties

    @property
    def ruled_out(self) -> Mapping[str, int]:
        """Return how many nodes each filter excludes."""
        if self._ruled_out is None:
            self._ruled_out = Counter(self._refusals.values())
        return self._ruled_out

    def judge(self, node: Node) -> None:
        """Evaluate ``node``, which is new or has changed."""
        self.forget(node.name)
        self._judge(node)

    def forget(self, name: str) -> None:
        """Remove a node."""
        self._admitted.discard(name)
        if self._refusals.pop(name, None) is not None:
            self._ruled_out = None
        self._penalties.pop(name, None)

    def _judge(self, node: Node) -> None:
        refused, disliked = self._answer(node)
        if refused:
            self._ruled_out = None
            self._refusals[node.name] = refused
            return
        self._admitted.add(node.name)
        if disliked:
            self._penalties[node.name] = disliked

    def _answer(self, node: Node) -> tuple[str, int]:
        """Return filter and penalty; nodes that are alike in all that the rules look at are evaluated once."""
        if self._keys is None:
            return refusal(self._rules, node), penalty(self._rules, node)
        labels = node.labels
        seen = (node.ready, node.unschedulable, node.taints, *[labels.get(key) for key in self._keys])
        answer = self._alike.get(seen)
        if answer is None:
            if len(self._alike) >= _ALIKE_KEPT:
                self._alike.clear()
            answer = self._alike[seen] = (refusal(self._rules, node), penalty(self._rules, node))
        return answer
