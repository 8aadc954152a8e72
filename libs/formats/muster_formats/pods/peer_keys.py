"""The Kubernetes words for which pods a pod wants to stand beside, apart from, or evenly spread among.

They are kept in the template as they stand, where placement reads them: what it could not follow is refused here, at its line, since a rule
that must hold and cannot be understood would keep the job waiting for ever.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

from muster_core.models.problem_codes import Code
from muster_formats.kinds import Choice, Ignored, ListOf, MapOf, Text, Whole
from muster_formats.names import DNS_1123, LABEL_KEY, LABEL_VALUE
from muster_formats.table import Field, Nested, Section, Table

_OWN_LABELS = "the labels of a revision are not known before a pod is made"
_BY_HAND = "write the labels into the labelSelector"
_USABLE = "nodes count as they do unless said: by the pod's own node affinity, whatever their taints"


class _Operator(enum.StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class _Unsatisfiable(enum.StrEnum):
    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


class LabelRequirementKeys(Table):
    """One expression on labels of pods."""

    required = ("key", "operator")
    key = Field("key", Text(LABEL_KEY), "A label of the pod.")
    operator = Field("operator", Choice(_Operator), "How it is compared.")
    values = Field("values", ListOf(Text(LABEL_VALUE)), "With what.")


class LabelSelectorKeys(Table):
    """Which pods; one without anything in it selects all of them."""

    labels = Field("matchLabels", MapOf(LABEL_KEY, Text(LABEL_VALUE)), "Labels that they have.")
    expressions = Field("matchExpressions", ListOf(Nested(LabelRequirementKeys)), "On their labels.")


class EveryNamespaceKeys(Table):
    """A selector of namespaces, which selects all of them: only the empty one is followed."""

    labels = Field("matchLabels", Ignored(), "Their labels.", refused="labels of namespaces are not known")
    expressions = Field(
        "matchExpressions", Ignored(), "On their labels.", refused="labels of namespaces are not known"
    )


class PeerTermKeys(Table):
    """Pods, and the label whose values say what is beside what."""

    required = ("topologyKey",)
    topology = Field("topologyKey", Text(LABEL_KEY), "A node label: beside is where its value is the same.")
    selector = Field("labelSelector", Nested(LabelSelectorKeys), "Which pods; none without it.")
    namespaces = Field("namespaces", ListOf(Text(DNS_1123)), "Whose pods; the job's own unless said.")
    everywhere = Field("namespaceSelector", Nested(EveryNamespaceKeys), "{}: the pods of every namespace.")
    match = Field("matchLabelKeys", Ignored(), "Own labels.", refused=_OWN_LABELS, fix=_BY_HAND)
    mismatch = Field("mismatchLabelKeys", Ignored(), "Own labels.", refused=_OWN_LABELS, fix=_BY_HAND)


class PeerWishKeys(Table):
    """A term that is preferred."""

    required = ("weight", "podAffinityTerm")
    weight = Field("weight", Whole(1, 100), "How much it counts.")
    term = Field("podAffinityTerm", Nested(PeerTermKeys), "What is preferred.")


class PeerKeys(Table):
    """A PodAffinity, or a PodAntiAffinity."""

    must = Field(
        "requiredDuringSchedulingIgnoredDuringExecution", ListOf(Nested(PeerTermKeys)), "All must hold."
    )
    prefer = Field(
        "preferredDuringSchedulingIgnoredDuringExecution", ListOf(Nested(PeerWishKeys)), "Preferred."
    )


class SpreadKeys(Table):
    """A topology spread constraint."""

    required = ("maxSkew", "topologyKey", "whenUnsatisfiable")
    skew = Field("maxSkew", Whole(1), "By how many pods domains may differ.")
    topology = Field("topologyKey", Text(LABEL_KEY), "A node label, whose values are the domains.")
    unsatisfiable = Field("whenUnsatisfiable", Choice(_Unsatisfiable), "Whether it must hold.")
    selector = Field("labelSelector", Nested(LabelSelectorKeys), "Which pods are counted; none without it.")
    domains = Field("minDomains", Whole(1), "How many domains there are at least; 1 unless said.")
    affinity = Field("nodeAffinityPolicy", Ignored(), "Which nodes count.", refused=_USABLE)
    taints = Field("nodeTaintsPolicy", Ignored(), "Which nodes count.", refused=_USABLE)
    match = Field("matchLabelKeys", Ignored(), "Own labels.", refused=_OWN_LABELS, fix=_BY_HAND)


def check_peers(section: Section | None) -> None:
    """Say what is wrong with a pod affinity or anti-affinity."""
    if section is None:
        return
    for term in section.get(PeerKeys.must) or ():
        _check_term(term)
    for wish in section.get(PeerKeys.prefer) or ():
        _require(wish, (PeerWishKeys.weight, PeerWishKeys.term), "a preference")
        if term := wish.get(PeerWishKeys.term):
            _check_term(term)


def check_spreads(sections: Iterable[Section] | None) -> None:
    """Say what is wrong with topology spread constraints."""
    for one in sections or ():
        _require(one, (SpreadKeys.skew, SpreadKeys.topology, SpreadKeys.unsatisfiable), "a spread constraint")
        one.get(SpreadKeys.domains)
        _check_selector(one.get(SpreadKeys.selector))


def _check_term(term: Section) -> None:
    _require(term, (PeerTermKeys.topology,), "a term")
    term.get(PeerTermKeys.namespaces)
    term.get(PeerTermKeys.everywhere)
    _check_selector(term.get(PeerTermKeys.selector))


def _check_selector(selector: Section | None) -> None:
    if selector is None:
        return
    selector.get(LabelSelectorKeys.labels)
    for one in selector.get(LabelSelectorKeys.expressions) or ():
        keys = LabelRequirementKeys
        _require(one, (keys.key, keys.operator), "an expression")
        operator, values = one.get(keys.operator), one.get(keys.values) or []
        takes = operator in (_Operator.IN, _Operator.NOT_IN)
        if operator is not None and bool(values) is not takes:
            words = f"the operator {operator} takes {'some' if takes else 'no'} values"
            one.cursor.error(Code.CONFLICT, words, found=f"{len(values)} values")


def _require(section: Section, fields: Iterable[Field[Any]], what: str) -> None:
    for field in fields:
        if not section.given(field):
            section.cursor.missing(field.key, f"{what} has a {field.key}")
        else:
            section.get(field)
