"""Queues -> their documents, and what such a document looks like."""

from __future__ import annotations

from collections.abc import Iterable

from muster_core.models import QueueElastic, QueueSpec
from muster_core.quantities import format_cpu, format_duration
from muster_formats.export.native import native_amounts, native_limits
from muster_formats.export.yaml_text import yaml_text
from muster_formats.names import Schema
from muster_formats.native.keys import API_VERSION
from muster_formats.queues.keys import KIND, QueueKeys
from muster_formats.table import Nested


def to_native_queue(spec: QueueSpec) -> Schema:
    """The document of a queue, as JSON; what is as unless said is left out."""
    usual = QueueSpec(name=spec.name)
    said: Schema = {}
    if spec.parent:
        said["parent"] = spec.parent
    if guaranteed := native_amounts(spec.guaranteed):
        said["guaranteed"] = guaranteed
    if limit := native_limits(spec.limit):
        said["limit"] = limit
    if spec.weight != usual.weight:
        said["weight"] = spec.weight
    if spec.policy is not usual.policy:
        said["policy"] = spec.policy.value
    if spec.starvation_after_s != usual.starvation_after_s:
        said["starvationAfter"] = format_duration(spec.starvation_after_s)
    if spec.preempts_within:
        said["preemptsWithin"] = True
    if not spec.reclaims:
        said["reclaims"] = False
    if spec.namespaces:
        said["namespaces"] = list(spec.namespaces)
    if spec.elastic is not None:
        said["elastic"] = _elastic(spec.elastic)
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": spec.name}, "spec": said}


def queues_text(specs: Iterable[QueueSpec]) -> str:
    """The documents of queues, as the parts of one YAML text."""
    return yaml_text(to_native_queue(spec) for spec in specs)


def queue_schema() -> Schema:
    """The JSON Schema of a queue's document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Muster queue",
        "description": "Where jobs wait, what they are sure of, and what they may never exceed.",
        **Nested(QueueKeys).schema(),
    }


def _elastic(elastic: QueueElastic) -> Schema:
    usual = QueueElastic()
    said: Schema = {}
    if elastic.policy:
        said["policy"] = elastic.policy
    if elastic.quiet_s != usual.quiet_s:
        said["quiet"] = format_duration(elastic.quiet_s)
    if elastic.cool_down_s:
        said["coolDown"] = format_duration(elastic.cool_down_s)
    if elastic.step:
        said["step"] = elastic.step
    if elastic.min_gain != usual.min_gain:
        said["minGain"] = format_cpu(elastic.min_gain)
    return said
