"""Fields of pods for placement and start: tolerations, affinities, topology spread, ports and variables."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from typing import Any

from muster_core.models import Port, Toleration
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.field_types import AnyValue, Choice, FieldType, Integer, ListOf, MapOf, RawMapping, String
from muster_formats.names import DNS_1123, LABEL_KEY, LABEL_VALUE, VARIABLE
from muster_formats.nodes import JsonObject
from muster_formats.problems import shown
from muster_formats.schema import Field, Nested, Section, Table, ignored, rejected

_WHOLE_TEMPLATE = "only a whole pod template supports it"
_REVISION_LABELS = "the labels of a revision are unknown before a pod exists"
_REVISION_FIX = "write the labels into labelSelector"
_NODE_POLICY = (
    "only the default is supported: nodes count by the pod's own node affinity, whatever their taints"
)
_NAMESPACE_LABELS = "labels of namespaces are unknown"
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


class _TolerationOperator(enum.StrEnum):
    EQUAL = "Equal"
    EXISTS = "Exists"


class _TaintEffect(enum.StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class _NodeOperator(enum.StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


class _LabelOperator(enum.StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class _Unsatisfiable(enum.StrEnum):
    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


class TolerationFields(Table):
    """A toleration."""

    key = Field("key", String(LABEL_KEY), "Key of the taint; empty with Exists tolerates every taint.")
    operator = Field("operator", Choice(_TolerationOperator), "Equal by default.")
    value = Field("value", String(LABEL_VALUE), "Value of the taint, for Equal.")
    effect = Field("effect", Choice(_TaintEffect), "Effect of the taint; every effect by default.")
    seconds = Field(
        "tolerationSeconds",
        Integer(),
        "How long the taint is tolerated.",
        ignored="Muster does not evict replicas because of taints",
    )


class PortFields(Table):
    """A port."""

    required = ("containerPort",)
    name = Field("name", String(DNS_1123), "Name of the port.")
    number = Field("containerPort", Integer(1, 65535), "Number of the port that the program listens on.")
    protocol = ignored("protocol", "TCP, UDP or SCTP.", "the program decides which protocol it uses")
    host_port = ignored("hostPort", "Port of the node.", _WHOLE_TEMPLATE)
    host_ip = ignored("hostIP", "Address of the node.", _WHOLE_TEMPLATE)


class PodPortFields(PortFields):
    """A port of a container, which Kubernetes gets as it is."""

    protocol = Field("protocol", AnyValue(), "TCP, UDP or SCTP.", kubernetes=True)
    host_port = Field("hostPort", AnyValue(), "Port of the node.", kubernetes=True)
    host_ip = Field("hostIP", AnyValue(), "Address of the node.", kubernetes=True)


class VariableFields(Table):
    """An environment variable."""

    required = ("name",)
    name = Field("name", String(VARIABLE), "Name of the variable.")
    value = Field("value", String(), "Value of the variable, a string.")
    source = Field("valueFrom", RawMapping(), "A secret, config map or field of the pod.", kubernetes=True)


class NodeRequirementFields(Table):
    """A match expression on node labels."""

    required = ("key", "operator")
    key = Field("key", String(LABEL_KEY), "A node label.")
    operator = Field("operator", Choice(_NodeOperator), "How the label is compared.")
    values = Field("values", ListOf(String()), "Values to compare with.")


class NodeFieldRequirementFields(NodeRequirementFields):
    """A match expression on node fields; Kubernetes supports ``metadata.name``."""

    key = Field("key", String(), "metadata.name.")


class NodeSelectorTermFields(Table):
    """Match expressions that must all hold."""

    expressions = Field("matchExpressions", ListOf(Nested(NodeRequirementFields)), "On node labels.")
    node_fields = Field("matchFields", ListOf(Nested(NodeFieldRequirementFields)), "On node fields.")


class NodeSelectorFields(Table):
    """Terms of which at least one must hold."""

    required = ("nodeSelectorTerms",)
    terms = Field("nodeSelectorTerms", ListOf(Nested(NodeSelectorTermFields)), "At least one must hold.")


class PreferredNodeTermFields(Table):
    """A preferred term."""

    required = ("weight", "preference")
    weight = Field("weight", Integer(1, 100), "Weight of the preference.")
    preference = Field("preference", Nested(NodeSelectorTermFields), "The preferred nodes.")


class NodeAffinityFields(Table):
    """A Kubernetes NodeAffinity."""

    hard = Field("requiredDuringSchedulingIgnoredDuringExecution", Nested(NodeSelectorFields), "Must hold.")
    preferred = Field(
        "preferredDuringSchedulingIgnoredDuringExecution",
        ListOf(Nested(PreferredNodeTermFields)),
        "Preferred.",
    )


class LabelRequirementFields(Table):
    """A match expression on pod labels."""

    required = ("key", "operator")
    key = Field("key", String(LABEL_KEY), "A pod label.")
    operator = Field("operator", Choice(_LabelOperator), "How the label is compared.")
    values = Field("values", ListOf(String(LABEL_VALUE)), "Values to compare with.")


class LabelSelectorFields(Table):
    """A selector of pods; an empty one selects all."""

    labels = Field("matchLabels", MapOf(LABEL_KEY, String(LABEL_VALUE)), "Labels of the pods.")
    expressions = Field("matchExpressions", ListOf(Nested(LabelRequirementFields)), "On pod labels.")


class NamespaceSelectorFields(Table):
    """A selector of namespaces; only the empty one, which selects all, is supported."""

    labels = rejected("matchLabels", "Labels of namespaces.", _NAMESPACE_LABELS)
    expressions = rejected("matchExpressions", "On namespace labels.", _NAMESPACE_LABELS)


class PodAffinityTermFields(Table):
    """Pods, and the node label that defines their topology domain."""

    required = ("topologyKey",)
    topology = Field("topologyKey", String(LABEL_KEY), "A node label; equal values are one domain.")
    selector = Field("labelSelector", Nested(LabelSelectorFields), "The pods; none without it.")
    namespaces = Field("namespaces", ListOf(String(DNS_1123)), "Their namespaces; by default the job's.")
    every_namespace = Field(
        "namespaceSelector", Nested(NamespaceSelectorFields), "{} selects every namespace."
    )
    match = rejected("matchLabelKeys", "Own labels to match.", _REVISION_LABELS, fix=_REVISION_FIX)
    mismatch = rejected("mismatchLabelKeys", "Own labels not to match.", _REVISION_LABELS, fix=_REVISION_FIX)


class PreferredPodTermFields(Table):
    """A preferred pod affinity term."""

    required = ("weight", "podAffinityTerm")
    weight = Field("weight", Integer(1, 100), "Weight of the preference.")
    term = Field("podAffinityTerm", Nested(PodAffinityTermFields), "The preferred term.")


class PodAffinityFields(Table):
    """A PodAffinity or PodAntiAffinity."""

    hard = Field(
        "requiredDuringSchedulingIgnoredDuringExecution",
        ListOf(Nested(PodAffinityTermFields)),
        "All must hold.",
    )
    preferred = Field(
        "preferredDuringSchedulingIgnoredDuringExecution",
        ListOf(Nested(PreferredPodTermFields)),
        "Preferred.",
    )


class TopologySpreadFields(Table):
    """A topology spread constraint."""

    required = ("maxSkew", "topologyKey", "whenUnsatisfiable")
    skew = Field("maxSkew", Integer(1), "By how many pods domains may differ.")
    topology = Field("topologyKey", String(LABEL_KEY), "A node label, whose values are the domains.")
    unsatisfiable = Field("whenUnsatisfiable", Choice(_Unsatisfiable), "Whether the constraint must hold.")
    selector = Field("labelSelector", Nested(LabelSelectorFields), "The pods that count; none without it.")
    domains = Field("minDomains", Integer(1), "The least number of domains; 1 by default.")
    affinity = rejected("nodeAffinityPolicy", "Which nodes count.", _NODE_POLICY)
    taints = rejected("nodeTaintsPolicy", "Which nodes count.", _NODE_POLICY)
    match = rejected("matchLabelKeys", "Own labels to match.", _REVISION_LABELS, fix=_REVISION_FIX)


TOLERATIONS = ListOf(Nested(TolerationFields))
PORTS = ListOf(Nested(PortFields))
POD_PORTS = ListOf(Nested(PodPortFields))
VARIABLES = ListOf(Nested(VariableFields))
NODE_AFFINITY: FieldType[Section] = Nested(NodeAffinityFields)


def read_tolerations(sections: list[Section] | None) -> tuple[Toleration, ...]:
    """Read a list of tolerations."""
    return tuple(_toleration(section) for section in sections or ())


def _toleration(section: Section) -> Toleration:
    key = section.get(TolerationFields.key) or ""
    operator = section.get(TolerationFields.operator) or _TolerationOperator.EQUAL
    value = section.get(TolerationFields.value) or ""
    effect = section.get(TolerationFields.effect)
    if not key and operator is not _TolerationOperator.EXISTS and not section.given(TolerationFields.key):
        message = "a toleration without a key must have the operator Exists"
        section.cursor.error(Code.CONFLICT, message, fix="write operator: Exists")
    if value and operator is _TolerationOperator.EXISTS and (cursor := section.at("value")):
        message = "a toleration with the operator Exists must not have a value"
        cursor.error(Code.CONFLICT, message, fix="remove the value")
    section.get(TolerationFields.seconds)
    return Toleration(key=key, operator=operator.value, value=value, effect=effect.value if effect else "")


def write_toleration(toleration: Toleration) -> JsonObject:
    """Return a toleration as Kubernetes writes it; empty fields are left out."""
    fields: JsonObject = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
    }
    return {key: value for key, value in fields.items() if value}


def read_ports(sections: list[Section] | None) -> tuple[Port, ...]:
    """Read a list of ports; a port without a name is named after its number. Two ports with one name are an error."""
    ports: dict[str, Port] = {}
    for section in sections or ():
        number, name = section.get(PortFields.number), section.get(PortFields.name)
        if number is None:
            section.cursor.missing("containerPort", "containerPort is missing")
            continue
        name = name or f"port-{number}"
        if name in ports:
            message = f"two ports are named {name}"
            section.cursor.error(Code.DUPLICATE, message, found=name, fix="rename one of them")
        ports[name] = Port(name=name, number=number)
    return tuple(ports.values())


def read_variables(sections: list[Section] | None) -> tuple[dict[str, str], list[Cursor]]:
    """Read a list of variables.

    Returns:
        The values, the last one of each name, and the cursors of ``valueFrom``.
    """
    values: dict[str, str] = {}
    sources: list[Cursor] = []
    for section in sections or ():
        name, value = section.get(VariableFields.name), section.get(VariableFields.value)
        source = section.at("valueFrom")
        if name is None:
            section.cursor.missing("name", "the variable's name is missing")
        elif source is not None and section.get(VariableFields.source) is not None:
            if section.given(VariableFields.value):
                message = f"{name} has both value and valueFrom"
                source.error(Code.CONFLICT, message, fix="remove one of the two")
            sources.append(source)
        else:
            values[name] = value or ""
    return values, sources


def read_node_affinity(section: Section | None) -> JsonObject:
    """Check a NodeAffinity and return it as raw JSON."""
    if section is None:
        return {}
    if selector := section.get(NodeAffinityFields.hard):
        terms = selector.get(NodeSelectorFields.terms)
        if terms is None:
            selector.cursor.missing("nodeSelectorTerms", "nodeSelectorTerms is missing")
        elif (cursor := selector.at("nodeSelectorTerms")) and cursor.node.value == []:
            message = "nodeSelectorTerms is empty, which matches no node"
            cursor.error(Code.REQUIRED, message, fix="add a term, or remove the affinity")
        for term in terms or ():
            _check_node_term(term)
    for preference in section.get(NodeAffinityFields.preferred) or ():
        if preference.get(PreferredNodeTermFields.weight) is None:
            preference.cursor.missing("weight", "weight is missing", "add weight: 1 to 100")
        if (term := preference.get(PreferredNodeTermFields.preference)) is None:
            preference.cursor.missing("preference", "preference is missing")
        else:
            _check_node_term(term)
    return {key: cursor.node.plain() for key, cursor in section.cursor.items().items() if not cursor.is_null}


def _check_node_term(term: Section) -> None:
    expressions = term.get(NodeSelectorTermFields.expressions) or []
    for requirement in expressions + (term.get(NodeSelectorTermFields.node_fields) or []):
        on_labels = requirement.table is NodeRequirementFields
        key = NodeRequirementFields.key if on_labels else NodeFieldRequirementFields.key
        if requirement.get(key) is None:
            requirement.cursor.missing("key", "key is missing")
        operator = requirement.get(NodeRequirementFields.operator)
        values = requirement.get(NodeRequirementFields.values)
        if operator is None:
            requirement.cursor.missing("operator", "operator is missing")
            continue
        expected = {"In": "some", "NotIn": "some", "Gt": "one", "Lt": "one"}.get(operator.value, "no")
        count = len(values or ())
        if not {"some": count >= 1, "one": count == 1, "no": count == 0}[expected]:
            noun = "value" if expected == "one" else "values"
            message = f"the operator {operator.value} needs {expected} {noun}"
            requirement.cursor.error(Code.CONFLICT, message, found=f"{count} values")
        elif expected == "one" and values and not _NUMBER.fullmatch(values[0]):
            message = f"the operator {operator.value} compares whole numbers"
            allowed = "a whole number, in quotes"
            requirement.cursor.error(Code.WRONG_TYPE, message, found=shown(values[0]), allowed=allowed)


def check_pod_affinity(section: Section | None) -> None:
    """Report errors in a pod affinity or anti-affinity.

    The template keeps it as raw JSON, which placement reads. A hard rule that placement cannot read would keep the job waiting forever.
    """
    if section is None:
        return
    for term in section.get(PodAffinityFields.hard) or ():
        _check_pod_term(term)
    for preference in section.get(PodAffinityFields.preferred) or ():
        _require(preference, (PreferredPodTermFields.weight, PreferredPodTermFields.term))
        if term := preference.get(PreferredPodTermFields.term):
            _check_pod_term(term)


def check_topology_spread(sections: Iterable[Section] | None) -> None:
    """Report errors in topology spread constraints."""
    fields = TopologySpreadFields
    for section in sections or ():
        _require(section, (fields.skew, fields.topology, fields.unsatisfiable))
        section.get(fields.domains)
        _check_label_selector(section.get(fields.selector))


def _check_pod_term(term: Section) -> None:
    _require(term, (PodAffinityTermFields.topology,))
    term.get(PodAffinityTermFields.namespaces)
    term.get(PodAffinityTermFields.every_namespace)
    _check_label_selector(term.get(PodAffinityTermFields.selector))


def _check_label_selector(selector: Section | None) -> None:
    if selector is None:
        return
    selector.get(LabelSelectorFields.labels)
    fields = LabelRequirementFields
    for requirement in selector.get(LabelSelectorFields.expressions) or ():
        _require(requirement, (fields.key, fields.operator))
        operator, values = requirement.get(fields.operator), requirement.get(fields.values) or []
        with_values = operator in (_LabelOperator.IN, _LabelOperator.NOT_IN)
        if operator is not None and bool(values) is not with_values:
            message = f"the operator {operator} needs {'some' if with_values else 'no'} values"
            requirement.cursor.error(Code.CONFLICT, message, found=f"{len(values)} values")


def _require(section: Section, fields: Iterable[Field[Any]]) -> None:
    for field in fields:
        if not section.given(field):
            section.cursor.missing(field.key, f"{field.key} is missing")
        else:
            section.get(field)
