"""Node filters and preferences, evaluated before capacity.

Kubernetes' rules: readiness, cordons, taints and tolerations, the node selector, node affinity. A requirement that is not
supported excludes every node: a waiting replica with a reason is better than one on a wrong node. An unsupported preference
is ignored. Results are evaluated once for each node and again only when it changes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Set

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
CONSTRAINTS = (
    NOT_READY,
    UNSCHEDULABLE,
    TAINT,
    NODE_SELECTOR,
    NODE_AFFINITY,
    TOPOLOGY,
    POD_RULES,
    POD_AFFINITY,
)
"""Every filter, in evaluation order; the last is for inter-replica affinity."""

_HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
_SOFT_EFFECT = "PreferNoSchedule"
_TAINT_PENALTY = 100


_WHOLE = re.compile(r"[+-]?[0-9]{1,63}", re.ASCII)
_BOUND = 1 << 63


class Requirement(msgspec.Struct, frozen=True):
    """One expression; ``operator`` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Term(msgspec.Struct, frozen=True, rename="camel"):
    """Requirements that must all hold; a term without any matches no node, as in Kubernetes."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


def term_matches(term: Term, node: Node) -> bool:
    """Return whether ``node`` satisfies every requirement of ``term``."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.name}
    return all(requirement_matches(one, node.labels) for one in term.match_expressions) and all(
        requirement_matches(one, fields) for one in term.match_fields
    )


def requirement_matches(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Return whether ``labels`` satisfy ``requirement``."""
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
            return _ordered(value, requirement)
        case _:
            return False


def _ordered(value: str | None, requirement: Requirement) -> bool:
    if value is None or len(requirement.values) != 1:
        return False
    left, right = _number(value), _number(requirement.values[0])
    if left is None or right is None:
        return False
    return left > right if requirement.operator == "Gt" else left < right


def _number(text: str) -> int | None:
    """Parse a number as Kubernetes does: decimal, 64 bits, without blanks or separators."""
    if not _WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if -_BOUND <= number < _BOUND else None


class NodeRules(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """A replica's requirements on a node besides capacity.

    ``terms`` of None: no required affinity; empty: no node satisfies it. ``preferred`` are terms with their weights.
    ``labels`` are keys that a node must have. ``supported`` is false if an affinity to other pods is not supported.
    """

    selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    terms: tuple[Term, ...] | None = None
    preferred: tuple[tuple[int, Term], ...] = ()
    labels: tuple[str, ...] = ()
    supported: bool = True

    @property
    def uses_labels(self) -> bool:
        """Whether the rules look at more than taints, so that nodes with equal taints may differ."""
        return bool(self.selector or self.preferred or self.labels) or self.terms is not None

    @property
    def keys(self) -> tuple[str, ...] | None:
        """The labels that the rules look at; None if they look at the node's name."""
        terms = [*(self.terms or ()), *(term for _, term in self.preferred)]
        if any(term.match_fields for term in terms):
            return None
        term = (one.key for term in terms for one in term.match_expressions)
        return tuple(dict.fromkeys((*(key for key, _ in self.selector), *term, *self.labels)))


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
        terms=_required_terms(template),
        preferred=_preferred_terms(template),
        labels=labels,
        supported=supported,
    )


def excluding_filter(rules: NodeRules, node: Node) -> str:
    """Return the first filter that excludes ``node``, or an empty text."""
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
    """Return the penalty of ``node``: the weights of preferences that it misses, and 100 for each PreferNoSchedule taint
    that is not tolerated.
    """
    missed = sum(weight for weight, term in rules.preferred if not term_matches(term, node))
    taints = (taint for taint in node.taints if taint.effect == _SOFT_EFFECT)
    return missed + _TAINT_PENALTY * sum(
        1 for taint in taints if not any(_tolerated(taint, one) for one in rules.tolerations)
    )


def matches_labels(rules: NodeRules, node: Node) -> bool:
    """Return whether the node selector and the required node affinity allow ``node``, whatever its state and taints."""
    return _matches_selector(rules, node) and _matches_affinity(rules, node)


def tolerates(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """Return whether every NoSchedule and NoExecute taint is tolerated."""
    known = tuple(tolerations)
    return all(any(_tolerated(taint, one) for one in known) for taint in hard_taints(taints))


def hard_taints(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """Return the NoSchedule and NoExecute taints; PreferNoSchedule is a preference."""
    return tuple(taint for taint in taints if taint.effect in _HARD_EFFECTS)


def _matches_selector(rules: NodeRules, node: Node) -> bool:
    return all(node.labels.get(key) == value for key, value in rules.selector)


def _matches_affinity(rules: NodeRules, node: Node) -> bool:
    return rules.terms is None or any(term_matches(term, node) for term in rules.terms)


def _tolerated(taint: Taint, toleration: Toleration) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return not toleration.key or toleration.key == taint.key
    return toleration.key == taint.key and toleration.value == taint.value


def _required_terms(template: Template) -> tuple[Term, ...] | None:
    if not template.node_affinity:
        return None
    try:
        required = msgspec.convert(
            template.node_affinity, _Required
        ).required_during_scheduling_ignored_during_execution
    except msgspec.ValidationError:
        return ()
    return None if required is None else required.node_selector_terms


def _preferred_terms(template: Template) -> tuple[tuple[int, Term], ...]:
    if not template.node_affinity:
        return ()
    try:
        affinity = msgspec.convert(template.node_affinity, _Preferred)
    except msgspec.ValidationError:
        return ()
    return tuple(
        (one.weight, one.preference) for one in affinity.preferred_during_scheduling_ignored_during_execution
    )


_CACHE_SIZE = 4096


class FilterResults:
    """Which nodes pass ``rules``, by name; how many each filter excludes; ``penalties`` of feasible nodes (above 0)."""

    __slots__ = ("_cache", "_excluded", "_feasible", "_keys", "_penalties", "_ruled_out", "_rules")

    def __init__(self, rules: NodeRules, nodes: Iterable[Node]) -> None:
        self._rules = rules
        self._keys = rules.keys
        self._cache: dict[tuple[object, ...], tuple[str, int]] = {}
        self._feasible: set[str] = set()
        self._excluded: dict[str, str] = {}
        self._penalties: dict[str, int] = {}
        self._ruled_out: Counter[str] | None = None
        for node in nodes:
            self._evaluate(node)

    @property
    def feasible(self) -> Set[str]:
        """Return the names of the feasible nodes."""
        return self._feasible

    @property
    def penalties(self) -> Mapping[str, int]:
        """Return the penalties of nodes; some names may be of infeasible nodes."""
        return self._penalties

    @property
    def filtered(self) -> Mapping[str, int]:
        """Return how many nodes each filter excludes."""
        if self._ruled_out is None:
            self._ruled_out = Counter(self._excluded.values())
        return self._ruled_out

    def evaluate(self, node: Node) -> None:
        """Evaluate ``node``, which is new or has changed."""
        self.remove(node.name)
        self._evaluate(node)

    def remove(self, name: str) -> None:
        """Remove a node."""
        self._feasible.discard(name)
        if self._excluded.pop(name, None) is not None:
            self._ruled_out = None
        self._penalties.pop(name, None)

    def _evaluate(self, node: Node) -> None:
        excluded_by, penalty = self._evaluate_once(node)
        if excluded_by:
            self._ruled_out = None
            self._excluded[node.name] = excluded_by
            return
        self._feasible.add(node.name)
        if penalty:
            self._penalties[node.name] = penalty

    def _evaluate_once(self, node: Node) -> tuple[str, int]:
        """Return filter and penalty; nodes that are alike in all that the rules look at are evaluated once."""
        if self._keys is None:
            return excluding_filter(self._rules, node), penalty(self._rules, node)
        labels = node.labels
        seen = (node.ready, node.unschedulable, node.taints, *[labels.get(key) for key in self._keys])
        answer = self._cache.get(seen)
        if answer is None:
            if len(self._cache) >= _CACHE_SIZE:
                self._cache.clear()
            answer = self._cache[seen] = (excluding_filter(self._rules, node), penalty(self._rules, node))
        return answer
