"""Which nodes admit a replica at all, before anything is counted.

Kubernetes' own rules: readiness, cordons, taints against tolerations, the node selector and the required node affinity. What cannot be
understood admits nothing: a replica on a node that it must not use is worse than one that waits and says why.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from muster_core.models import Node, Taint, Template, Toleration

NOT_READY = "NotReady"
UNSCHEDULABLE = "Unschedulable"
TAINT = "Taint"
NODE_SELECTOR = "NodeSelector"
NODE_AFFINITY = "NodeAffinity"
CONSTRAINTS = (NOT_READY, UNSCHEDULABLE, TAINT, NODE_SELECTOR, NODE_AFFINITY)
"""Every constraint by which a node refuses, in the order in which they are checked."""

_BARRING = frozenset({"NoSchedule", "NoExecute"})


class Requirement(msgspec.Struct, frozen=True):
    """One expression of a node selector term; ``operator`` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Term(msgspec.Struct, frozen=True, rename="camel"):
    """Requirements that must all hold; a term without any matches no node, as in Kubernetes."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    node_selector_terms: tuple[Term, ...] = ()


class _Affinity(msgspec.Struct, frozen=True, rename="camel"):
    required_during_scheduling_ignored_during_execution: _Selector | None = None


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica demands of a node apart from room. ``terms`` of None: no required affinity; empty: no node satisfies it."""

    selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    terms: tuple[Term, ...] | None = None

    @property
    def by_labels(self) -> bool:
        """Whether the rules look at a node's labels or name, so that nodes of equal taints may differ."""
        return bool(self.selector) or self.terms is not None


def rules_of(template: Template) -> Rules:
    """The rules of one replica."""
    return Rules(
        selector=tuple(sorted(template.node_selector.items())),
        tolerations=template.tolerations,
        terms=_required_terms(template),
    )


def refusal(rules: Rules, node: Node) -> str:
    """The first constraint by which ``node`` refuses the replica, or an empty text where it admits it."""
    if not node.ready:
        return NOT_READY
    if node.unschedulable:
        return UNSCHEDULABLE
    if not tolerates(rules.tolerations, node.taints):
        return TAINT
    if any(node.labels.get(key) != value for key, value in rules.selector):
        return NODE_SELECTOR
    if rules.terms is not None and not any(_term_matches(term, node) for term in rules.terms):
        return NODE_AFFINITY
    return ""


def tolerates(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """Whether every taint that bars new replicas (NoSchedule, NoExecute) is tolerated."""
    known = tuple(tolerations)
    return all(any(_tolerated(taint, one) for one in known) for taint in barring(taints))


def barring(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """The taints that bar new replicas; PreferNoSchedule only discourages."""
    return tuple(taint for taint in taints if taint.effect in _BARRING)


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
        affinity = msgspec.convert(template.node_affinity, _Affinity)
    except msgspec.ValidationError:
        return ()
    required = affinity.required_during_scheduling_ignored_during_execution
    return None if required is None else required.node_selector_terms


def _term_matches(term: Term, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.name}
    return all(_holds(one, node.labels) for one in term.match_expressions) and all(
        _holds(one, fields) for one in term.match_fields
    )


def _holds(requirement: Requirement, labels: dict[str, str]) -> bool:
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
    try:
        left, right = int(value), int(requirement.values[0])
    except ValueError:
        return False
    return left > right if requirement.operator == "Gt" else left < right
