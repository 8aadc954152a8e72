"""Raw Kubernetes JSON of a typed job, judged by the very readers of documents, with paths into the typed job."""

from __future__ import annotations

from typing import cast

from muster_core.models import Template
from muster_formats.cursor import Cursor
from muster_formats.pods.scheduling_keys import NODE_AFFINITY, read_node_affinity
from muster_formats.pods.template import Main, read_pod_template
from muster_formats.problems import Problems
from muster_formats.raw_json import flaw_of, node_of
from muster_formats.yaml_builder import Json

Raw = dict[str, Json]
"""A JSON object."""


def check_affinity(path: str, affinity: dict[str, object], problems: Problems) -> None:
    """Say what is wrong with a NodeAffinity. What the rules refuse anyway is not looked into."""
    if affinity and not flaw_of(affinity):
        read_node_affinity(NODE_AFFINITY.read(_cursor(path, affinity, problems)))


def check_pod(path: str, pod: dict[str, object], main: Main, problems: Problems) -> None:
    """Say what is wrong with a PodTemplateSpec, and what of it has no effect."""
    if pod and not flaw_of(pod):
        read_pod_template(_cursor(path, pod, problems), main)


def template_of(pod: dict[str, object], main: Main) -> Template:
    """What a PodTemplateSpec says by itself; what is wrong with it is not told."""
    return read_pod_template(_cursor("", pod, Problems()), main)


def _cursor(path: str, raw: dict[str, object], problems: Problems) -> Cursor:
    return Cursor(node_of(cast("Raw", raw)), path, problems)
