"""Node filters and preferences, evaluated before free capacity.

The rules are those of Kubernetes: readiness, cordons, taints and tolerations, the node selector, node affinity. A
requirement that is not supported excludes every node: a waiting replica with a reason is better than one on a wrong node.
A preference that is not supported is ignored. A node is evaluated once for each set of rules and again when it changes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from muster_core.models import Node, Taint, Template, Toleration

NOT_READY = "NotReady"
UNSCHEDULABLE = "Unschedulable"
TAINT = "Taint"
NODE_SELECTOR = "NodeSelector"
NODE_AFFINITY = "NodeAffinity"
TOPOLOGY = "Topology"
POD_RULES = "PodRules"
POD_AFFINITY = "PodAffinity"
FILTERS = {
    NOT_READY: "not ready",
    UNSCHEDULABLE: "cordoned",
    TAINT: "tainted and not tolerated",
    NODE_SELECTOR: "without the selected labels",
    NODE_AFFINITY: "outside the required affinity",
    TOPOLOGY: "in no topology domain",
    POD_RULES: "excluded because the rules about other pods are not supported",
    POD_AFFINITY: "excluded by the affinity of pods that run there",
}
"""Every filter in evaluation order, with the words for the nodes that it excludes; the last is inter-replica affinity."""

_HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
_SOFT_EFFECT = "PreferNoSchedule"
_TAINT_PENALTY = 100
_CACHE_SIZE = 4096

_INTEGER = re.compile(r"[+-]?[0-9]{1,63}", re.ASCII)
_INT64 = 1 << 63


class Requirement(msgspec.Struct, frozen=True):
    """One label expression; ``operator`` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Term(msgspec.Struct, frozen=True, rename="camel"):
    """Requirements that must all hold; a term without any matches no node, as in Kubernetes."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()

    def matches(self, node: Node) -> bool:
        """Return whether ``node`` satisfies every requirement."""
        if not self.match_expressions and not self.match_fields:
            return False
        fields = {"metadata.name": node.name}
        return all(satisfies(node.labels, one) for one in self.match_expressions) and all(
            satisfies(fields, one) for one in self.match_fields
        )


def satisfies(labels: Mapping[str, str], requirement: Requirement) -> bool:
    """Return whether ``labels`` satisfy ``requirement``; an unknown operator or an invalid value matches nothing."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(value, requirement)
        case _:
            return False


def _compares(value: str | None, requirement: Requirement) -> bool:
    if value is None or len(requirement.values) != 1:
        return False
    left, right = _int64(value), _int64(requirement.values[0])
    if left is None or right is None:
        return False
    return left > right if requirement.operator == "Gt" else left < right


def _int64(text: str) -> int | None:
    """Parse a number as Kubernetes does: decimal, 64 bits, without blanks or separators."""
    number = int(text) if _INTEGER.fullmatch(text) else _INT64
    return number if -_INT64 <= number < _INT64 else None


class NodeRules(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """A replica's requirements on a node besides capacity.

    ``terms`` of None: no required affinity; empty: no node satisfies it. ``preferred`` are terms with their weights.
    ``labels`` are keys that a node must have. ``supported`` is false if the affinity to other pods is not supported.
    """

    selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    terms: tuple[Term, ...] | None = None
    preferred: tuple[tuple[int, Term], ...] = ()
    labels: tuple[str, ...] = ()
    supported: bool = True

    @property
    def uses_labels(self) -> bool:
        """Whether nodes with equal taints may differ for the rules."""
        return bool(self.selector or self.preferred or self.labels) or self.terms is not None

    @property
    def keys(self) -> tuple[str, ...] | None:
        """The keys of the labels that the rules use; None if they use the node's name."""
        terms = [*(self.terms or ()), *(term for _, term in self.preferred)]
        if any(term.match_fields for term in terms):
            return None
        expressions = (one.key for term in terms for one in term.match_expressions)
        return tuple(dict.fromkeys((*(key for key, _ in self.selector), *expressions, *self.labels)))


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    node_selector_terms: tuple[Term, ...] = ()


class _Preference(msgspec.Struct, frozen=True):
    weight: int
    preference: Term


class _Required(msgspec.Struct, frozen=True, rename="camel"):
    required_during_scheduling_ignored_during_execution: _Selector | None = None


class _Preferred(msgspec.Struct, frozen=True, rename="camel"):
    preferred_during_scheduling_ignored_during_execution: tuple[_Preference, ...] = ()


def node_rules_of(template: Template, *, labels: tuple[str, ...] = (), supported: bool = True) -> NodeRules:
    """Return the rules of one replica; ``labels`` and ``supported`` as in ``NodeRules``."""
    return NodeRules(
        selector=tuple(sorted(template.node_selector.items())),
        tolerations=template.tolerations,
        terms=_required_terms(template.node_affinity) if template.node_affinity else None,
        preferred=_preferred_terms(template.node_affinity) if template.node_affinity else (),
        labels=labels,
        supported=supported,
    )


def excluding_filter(rules: NodeRules, node: Node) -> str:
    """Return the first filter that excludes ``node``, or an empty string."""
    if not node.ready:
        return NOT_READY
    if node.unschedulable:
        return UNSCHEDULABLE
    if not tolerates(rules.tolerations, node.taints):
        return TAINT
    if not _matches_selector(rules, node):
        return NODE_SELECTOR
    if not _matches_affinity(rules, node):
        return NODE_AFFINITY
    if any(key not in node.labels for key in rules.labels):
        return TOPOLOGY
    return "" if rules.supported else POD_RULES


def penalty(rules: NodeRules, node: Node) -> int:
    """Return the weights of the preferences that ``node`` misses, plus 100 for each PreferNoSchedule taint that is not
    tolerated.
    """
    missed = sum(weight for weight, term in rules.preferred if not term.matches(node))
    taints = (taint for taint in node.taints if taint.effect == _SOFT_EFFECT)
    return missed + _TAINT_PENALTY * sum(not _tolerated(taint, rules.tolerations) for taint in taints)


def matches_labels(rules: NodeRules, node: Node) -> bool:
    """Return whether the node selector and the required node affinity allow ``node``, whatever its state and taints."""
    return _matches_selector(rules, node) and _matches_affinity(rules, node)


def tolerates(tolerations: tuple[Toleration, ...], taints: Iterable[Taint]) -> bool:
    """Return whether every NoSchedule and NoExecute taint is tolerated."""
    return all(_tolerated(taint, tolerations) for taint in hard_taints(taints))


def hard_taints(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """Return the NoSchedule and NoExecute taints; PreferNoSchedule is a preference."""
    return tuple(taint for taint in taints if taint.effect in _HARD_EFFECTS)


def _matches_selector(rules: NodeRules, node: Node) -> bool:
    return all(node.labels.get(key) == value for key, value in rules.selector)


def _matches_affinity(rules: NodeRules, node: Node) -> bool:
    return rules.terms is None or any(term.matches(node) for term in rules.terms)


def _tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    return any(
        (not one.effect or one.effect == taint.effect)
        and (
            not one.key or one.key == taint.key
            if one.operator == "Exists"
            else one.key == taint.key and one.value == taint.value
        )
        for one in tolerations
    )


def _required_terms(affinity: Mapping[str, object]) -> tuple[Term, ...] | None:
    try:
        required = msgspec.convert(affinity, _Required).required_during_scheduling_ignored_during_execution
    except msgspec.ValidationError:
        return ()
    return None if required is None else required.node_selector_terms


def _preferred_terms(affinity: Mapping[str, object]) -> tuple[tuple[int, Term], ...]:
    try:
        terms = msgspec.convert(affinity, _Preferred).preferred_during_scheduling_ignored_during_execution
    except msgspec.ValidationError:
        return ()
    return tuple((one.weight, one.preference) for one in terms)


class FilterResults:
    """Which nodes pass ``rules``.

    ``feasible`` are the names of the nodes that pass, ``penalties`` their penalties above 0. Both are read-only.
    """

    __slots__ = ("_cache", "_excluded", "_filtered", "_keys", "_rules", "feasible", "penalties")

    def __init__(self, rules: NodeRules, nodes: Iterable[Node]) -> None:
        self._rules = rules
        self._keys = rules.keys
        self._cache: dict[tuple[object, ...], tuple[str, int]] = {}
        self._excluded: dict[str, str] = {}
        self._filtered: Counter[str] | None = None
        self.feasible: set[str] = set()
        self.penalties: dict[str, int] = {}
        for node in nodes:
            self._evaluate(node)

    @property
    def filtered(self) -> Mapping[str, int]:
        """How many nodes each filter excludes."""
        if self._filtered is None:
            self._filtered = Counter(self._excluded.values())
        return self._filtered

    def evaluate(self, node: Node) -> None:
        """Evaluate ``node``, which is new or has changed."""
        self.remove(node.name)
        self._evaluate(node)

    def remove(self, name: str) -> None:
        """Remove a node."""
        self.feasible.discard(name)
        if self._excluded.pop(name, None) is not None:
            self._filtered = None
        self.penalties.pop(name, None)

    def _evaluate(self, node: Node) -> None:
        filter_name, cost = self._result(node)
        if filter_name:
            self._filtered = None
            self._excluded[node.name] = filter_name
            return
        self.feasible.add(node.name)
        if cost:
            self.penalties[node.name] = cost

    def _result(self, node: Node) -> tuple[str, int]:
        """Return the excluding filter and the penalty; nodes that are equal to the rules share one result."""
        if self._keys is None:
            return excluding_filter(self._rules, node), penalty(self._rules, node)
        labels = node.labels
        inputs = (node.ready, node.unschedulable, node.taints, *[labels.get(key) for key in self._keys])
        result = self._cache.get(inputs)
        if result is None:
            if len(self._cache) >= _CACHE_SIZE:
                self._cache.clear()
            result = self._cache[inputs] = (excluding_filter(self._rules, node), penalty(self._rules, node))
        return result
