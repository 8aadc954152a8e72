"""The Kubernetes words for where a replica may stand and what it is given: shared by every format that uses them."""

from __future__ import annotations

import enum
import re

from muster_core.models import Port, Toleration
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.kinds import Choice, Ignored, Kind, ListOf, Raw, Text, Whole
from muster_formats.names import DNS_1123, LABEL_KEY, LABEL_VALUE, VARIABLE
from muster_formats.problems import shown
from muster_formats.table import Field, Nested, Section, Table
from muster_formats.yaml_builder import Json

_WHOLE_TEMPLATE = "only a whole template can say it"
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


class _TolerationOperator(enum.StrEnum):
    EQUAL = "Equal"
    EXISTS = "Exists"


class _Effect(enum.StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class _SelectorOperator(enum.StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


class TolerationKeys(Table):
    """A toleration."""

    key = Field("key", Text(LABEL_KEY), "The taint's key; none with operator Exists tolerates every taint.")
    operator = Field("operator", Choice(_TolerationOperator), "Equal unless said.")
    value = Field("value", Text(LABEL_VALUE), "The taint's value, for Equal.")
    effect = Field("effect", Choice(_Effect), "Every effect unless said.")
    seconds = Field(
        "tolerationSeconds", Whole(), "How long it stands it.", idle="Muster evicts nobody for a taint"
    )


class PortKeys(Table):
    """A port."""

    required = ("containerPort",)
    name = Field("name", Text(DNS_1123), "By which it is found.")
    number = Field("containerPort", Whole(1, 65535), "The port that the program listens on.")
    protocol = Field("protocol", Ignored(), "TCP, UDP or SCTP.", idle="the program decides what it speaks")
    host_port = Field("hostPort", Ignored(), "A port of the node.", idle=_WHOLE_TEMPLATE)
    host_ip = Field("hostIP", Ignored(), "An address of the node.", idle=_WHOLE_TEMPLATE)


class PodPortKeys(PortKeys):
    """A port of a container, which Kubernetes sees as it is."""

    protocol = Field("protocol", Ignored(), "TCP, UDP or SCTP.", kubernetes=True)
    host_port = Field("hostPort", Ignored(), "A port of the node.", kubernetes=True)
    host_ip = Field("hostIP", Ignored(), "An address of the node.", kubernetes=True)


class VariableKeys(Table):
    """An environment variable."""

    required = ("name",)
    name = Field("name", Text(VARIABLE), "The variable.")
    value = Field("value", Text(), "Its value, a text.")
    source = Field("valueFrom", Raw(), "From a secret, a config map or the pod.", kubernetes=True)


class RequirementKeys(Table):
    """One match expression."""

    required = ("key", "operator")
    key = Field("key", Text(LABEL_KEY), "A node label.")
    operator = Field("operator", Choice(_SelectorOperator), "How it is compared.")
    values = Field("values", ListOf(Text()), "With what.")


class FieldRequirementKeys(RequirementKeys):
    """One match on a field of the node, of which Kubernetes knows ``metadata.name``."""

    key = Field("key", Text(), "metadata.name.")


class TermKeys(Table):
    """Expressions that must all hold."""

    expressions = Field("matchExpressions", ListOf(Nested(RequirementKeys)), "On labels.")
    fields_ = Field("matchFields", ListOf(Nested(FieldRequirementKeys)), "On fields.")


class SelectorKeys(Table):
    """Terms of which one must hold."""

    required = ("nodeSelectorTerms",)
    terms = Field("nodeSelectorTerms", ListOf(Nested(TermKeys)), "One of them must hold.")


class PreferenceKeys(Table):
    """A preferred term."""

    required = ("weight", "preference")
    weight = Field("weight", Whole(1, 100), "How much it counts.")
    preference = Field("preference", Nested(TermKeys), "What is preferred.")


class NodeAffinityKeys(Table):
    """A Kubernetes NodeAffinity."""

    must = Field("requiredDuringSchedulingIgnoredDuringExecution", Nested(SelectorKeys), "Must hold.")
    prefer = Field(
        "preferredDuringSchedulingIgnoredDuringExecution", ListOf(Nested(PreferenceKeys)), "Preferred."
    )


TOLERATIONS = ListOf(Nested(TolerationKeys))
"""A list of tolerations."""

PORTS = ListOf(Nested(PortKeys))
"""A list of ports."""

POD_PORTS = ListOf(Nested(PodPortKeys))
"""A container's list of ports."""

VARIABLES = ListOf(Nested(VariableKeys))
"""A list of environment variables."""

NODE_AFFINITY: Kind[Section] = Nested(NodeAffinityKeys)
"""A node affinity."""


def read_tolerations(sections: list[Section] | None) -> tuple[Toleration, ...]:
    """Tolerations of a list."""
    return tuple(_toleration(section) for section in sections or ())


def _toleration(section: Section) -> Toleration:
    key = section.get(TolerationKeys.key) or ""
    operator = section.get(TolerationKeys.operator) or _TolerationOperator.EQUAL
    value = section.get(TolerationKeys.value) or ""
    effect = section.get(TolerationKeys.effect)
    if not key and operator is not _TolerationOperator.EXISTS and not section.given(TolerationKeys.key):
        section.cursor.error(
            Code.CONFLICT, "a toleration without a key has the operator Exists", fix="write operator: Exists"
        )
    if value and operator is _TolerationOperator.EXISTS and (cursor := section.at("value")):
        cursor.error(
            Code.CONFLICT, "a toleration with the operator Exists has no value", fix="remove the value"
        )
    section.get(TolerationKeys.seconds)
    return Toleration(key=key, operator=operator.value, value=value, effect=effect.value if effect else "")


def read_ports(sections: list[Section] | None) -> tuple[Port, ...]:
    """Ports of a list; one without a name is named after its number. A name twice is a problem."""
    ports: dict[str, Port] = {}
    for section in sections or ():
        number, name = section.get(PortKeys.number), section.get(PortKeys.name)
        if number is None:
            section.cursor.missing("containerPort", "a port has a containerPort")
            continue
        name = name or f"port-{number}"
        if name in ports:
            section.cursor.error(
                Code.DUPLICATE, f"two ports are named {name}", found=name, fix="name one of them differently"
            )
        ports[name] = Port(name=name, number=number)
    return tuple(ports.values())


def read_variables(sections: list[Section] | None) -> tuple[dict[str, str], list[Cursor]]:
    """Variables of a list, the last one of a name; and where values come from elsewhere (``valueFrom``)."""
    values: dict[str, str] = {}
    elsewhere: list[Cursor] = []
    for section in sections or ():
        name, value = section.get(VariableKeys.name), section.get(VariableKeys.value)
        source = section.at("valueFrom")
        if name is None:
            section.cursor.missing("name", "a variable has a name")
        elif source is not None and section.get(VariableKeys.source) is not None:
            if section.given(VariableKeys.value):
                source.error(
                    Code.CONFLICT, f"{name} has both value and valueFrom", fix="remove one of the two"
                )
            elsewhere.append(source)
        else:
            values[name] = value or ""
    return values, elsewhere


def read_node_affinity(section: Section | None) -> dict[str, Json]:
    """A NodeAffinity as it stands, after a look at its shape."""
    if section is None:
        return {}
    if selector := section.get(NodeAffinityKeys.must):
        terms = selector.get(SelectorKeys.terms)
        if terms is None:
            selector.cursor.missing("nodeSelectorTerms", "a node selector has nodeSelectorTerms")
        elif (cursor := selector.at("nodeSelectorTerms")) and cursor.node.value == []:
            words = "a node selector has at least one term: without any, no node is admitted"
            cursor.error(Code.REQUIRED, words, fix="add a term, or remove the affinity")
        for term in terms or ():
            _term(term)
    for preference in section.get(NodeAffinityKeys.prefer) or ():
        if preference.get(PreferenceKeys.weight) is None:
            preference.cursor.missing("weight", "a preference has a weight from 1 to 100")
        if (term := preference.get(PreferenceKeys.preference)) is None:
            preference.cursor.missing("preference", "a preference has a preference")
        else:
            _term(term)
    return {key: cursor.node.plain() for key, cursor in section.cursor.items().items() if not cursor.absent}


def _term(term: Section) -> None:
    both = (term.get(TermKeys.expressions) or []) + (term.get(TermKeys.fields_) or [])
    for requirement in both:
        if (
            requirement.get(
                RequirementKeys.key if requirement.table is RequirementKeys else FieldRequirementKeys.key
            )
            is None
        ):
            requirement.cursor.missing("key", "an expression has a key")
        operator = requirement.get(RequirementKeys.operator)
        values = requirement.get(RequirementKeys.values)
        if operator is None:
            requirement.cursor.missing("operator", "an expression has an operator")
            continue
        due = {"In": "some", "NotIn": "some", "Gt": "one", "Lt": "one"}.get(operator.value, "no")
        count = len(values or ())
        if not {"some": count >= 1, "one": count == 1, "no": count == 0}[due]:
            requirement.cursor.error(
                Code.CONFLICT, f"the operator {operator.value} takes {due} values", found=f"{count} values"
            )
        elif due == "one" and values and not _NUMBER.fullmatch(values[0]):
            requirement.cursor.error(
                Code.WRONG_TYPE,
                f"the operator {operator.value} compares whole numbers",
                found=shown(values[0]),
                allowed="a whole number, in quotes",
            )
