"""``elasticPolicy`` and ``nProcPerNode`` of Polyaxon 1.x as bounds and options.

The policy is Kubeflow's. Polyaxon's published schema misspells ``rdzv`` as ``rdvz``; such keys are accepted with a
warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from muster_core.models import Rendezvous
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.kubeflow import read_rendezvous
from muster_formats.locations import FieldLocations, JobField
from muster_formats.nodes import YamlEntry, YamlNode
from muster_formats.polyaxon_v1.run_keys import BoundsKeys, ElasticKeys, PaddleJobKeys, PytorchJobKeys
from muster_formats.problems import RelocatedProblems, shown
from muster_formats.schema import Nested, Section

_MISSPELT, _SPELT = "rdvz", "rdzv"


@dataclass(frozen=True)
class Bounds:
    """The bounds of the workers; ``None`` means their requested number."""

    low: int | None
    high: int | None


@dataclass(frozen=True)
class Elastic:
    """The elastic settings of a run: ``bounds`` if it has a policy, and options of the framework."""

    bounds: Bounds | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


def read_elastic(section: Section, places: FieldLocations) -> Elastic:
    """Read the elastic settings of a run, if its kind has any."""
    if section.table is PaddleJobKeys:
        policy = section.get(PaddleJobKeys.elastic)
        if policy is None:
            return Elastic()
        rendezvous = Rendezvous(max_restarts=policy.get(BoundsKeys.max_restarts))
        return Elastic(_bounds(policy, places), {"rendezvous": rendezvous})
    if section.table is not PytorchJobKeys:
        return Elastic()
    at = section.at(PytorchJobKeys.elastic.key)
    policy = Nested(ElasticKeys).read(_respelt(at)) if at else None
    options = _processes(section, policy, places)
    if policy is None:
        return Elastic(None, options)
    return Elastic(_bounds(policy, places), {**options, "rendezvous": read_rendezvous(policy, places)})


def _bounds(policy: Section, places: FieldLocations) -> Bounds:
    low, high = policy.get(BoundsKeys.min_replicas), policy.get(BoundsKeys.max_replicas)
    for bound, said, other in (("min", "minReplicas", "maxReplicas"), ("max", "maxReplicas", "minReplicas")):
        key = said if policy.at(said) else other
        if policy.at(key):
            places.record(JobField(bound, "worker"), policy.cursor.key_location(key), key)
    return Bounds(high if low is None else low, low if high is None else high)


def _processes(section: Section, policy: Section | None, places: FieldLocations) -> dict[str, str]:
    own = section.get(PytorchJobKeys.processes)
    there = policy.get(ElasticKeys.processes) if policy else None
    if own is not None and there is not None and own != there and policy:
        policy.cursor.problems.add(
            Code.CONFLICT,
            policy.cursor.key_location(ElasticKeys.processes.key),
            f"nProcPerNode is {shown(there)} here and {shown(own)} beside elasticPolicy",
            fix="remove one of the two",
        )
    at = section if own is not None or policy is None else policy
    places.record(
        JobField("processes"), at.cursor.key_location(ElasticKeys.processes.key), ElasticKeys.processes.key
    )
    said = there if own is None else own
    return {} if said is None else {"processes": said}


def _respelt(policy: Cursor) -> Cursor:
    """Return the policy with every key in its correct spelling; problems name the key as written."""
    value = policy.node.value
    if not isinstance(value, dict) or not any(key.startswith(_MISSPELT) for key in value):
        return policy
    problems = RelocatedProblems(policy.problems)
    entries: dict[str, YamlEntry] = {key: entry for key, entry in value.items() if not _means(key)}
    for key, entry in value.items():
        right = _means(key)
        if not right or entry.node.value is None:
            continue
        spot = policy.key_location(key)
        if right in entries:
            words = f"{key} and {right} are the same"
            policy.problems.add(Code.CONFLICT, spot, words, fix="remove one of the two")
            continue
        policy.problems.warn(
            Code.MISSPELT, spot, f"{key} is read as {right}", found=key, fix=f"write {right}"
        )
        problems.record(policy.below(right), policy.below(key))
        entries[right] = entry
    return Cursor(YamlNode(entries, policy.node.line, policy.node.column), policy.path, problems)


def _means(key: str) -> str:
    """Return the correct spelling of a misspelt key, or an empty text."""
    right = _SPELT + key.removeprefix(_MISSPELT)
    return right if key.startswith(_MISSPELT) and right in ElasticKeys.fields() else ""
