"""Inter-replica affinity: pod affinity, anti-affinity and topology spread, as in Kubernetes.

They are read from the raw pod template. A requirement that is not supported makes the whole template infeasible; an
unsupported preference is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from muster_core.models import Template
from muster_core.scheduling.placement.filters import Requirement, holds

Labels = tuple[tuple[str, str], ...]

_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


class Neighbours(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """The replicas that a rule is about, and its domains: those with ``labels`` that satisfy ``expressions`` in one of
    ``namespaces`` (None: any), by the node label ``topology``.
    """

    topology: str
    labels: Labels = ()
    expressions: tuple[Requirement, ...] = ()
    namespaces: tuple[str, ...] | None = None

    def include(self, peer: Peer) -> bool:
        """Return whether ``peer`` is one of them."""
        if self.namespaces is not None and peer.namespace not in self.namespaces:
            return False
        labels = dict(peer.labels)
        return all(labels.get(key) == value for key, value in self.labels) and all(
            holds(one, labels) for one in self.expressions
        )


class Evenly(msgspec.Struct, frozen=True, kw_only=True):
    """A topology spread constraint: no domain has more than ``max_skew`` matching replicas above the one with the fewest."""

    among: Neighbours
    max_skew: int
    min_domains: int = 1


class Peer(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """One replica as others see it, and its own rules; ``wishes`` are weighted, negative for anti-affinity."""

    namespace: str
    labels: Labels = ()
    beside: tuple[Neighbours, ...] = ()
    apart: tuple[Neighbours, ...] = ()
    evenly: tuple[Evenly, ...] = ()
    wishes: tuple[tuple[int, Neighbours], ...] = ()
    understood: bool = True

    @property
    def asks(self) -> bool:
        """Whether it has rules about others."""
        return bool(self.beside or self.apart or self.evenly or self.wishes) or not self.understood


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


class _NotUnderstood(ValueError):
    """A rule that is not supported."""


def peer_of(template: Template, namespace: str) -> Peer:
    """Return how a replica of ``template`` in ``namespace`` appears to others, and its rules."""
    labels = tuple(sorted(template.labels.items()))
    spec = _mapping(template.pod.get("spec"))
    affinity = _mapping(spec.get("affinity"))
    said = {key: affinity[key] for key in ("podAffinity", "podAntiAffinity") if affinity.get(key)}
    if spread := spec.get("topologySpreadConstraints"):
        said["topologySpreadConstraints"] = spread
    if not said:
        return Peer(namespace=namespace, labels=labels)
    return _read(msgspec.json.encode(said, order="deterministic"), namespace, labels)


@lru_cache(maxsize=4096)
def _read(said: bytes, namespace: str, labels: Labels) -> Peer:
    raw = _mapping(msgspec.json.decode(said))
    beside, apart = _mapping(raw.get("podAffinity")), _mapping(raw.get("podAntiAffinity"))
    try:
        spreads = msgspec.convert(raw.get("topologySpreadConstraints", ()), tuple[_Spread, ...])
        return Peer(
            namespace=namespace,
            labels=labels,
            beside=_required(beside, namespace),
            apart=_required(apart, namespace),
            evenly=tuple(
                _evenly(one, namespace) for one in spreads if one.when_unsatisfiable != "ScheduleAnyway"
            ),
            wishes=(
                *_preferred(beside, namespace, 1),
                *_preferred(apart, namespace, -1),
                *(
                    (-1, _neighbours(one.topology_key, one.label_selector, (namespace,)))
                    for one in spreads
                    if one.when_unsatisfiable == "ScheduleAnyway"
                ),
            ),
        )
    except (msgspec.ValidationError, _NotUnderstood):
        return Peer(namespace=namespace, labels=labels, understood=False)


def _required(raw: Mapping[str, object], namespace: str) -> tuple[Neighbours, ...]:
    terms = msgspec.convert(raw, _Required).required_during_scheduling_ignored_during_execution
    return tuple(_term(one, namespace) for one in terms)


def _preferred(raw: Mapping[str, object], namespace: str, sign: int) -> tuple[tuple[int, Neighbours], ...]:
    try:
        wishes = msgspec.convert(raw, _Preferred).preferred_during_scheduling_ignored_during_execution
        return tuple((sign * one.weight, _term(one.pod_affinity_term, namespace)) for one in wishes)
    except (msgspec.ValidationError, _NotUnderstood):
        return ()


def _term(term: _Term, namespace: str) -> Neighbours:
    everywhere = term.namespace_selector is not None
    if everywhere and term.namespace_selector != _LabelSelector():
        raise _NotUnderstood("labels of namespaces are not known here")
    namespaces = None if everywhere else term.namespaces or (namespace,)
    return _neighbours(term.topology_key, term.label_selector, namespaces)


def _evenly(one: _Spread, namespace: str) -> Evenly:
    if one.when_unsatisfiable != "DoNotSchedule" or one.max_skew < 1 or one.min_domains < 1:
        raise _NotUnderstood("a spread must be ScheduleAnyway or DoNotSchedule")
    among = _neighbours(one.topology_key, one.label_selector, (namespace,))
    return Evenly(among=among, max_skew=one.max_skew, min_domains=one.min_domains)


def _neighbours(
    topology: str, selector: _LabelSelector | None, namespaces: tuple[str, ...] | None
) -> Neighbours:
    """No selector matches nothing, an empty one everything, as in Kubernetes."""
    if selector is None:
        nobody = Requirement(key="", operator="Exists")
        return Neighbours(topology=topology, expressions=(nobody,), namespaces=namespaces)
    if any(one.operator not in _OPERATORS for one in selector.match_expressions):
        raise _NotUnderstood("an operator that label selectors do not have")
    return Neighbours(
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
