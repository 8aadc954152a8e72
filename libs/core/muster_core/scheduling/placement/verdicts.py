"""What the nodes say to replicas of given rules, asked of each node once and again only when that node changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set

from muster_core.models import Node
from muster_core.scheduling.placement.admission import Rules, penalty, refusal

_ALIKE_KEPT = 4096


class Verdicts:
    """Which nodes admit replicas of ``rules``, by name; how many each constraint rules out; ``penalties`` of the nodes that admit
    them but are not liked (above 0)."""

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
        """The names of the nodes that admit the replicas."""
        return self._admitted

    @property
    def penalties(self) -> Mapping[str, int]:
        """How little the replicas like a node, where they do not like it; not every name is of a node that admits them."""
        return self._penalties

    @property
    def ruled_out(self) -> Mapping[str, int]:
        """How many nodes each constraint rules out."""
        if self._ruled_out is None:
            self._ruled_out = Counter(self._refusals.values())
        return self._ruled_out

    def judge(self, node: Node) -> None:
        """Ask ``node``, which is new or has changed."""
        self.forget(node.name)
        self._judge(node)

    def forget(self, name: str) -> None:
        """The node is not there any more."""
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
        """The refusal and the penalty; nodes that are alike in all that the rules look at are asked once."""
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
