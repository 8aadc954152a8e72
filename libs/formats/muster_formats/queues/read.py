"""A text -> queues, and where each of their fields stands, so that what is wrong with the tree is shown at its line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from muster_core.models import Problem, QueueElastic, QueuePolicy, QueueSpec, Resources
from muster_core.models.problem_codes import Code
from muster_core.scheduling import validate_queues
from muster_formats.cursor import Cursor
from muster_formats.native.keys import API_VERSION
from muster_formats.native.roles import read_amounts
from muster_formats.pods.resource_lists import to_limits, to_resources
from muster_formats.problems import Problems, Spot, shown
from muster_formats.queues.keys import (
    KIND,
    QueueAmountKeys,
    QueueElasticKeys,
    QueueKeys,
    QueueMetadataKeys,
    QueueSpecKeys,
)
from muster_formats.table import Section
from muster_formats.yaml_source import read_source

_KEYS = {
    "starvation_after_s": "starvationAfter",
    "preempts_within": "preemptsWithin",
    "gpu_memory": "gpuMemory",
    "ephemeral_storage": "ephemeralStorage",
    "quiet_s": "quiet",
    "cool_down_s": "coolDown",
    "min_gain": "minGain",
}
"""The document's words for fields that have others in the model."""

_ELSEWHERE = frozenset({Code.UNKNOWN_PARENT.value})
"""Problems that a document by itself may have: what it refers to may be there already."""


class ParsedQueues(msgspec.Struct, frozen=True):
    """What a text means: its queues, none where there is an error; all problems, errors first, warnings among them."""

    queues: tuple[QueueSpec, ...]
    problems: tuple[Problem, ...]
    places: Mapping[str, Cursor]

    def located(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        """Problems of the tree (``<queue>.<field>``) at their places in the text, in its order; those that are about none come last."""
        return tuple(
            sorted((self._located(one) for one in problems), key=lambda one: (not one.line, one.line))
        )

    def _located(self, problem: Problem) -> Problem:
        queue, _, field = problem.path.partition(".")
        cursor = self.places.get(queue)
        if cursor is None:
            return problem
        spot = _spot(cursor, field)
        message = f"queue {queue}: {problem.message}" if len(self.places) > 1 else problem.message
        return msgspec.structs.replace(
            problem, path=spot.path, line=spot.line, column=spot.column, message=message
        )


def holds_queues(document: str | bytes) -> bool:
    """Whether a text is about queues: one of its documents is of ``kind: Queue``."""
    parts = read_source(document, problems := Problems()).parts
    return any(
        (kind := cursor.items().get("kind")) is not None and kind.node.text == KIND
        for part in parts
        for cursor in _documents(Cursor(part, "", problems))
    )


def parse_queues(document: str | bytes) -> ParsedQueues:
    """Read queues from YAML or JSON: documents of ``kind: Queue``, or lists of such. Never raises, whatever the text.

    What they refer to outside of the text is not looked at.
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
    if problems.refused:
        return msgspec.structs.replace(parsed, queues=())
    wrong = parsed.located(one for one in validate_queues(queues) if one.code not in _ELSEWHERE)
    return ParsedQueues(() if wrong else queues, (*wrong, *parsed.problems), parsed.places)


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
    said = {key: value.node.text for key, value in cursor.items().items()}
    found = " ".join(said.get(key, "") for key in ("apiVersion", "kind")).strip()
    if found != f"{API_VERSION} {KIND}":
        cursor.problems.add(
            Code.UNSUPPORTED_KIND,
            cursor.key_spot("kind" if said.get("apiVersion") == API_VERSION else "apiVersion"),
            f"{shown(found)} is no queue of {API_VERSION}",
            found=shown(found),
            allowed=f"apiVersion: {API_VERSION} with kind: {KIND}",
            fix="apply what is not a queue by itself",
        )
        return None
    document = Section(cursor, QueueKeys)
    header, spec = document.get(QueueKeys.metadata), document.get(QueueKeys.spec)
    name = header.get(QueueMetadataKeys.name) if header else None
    if name is None:
        (header or document).cursor.missing("name", "a queue has a name", "add metadata: {name: my-queue}")
        return None
    return QueueSpec(name=name) if spec is None else _spec(name, spec)


def _spec(name: str, spec: Section) -> QueueSpec:
    usual = QueueSpec(name=name)
    starvation, reclaims = spec.get(QueueSpecKeys.starvation_after), spec.get(QueueSpecKeys.reclaims)
    return QueueSpec(
        name=name,
        parent=spec.get(QueueSpecKeys.parent) or "",
        guaranteed=_guaranteed(spec.get(QueueSpecKeys.guaranteed)),
        limit=to_limits(read_amounts(spec.get(QueueSpecKeys.limit), QueueAmountKeys)),
        weight=spec.get(QueueSpecKeys.weight) or usual.weight,
        policy=spec.get(QueueSpecKeys.policy) or QueuePolicy.FIFO_SKIP,
        starvation_after_s=usual.starvation_after_s if starvation is None else starvation,
        preempts_within=spec.get(QueueSpecKeys.preempts_within) or False,
        reclaims=usual.reclaims if reclaims is None else reclaims,
        namespaces=tuple(spec.get(QueueSpecKeys.namespaces) or ()),
        elastic=_elastic(spec.get(QueueSpecKeys.elastic)),
    )


def _guaranteed(section: Section | None) -> Resources:
    """The amounts; one that is 0 has no effect and is warned about."""
    amounts = read_amounts(section, QueueAmountKeys)
    for key, cursor in section.cursor.items().items() if section else ():
        if cursor.node.text == "0":
            cursor.problems.warn(
                Code.NOT_ACTED_UPON, cursor.spot, f"{key}: 0 guarantees nothing", fix="leave it out"
            )
    return to_resources(amounts)


def _elastic(section: Section | None) -> QueueElastic | None:
    if section is None:
        return None
    usual = QueueElastic()
    policy, quiet = section.get(QueueElasticKeys.policy), section.get(QueueElasticKeys.quiet)
    gain = section.get(QueueElasticKeys.min_gain)
    return QueueElastic(
        policy=policy.value if policy else "",
        quiet_s=usual.quiet_s if quiet is None else quiet,
        cool_down_s=section.get(QueueElasticKeys.cool_down) or 0,
        step=section.get(QueueElasticKeys.step) or 0,
        min_gain=usual.min_gain if gain is None else gain,
    )


def _spot(document: Cursor, field: str) -> Spot:
    """Where a field of a queue stands, or the nearest that is there above it; a resource's name may have dots of its own."""
    steps = [_KEYS.get(step, step) for step in field.split(".", 1)]
    steps = ["metadata", "name"] if field == "name" else ["spec", *steps]
    spot, cursor = document.spot, document
    for step in steps:
        below = cursor.items().get(step)
        if below is None:
            break
        spot, cursor = cursor.key_spot(step), below
    return spot
