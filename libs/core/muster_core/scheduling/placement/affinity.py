"""Inter-replica affinity: pod affinity, anti-affinity and topology spread, as in Kubernetes.

They are read from the raw pod template. A requirement that is not supported makes the whole template infeasible; an
unsupported preference is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from muster_core.models import Template
from muster_core.scheduling.placement.filters import Requirement, requirement_matches

Labels = tuple[tuple[str, str], ...]

_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


class AffinityTerm(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """The replicas that a rule is about, and its domains: those with ``labels`` that satisfy ``expressions`` in one of
    ``namespaces`` (None: any), by the node label ``topology``.
    """

    topology: str
    labels: Labels = ()
    expressions: tuple[Requirement, ...] = ()
    namespaces: tuple[str, ...] | None = None

    def matches(self, affinity: ReplicaAffinity) -> bool:
        """Return whether ``affinity`` is one of them."""
        if self.namespaces is not None and affinity.namespace not in self.namespaces:
            return False
        labels = dict(affinity.labels)
        return all(labels.get(key) == value for key, value in self.labels) and all(
            requirement_matches(one, labels) for one in self.expressions
        )


class SpreadConstraint(msgspec.Struct, frozen=True, kw_only=True):
    """A topology spread constraint: no domain has more than ``max_skew`` matching replicas above the one with the fewest."""

    among: AffinityTerm
    max_skew: int
    min_domains: int = 1


class ReplicaAffinity(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """One replica as others see it, and its own rules; ``preferred_terms`` are weighted, negative for anti-affinity."""

    namespace: str
    labels: Labels = ()
    affinity_terms: tuple[AffinityTerm, ...] = ()
    anti_affinity_terms: tuple[AffinityTerm, ...] = ()
    spread_constraints: tuple[SpreadConstraint, ...] = ()
    preferred_terms: tuple[tuple[int, AffinityTerm], ...] = ()
    supported: bool = True

    @property
    def has_rules(self) -> bool:
        """Whether it has rules about others."""
        return (
            bool(
                self.affinity_terms
                or self.anti_affinity_terms
                or self.spread_constraints
                or self.preferred_terms
            )
            or not self.supported
        )


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


class _Required(msgspec.Struct, frozen=True, rename="camel"):
    required_during_scheduling_ignored_during_execution: tuple[_Term, ...] = ()


class _Preferred(msgspec.Struct, frozen=True, rename="camel"):
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
    """Return how a replica of ``template`` in ``namespace`` appears to others, and its rules."""
    labels = tuple(sorted(template.labels.items()))
    spec = _mapping(template.pod.get("spec"))
    affinity = _mapping(spec.get("affinity"))
    raw = {key: affinity[key] for key in ("podAffinity", "podAntiAffinity") if affinity.get(key)}
    if spread := spec.get("topologySpreadConstraints"):
        raw["topologySpreadConstraints"] = spread
    if not raw:
        return ReplicaAffinity(namespace=namespace, labels=labels)
    return _read(msgspec.json.encode(raw, order="deterministic"), namespace, labels)


@lru_cache(maxsize=4096)
def _read(raw: bytes, namespace: str, labels: Labels) -> ReplicaAffinity:
    rules = _mapping(msgspec.json.decode(raw))
    affinity_terms, anti_affinity_terms = (
        _mapping(rules.get("podAffinity")),
        _mapping(rules.get("podAntiAffinity")),
    )
    try:
        spreads = msgspec.convert(rules.get("topologySpreadConstraints", ()), tuple[_Spread, ...])
        return ReplicaAffinity(
            namespace=namespace,
            labels=labels,
            affinity_terms=_required(affinity_terms, namespace),
            anti_affinity_terms=_required(anti_affinity_terms, namespace),
            spread_constraints=tuple(
                _spread_constraint(one, namespace)
                for one in spreads
                if one.when_unsatisfiable != "ScheduleAnyway"
            ),
            preferred_terms=(
                *_preferred(affinity_terms, namespace, 1),
                *_preferred(anti_affinity_terms, namespace, -1),
                *(
                    (-1, _affinity_term(one.topology_key, one.label_selector, (namespace,)))
                    for one in spreads
                    if one.when_unsatisfiable == "ScheduleAnyway"
                ),
            ),
        )
    except (msgspec.ValidationError, _UnsupportedRuleError):
        return ReplicaAffinity(namespace=namespace, labels=labels, supported=False)


def _required(raw: Mapping[str, object], namespace: str) -> tuple[AffinityTerm, ...]:
    terms = msgspec.convert(raw, _Required).required_during_scheduling_ignored_during_execution
    return tuple(_term(one, namespace) for one in terms)


def _preferred(raw: Mapping[str, object], namespace: str, sign: int) -> tuple[tuple[int, AffinityTerm], ...]:
    try:
        preferred_terms = msgspec.convert(
            raw, _Preferred
        ).preferred_during_scheduling_ignored_during_execution
        return tuple((sign * one.weight, _term(one.pod_affinity_term, namespace)) for one in preferred_terms)
    except (msgspec.ValidationError, _UnsupportedRuleError):
        return ()


def _term(term: _Term, namespace: str) -> AffinityTerm:
    everywhere = term.namespace_selector is not None
    if everywhere and term.namespace_selector != _LabelSelector():
        raise _UnsupportedRuleError("labels of namespaces are not known here")
    namespaces = None if everywhere else term.namespaces or (namespace,)
    return _affinity_term(term.topology_key, term.label_selector, namespaces)


def _spread_constraint(one: _Spread, namespace: str) -> SpreadConstraint:
    if one.when_unsatisfiable != "DoNotSchedule" or one.max_skew < 1 or one.min_domains < 1:
        raise _UnsupportedRuleError("a spread must be ScheduleAnyway or DoNotSchedule")
    among = _affinity_term(one.topology_key, one.label_selector, (namespace,))
    return SpreadConstraint(among=among, max_skew=one.max_skew, min_domains=one.min_domains)


def _affinity_term(
    topology: str, selector: _LabelSelector | None, namespaces: tuple[str, ...] | None
) -> AffinityTerm:
    """No selector matches nothing, an empty one everything, as in Kubernetes."""
    if selector is None:
        nobody = Requirement(key="", operator="Exists")
        return AffinityTerm(topology=topology, expressions=(nobody,), namespaces=namespaces)
    if any(one.operator not in _OPERATORS for one in selector.match_expressions):
        raise _UnsupportedRuleError("an operator that label selectors do not have")
    return AffinityTerm(
        topology=topology,
        labels=tuple(sorted(selector.match_labels.items())),
        expressions=selector.match_expressions,
        namespaces=namespaces,
    )


def _mapping(raw: object) -> dict[str, object]:
    try:
        return msgspec.convert(raw, dict[str, object])
    except msgspec.ValidationError:
        return {}
