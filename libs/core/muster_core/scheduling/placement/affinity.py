"""Inter-replica affinity: pod affinity, anti-affinity and topology spread, as in Kubernetes.

The rules are read from the raw pod template. A requirement that is not supported makes the template infeasible on every
node; a preference that is not supported is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from muster_core.models import Template
from muster_core.scheduling.placement.filters import Requirement, satisfies

Labels = tuple[tuple[str, str], ...]

_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_NO_REPLICA = (Requirement(key="", operator="Exists"),)


class AffinityTerm(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """The replicas that a rule counts, in each domain of the node label ``topology``.

    A replica counts if it has ``labels``, satisfies ``expressions`` and is in one of ``namespaces`` (None: any).
    """

    topology: str
    labels: Labels = ()
    expressions: tuple[Requirement, ...] = ()
    namespaces: tuple[str, ...] | None = None

    def matches(self, replica: ReplicaAffinity) -> bool:
        """Return whether the term counts ``replica``."""
        if self.namespaces is not None and replica.namespace not in self.namespaces:
            return False
        labels = dict(replica.labels)
        return all(labels.get(key) == value for key, value in self.labels) and all(
            satisfies(labels, one) for one in self.expressions
        )


class SpreadConstraint(msgspec.Struct, frozen=True, kw_only=True):
    """A topology spread constraint: at most ``max_skew`` matching replicas more than in the domain with the fewest.

    With fewer than ``min_domains`` domains the fewest is 0.
    """

    term: AffinityTerm
    max_skew: int
    min_domains: int = 1


class ReplicaAffinity(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """A replica's ``namespace`` and ``labels``, which other replicas' terms match, and its own terms.

    The weights of ``preferred_terms`` are negative for anti-affinity. ``supported`` is false if a required rule is not.
    """

    namespace: str
    labels: Labels = ()
    affinity_terms: tuple[AffinityTerm, ...] = ()
    anti_affinity_terms: tuple[AffinityTerm, ...] = ()
    spread_constraints: tuple[SpreadConstraint, ...] = ()
    preferred_terms: tuple[tuple[int, AffinityTerm], ...] = ()
    supported: bool = True

    @property
    def terms(self) -> tuple[AffinityTerm, ...]:
        """Every term, required or preferred."""
        spread = (one.term for one in self.spread_constraints)
        preferred = (term for _, term in self.preferred_terms)
        return (*self.affinity_terms, *self.anti_affinity_terms, *spread, *preferred)

    @property
    def has_rules(self) -> bool:
        """Whether the replica has rules about other replicas."""
        return bool(self.terms) or not self.supported


class _LabelSelector(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class _Term(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    topology_key: str
    label_selector: _LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: _LabelSelector | None = None


class _Weighted(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    weight: int
    pod_affinity_term: _Term


class _RequiredPods(msgspec.Struct, frozen=True, rename="camel"):
    required_during_scheduling_ignored_during_execution: tuple[_Term, ...] = ()


class _PreferredPods(msgspec.Struct, frozen=True, rename="camel"):
    preferred_during_scheduling_ignored_during_execution: tuple[_Weighted, ...] = ()


class _Spread(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: _LabelSelector | None = None
    min_domains: int = 1


class _UnsupportedRuleError(ValueError):
    """A rule that is not supported."""


def replica_affinity_of(template: Template, namespace: str) -> ReplicaAffinity:
    """Return the affinity of a replica of ``template`` in ``namespace``."""
    labels = tuple(sorted(template.labels.items()))
    spec = _mapping(template.pod.get("spec"))
    affinity = _mapping(spec.get("affinity"))
    rules = {key: affinity[key] for key in ("podAffinity", "podAntiAffinity") if affinity.get(key)}
    if spread := spec.get("topologySpreadConstraints"):
        rules["topologySpreadConstraints"] = spread
    if not rules:
        return ReplicaAffinity(namespace=namespace, labels=labels)
    return _decode(msgspec.json.encode(rules, order="deterministic"), namespace, labels)


@lru_cache(maxsize=4096)
def _decode(encoded: bytes, namespace: str, labels: Labels) -> ReplicaAffinity:
    rules = _mapping(msgspec.json.decode(encoded))
    affinity, anti_affinity = _mapping(rules.get("podAffinity")), _mapping(rules.get("podAntiAffinity"))
    try:
        spread = msgspec.convert(rules.get("topologySpreadConstraints", ()), tuple[_Spread, ...])
        required = [one for one in spread if one.when_unsatisfiable != "ScheduleAnyway"]
        preferred = [one for one in spread if one.when_unsatisfiable == "ScheduleAnyway"]
        return ReplicaAffinity(
            namespace=namespace,
            labels=labels,
            affinity_terms=_required_terms(affinity, namespace),
            anti_affinity_terms=_required_terms(anti_affinity, namespace),
            spread_constraints=tuple(_spread_constraint(one, namespace) for one in required),
            preferred_terms=(
                *_preferred_terms(affinity, namespace, 1),
                *_preferred_terms(anti_affinity, namespace, -1),
                *(
                    (-1, _selector_term(one.topology_key, one.label_selector, (namespace,)))
                    for one in preferred
                ),
            ),
        )
    except (msgspec.ValidationError, _UnsupportedRuleError):
        return ReplicaAffinity(namespace=namespace, labels=labels, supported=False)


def _required_terms(rules: Mapping[str, object], namespace: str) -> tuple[AffinityTerm, ...]:
    terms = msgspec.convert(rules, _RequiredPods).required_during_scheduling_ignored_during_execution
    return tuple(_affinity_term(one, namespace) for one in terms)


def _preferred_terms(
    rules: Mapping[str, object], namespace: str, sign: int
) -> tuple[tuple[int, AffinityTerm], ...]:
    try:
        terms = msgspec.convert(rules, _PreferredPods).preferred_during_scheduling_ignored_during_execution
        return tuple((sign * one.weight, _affinity_term(one.pod_affinity_term, namespace)) for one in terms)
    except (msgspec.ValidationError, _UnsupportedRuleError):
        return ()


def _affinity_term(term: _Term, namespace: str) -> AffinityTerm:
    if term.namespace_selector not in (None, _LabelSelector()):
        raise _UnsupportedRuleError("labels of namespaces are unknown")
    namespaces = (term.namespaces or (namespace,)) if term.namespace_selector is None else None
    return _selector_term(term.topology_key, term.label_selector, namespaces)


def _spread_constraint(spread: _Spread, namespace: str) -> SpreadConstraint:
    if spread.when_unsatisfiable != "DoNotSchedule" or spread.max_skew < 1 or spread.min_domains < 1:
        raise _UnsupportedRuleError("a spread is neither ScheduleAnyway nor a valid DoNotSchedule")
    term = _selector_term(spread.topology_key, spread.label_selector, (namespace,))
    return SpreadConstraint(term=term, max_skew=spread.max_skew, min_domains=spread.min_domains)


def _selector_term(
    topology: str, selector: _LabelSelector | None, namespaces: tuple[str, ...] | None
) -> AffinityTerm:
    """Return the term for a label selector: none matches no replica, an empty one every replica, as in Kubernetes."""
    if selector is None:
        return AffinityTerm(topology=topology, expressions=_NO_REPLICA, namespaces=namespaces)
    if any(one.operator not in _OPERATORS for one in selector.match_expressions):
        raise _UnsupportedRuleError("an operator that label selectors do not have")
    return AffinityTerm(
        topology=topology,
        labels=tuple(sorted(selector.match_labels.items())),
        expressions=selector.match_expressions,
        namespaces=namespaces,
    )


def _mapping(value: object) -> dict[str, object]:
    try:
        return msgspec.convert(value, dict[str, object])
    except msgspec.ValidationError:
        return {}
