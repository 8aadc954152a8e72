"""Queues as documents of ``kind: Queue``: reading with source locations, writing, and the JSON Schema."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from muster_core.models import Problem, QueueElastic, QueuePolicy, QueueSpec, Resources
from muster_core.models.problem_codes import Code
from muster_core.quantities import format_cpu, format_duration, parse_cpu
from muster_core.scheduling import MAX_WEIGHT, validate_queues
from muster_formats.cursor import Cursor
from muster_formats.field_types import AnyValue, Boolean, Choice, Duration, Integer, ListOf, Quantity, String
from muster_formats.names import DNS_1123
from muster_formats.native import (
    API_VERSION,
    AmountFields,
    ApiVersion,
    ElasticPolicyName,
    native_amounts,
    native_limits,
    read_amounts,
)
from muster_formats.nodes import JsonObject
from muster_formats.pods import to_limits, to_resources
from muster_formats.problems import Problems, SourceLocation, shown
from muster_formats.rules import MAX_REPLICAS
from muster_formats.schema import Field, Nested, Section, Table, ignored
from muster_formats.source import read_source, yaml_text

KIND = "Queue"

_NO_LABELS = "queues are selected by name"
_FIELD_NAMES = {
    "starvation_after_s": "starvationAfter",
    "preempts_within": "preemptsWithin",
    "gpu_memory": "gpuMemory",
    "ephemeral_storage": "ephemeralStorage",
    "idle_period_s": "idlePeriod",
    "cool_down_s": "coolDown",
    "min_gain": "minGain",
}
"""Fields of the model that have another name in the document."""

_EXTERNAL = frozenset({Code.UNKNOWN_PARENT.value})
"""Problems that a document on its own may have: the parent may exist already."""


class _QueueKind(enum.StrEnum):
    QUEUE = KIND


class QueueAmountFields(AmountFields):
    """Amounts that many replicas share: fractions of many GPUs add up to any number."""

    gpu = Field("gpu", Quantity(parse_cpu, "8 or 2500m"), "GPUs; 500m is half of one.")


class QueueMetadataFields(Table):
    """``metadata`` of a queue."""

    required = ("name",)
    name = Field("name", String(DNS_1123), "The queue's name, a DNS label.")
    labels = ignored("labels", "Labels.", _NO_LABELS)
    annotations = ignored("annotations", "Annotations.", _NO_LABELS)


class QueueElasticFields(Table):
    """How the queue's elastic jobs grow and shrink."""

    policy = Field(
        "policy", Choice(ElasticPolicyName), "Policy of jobs that name none; by default the platform's."
    )
    idle_period = Field(
        "idlePeriod",
        Duration(),
        "Idle period without scheduling or scaling before jobs grow; 60s by default.",
    )
    cool_down = Field("coolDown", Duration(), "Shortest time between two resizes of a job.")
    step = Field("step", Integer(0, MAX_REPLICAS), "Most replicas that one resize changes; 0 is no bound.")
    min_gain = Field(
        "minGain",
        Quantity(parse_cpu, "0.25 or 250m"),
        "Least speed-up, in workers, that growth must bring; 0.25 by default.",
    )


class QueueSpecFields(Table):
    """``spec`` of a queue."""

    parent = Field("parent", String(), "The parent queue; by default the queue is at the top.")
    guaranteed = Field("guaranteed", Nested(QueueAmountFields), "Resources that its jobs can always have.")
    limit = Field("limit", Nested(QueueAmountFields), "Most that its jobs and those of child queues use.")
    weight = Field("weight", Integer(1, MAX_WEIGHT), "Its share among its siblings; 1 by default.")
    policy = Field("policy", Choice(QueuePolicy), "Order of its jobs; fifo_skip by default.")
    starvation_after = Field(
        "starvationAfter",
        Duration(),
        "Starvation threshold: wait before resources are reserved for a job; 30s by default.",
    )
    preempts_within = Field(
        "preemptsWithin",
        Boolean(),
        "Whether its jobs may preempt jobs of lower priority in it; false by default.",
    )
    reclaims = Field("reclaims", Boolean(), "Whether it reclaims its guarantee; true by default.")
    namespaces = Field("namespaces", ListOf(String(DNS_1123)), "Namespaces whose jobs use it by default.")
    elastic = Field("elastic", Nested(QueueElasticFields), "How its elastic jobs grow and shrink.")


class QueueFields(Table):
    """A document of a queue."""

    required = ("apiVersion", "kind", "metadata")
    api_version = Field("apiVersion", Choice(ApiVersion), "Version of the format.")
    kind = Field("kind", Choice(_QueueKind), "Kind of the document.")
    metadata = Field("metadata", Nested(QueueMetadataFields), "Name of the queue.")
    spec = Field("spec", Nested(QueueSpecFields), "Specification of the queue.")
    status = Field("status", AnyValue(), "Status that Muster adds when it shows a queue; it is not read.")


class ParsedQueues(msgspec.Struct, frozen=True):
    """The result of reading queues: none if there is an error; problems are errors, then warnings.

    ``cursors`` are the queues' documents by name.
    """

    queues: tuple[QueueSpec, ...]
    problems: tuple[Problem, ...]
    cursors: Mapping[str, Cursor]

    def located(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        """Add source locations to problems of the queue tree (paths are ``<queue>.<field>``), in the order of the text.

        Problems of queues that are not in the text are last.
        """
        return tuple(
            sorted((self._located(one) for one in problems), key=lambda one: (not one.line, one.line))
        )

    def _located(self, problem: Problem) -> Problem:
        queue, _, field = problem.path.partition(".")
        cursor = self.cursors.get(queue)
        if cursor is None:
            return problem
        location = _location(cursor, field)
        message = f"queue {queue}: {problem.message}" if len(self.cursors) > 1 else problem.message
        return msgspec.structs.replace(
            problem, path=location.path, line=location.line, column=location.column, message=message
        )


def holds_queues(document: str | bytes) -> bool:
    """Whether a text has a document of ``kind: Queue``."""
    parts = read_source(document, problems := Problems()).parts
    return any(
        (kind := cursor.items().get("kind")) is not None and kind.node.text == KIND
        for part in parts
        for cursor in _documents(Cursor(part, "", problems))
    )


def parse_queues(document: str | bytes) -> ParsedQueues:
    """Read queues from YAML or JSON: documents of ``kind: Queue``, or lists of them.

    References to queues outside of the text are not checked. Never raises, whatever the text.
    """
    problems = Problems()
    parts = read_source(document, problems).parts
    read = [
        (cursor, spec)
        for part in parts
        for cursor in _documents(Cursor(part, "", problems))
        if (spec := _read(cursor)) is not None
    ]
    queues = tuple(spec for _, spec in read)
    parsed = ParsedQueues(queues, problems.ordered(), {spec.name: cursor for cursor, spec in read})
    if problems.has_errors:
        return msgspec.structs.replace(parsed, queues=())
    errors = parsed.located(one for one in validate_queues(queues) if one.code not in _EXTERNAL)
    return ParsedQueues(() if errors else queues, (*errors, *parsed.problems), parsed.cursors)


def _documents(cursor: Cursor) -> Iterator[Cursor]:
    """The documents of a part: itself, or the elements of a list."""
    if isinstance(cursor.node.value, list):
        yield from cursor.elements()
    else:
        yield cursor


def _read(cursor: Cursor) -> QueueSpec | None:
    if not isinstance(cursor.node.value, dict):
        cursor.wrong_type("a mapping", f"write apiVersion: {API_VERSION} and kind: {KIND}")
        return None
    given = {key: value.node.text for key, value in cursor.items().items()}
    found = " ".join(given.get(key, "") for key in ("apiVersion", "kind")).strip()
    if found != f"{API_VERSION} {KIND}":
        cursor.problems.add(
            Code.UNSUPPORTED_KIND,
            cursor.key_location("kind" if given.get("apiVersion") == API_VERSION else "apiVersion"),
            f"{shown(found)} is not a queue of {API_VERSION}",
            found=shown(found),
            allowed=f"apiVersion: {API_VERSION} with kind: {KIND}",
            fix="apply documents of other kinds separately",
        )
        return None
    document = Section(cursor, QueueFields)
    header, spec = document.get(QueueFields.metadata), document.get(QueueFields.spec)
    name = header.get(QueueMetadataFields.name) if header else None
    if name is None:
        fix = "add metadata: {name: my-queue}"
        (header or document).cursor.missing("name", "the queue's name is missing", fix)
        return None
    return QueueSpec(name=name) if spec is None else _read_spec(name, spec)


def _read_spec(name: str, spec: Section) -> QueueSpec:
    default = QueueSpec(name=name)
    starvation, reclaims = spec.get(QueueSpecFields.starvation_after), spec.get(QueueSpecFields.reclaims)
    return QueueSpec(
        name=name,
        parent=spec.get(QueueSpecFields.parent) or "",
        guaranteed=_read_guaranteed(spec.get(QueueSpecFields.guaranteed)),
        limit=to_limits(read_amounts(spec.get(QueueSpecFields.limit), QueueAmountFields)),
        weight=spec.get(QueueSpecFields.weight) or default.weight,
        policy=spec.get(QueueSpecFields.policy) or QueuePolicy.FIFO_SKIP,
        starvation_after_s=default.starvation_after_s if starvation is None else starvation,
        preempts_within=spec.get(QueueSpecFields.preempts_within) or False,
        reclaims=default.reclaims if reclaims is None else reclaims,
        namespaces=tuple(spec.get(QueueSpecFields.namespaces) or ()),
        elastic=_read_elastic(spec.get(QueueSpecFields.elastic)),
    )


def _read_guaranteed(section: Section | None) -> Resources:
    """Read guaranteed amounts, and warn about zeros."""
    amounts = read_amounts(section, QueueAmountFields)
    for key, cursor in section.cursor.items().items() if section else ():
        if cursor.node.text == "0":
            cursor.warn_ignored(f"{key}: 0", "it guarantees nothing", fix="remove it")
    return to_resources(amounts)


def _read_elastic(section: Section | None) -> QueueElastic | None:
    if section is None:
        return None
    default = QueueElastic()
    policy, idle_period = section.get(QueueElasticFields.policy), section.get(QueueElasticFields.idle_period)
    gain = section.get(QueueElasticFields.min_gain)
    return QueueElastic(
        policy=policy.value if policy else "",
        idle_period_s=default.idle_period_s if idle_period is None else idle_period,
        cool_down_s=section.get(QueueElasticFields.cool_down) or 0,
        step=section.get(QueueElasticFields.step) or 0,
        min_gain=default.min_gain if gain is None else gain,
    )


def _location(document: Cursor, field: str) -> SourceLocation:
    """The location of a queue's field, else of the nearest field above it; a resource's name may contain dots."""
    steps = [_FIELD_NAMES.get(step, step) for step in field.split(".", 1)]
    steps = ["metadata", "name"] if field == "name" else ["spec", *steps]
    location, cursor = document.location, document
    for step in steps:
        below = cursor.items().get(step)
        if below is None:
            break
        location, cursor = cursor.key_location(step), below
    return location


def to_native_queue(spec: QueueSpec) -> JsonObject:
    """Return the document of a queue as JSON; default values are left out."""
    default = QueueSpec(name=spec.name)
    fields: JsonObject = {}
    if spec.parent:
        fields["parent"] = spec.parent
    if guaranteed := native_amounts(spec.guaranteed):
        fields["guaranteed"] = guaranteed
    if limit := native_limits(spec.limit):
        fields["limit"] = limit
    if spec.weight != default.weight:
        fields["weight"] = spec.weight
    if spec.policy is not default.policy:
        fields["policy"] = spec.policy.value
    if spec.starvation_after_s != default.starvation_after_s:
        fields["starvationAfter"] = format_duration(spec.starvation_after_s)
    if spec.preempts_within:
        fields["preemptsWithin"] = True
    if not spec.reclaims:
        fields["reclaims"] = False
    if spec.namespaces:
        fields["namespaces"] = list(spec.namespaces)
    if spec.elastic is not None:
        fields["elastic"] = _elastic_document(spec.elastic)
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": spec.name}, "spec": fields}


def queues_text(specs: Iterable[QueueSpec]) -> str:
    """Return the documents of queues as the parts of one YAML text."""
    return yaml_text(to_native_queue(spec) for spec in specs)


def queue_schema() -> JsonObject:
    """Return the JSON Schema of a queue's document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Muster queue",
        "description": "A queue: the guaranteed resources, limit and order of its jobs.",
        **Nested(QueueFields).schema(),
    }


def _elastic_document(elastic: QueueElastic) -> JsonObject:
    default = QueueElastic()
    fields: JsonObject = {}
    if elastic.policy:
        fields["policy"] = elastic.policy
    if elastic.idle_period_s != default.idle_period_s:
        fields["idlePeriod"] = format_duration(elastic.idle_period_s)
    if elastic.cool_down_s:
        fields["coolDown"] = format_duration(elastic.cool_down_s)
    if elastic.step:
        fields["step"] = elastic.step
    if elastic.min_gain != default.min_gain:
        fields["minGain"] = format_cpu(elastic.min_gain)
    return fields
