"""The replica types of Kubeflow's kinds -> roles, and how many workers there may be.

A bound of the workers that is not given is ``Worker.replicas``, so that a job never shrinks or grows where nobody said that it may.
Without bounds ``schedulingPolicy.minAvailable`` lowers the workers' floor where the framework can do with fewer, since the operator would
start that many and add the others when there is room.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from muster_core.models import RestartPolicy, Role, Template
from muster_core.models.problem_codes import Code
from muster_formats.cursor import warn_idle
from muster_formats.kubeflow.keys import ReplicaKeys, SchedulingKeys
from muster_formats.kubeflow.run import RunReader
from muster_formats.places import Place, Places
from muster_formats.pods.template import Main, read_pod_template
from muster_formats.problems import shown
from muster_formats.table import Field, Section

WORKER = "worker"
"""The role that grows and shrinks."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How few and how many workers there may be, where the document says so: in ``section``, under these keys.

    ``required``: whether bounds of a job without workers are an error, or without effect.
    """

    section: Section
    low_key: str
    high_key: str
    low: int | None
    high: int | None
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class Gang:
    """What the roles of one document are read by. See ``KubeflowKind``."""

    kind: str
    types: tuple[str, ...]
    single: frozenset[str]
    restart: RestartPolicy
    restarts: Mapping[str, RestartPolicy]
    main: Main
    bounds: Bounds | None
    min_available: int | None
    spares: bool


def read_roles(
    gang: Gang, spec: Section, field: Field[dict[str, Section]], run: RunReader, places: Places
) -> tuple[Role, ...]:
    """Read the replica types; their places are noted."""
    places.note(Place("roles"), spec.cursor.key_spot(field.key))
    sections = spec.get(field)
    if sections is None:
        fix = f"add {field.key}: {{{gang.types[0]}: ...}}"
        spec.cursor.missing(field.key, f"a {gang.kind} has {field.key}", fix)
        return ()
    roles = [
        _role(name, word, section, gang, places)
        for name, (word, section) in _types(gang, sections, spec, field)
    ]
    bounds = gang.bounds
    if bounds and all(role.name != WORKER for role in roles):
        _bounds_nobody(bounds)
    others = sum(role.replicas for role in roles if role.name != WORKER)
    return tuple(_bounded(role, others, gang, run, places) if role.name == WORKER else role for role in roles)


def _types(
    gang: Gang, sections: Mapping[str, Section], spec: Section, field: Field[dict[str, Section]]
) -> list[tuple[str, tuple[str, Section]]]:
    """The sections by role, with the type's proper spelling. Types are known in any letter case."""
    words = {word.lower(): word for word in gang.types}
    parent = spec.at(field.key) or spec.cursor
    first: dict[str, str] = {}
    found: list[tuple[str, tuple[str, Section]]] = []
    for key, section in sections.items():
        name = key.lower()
        if name not in words:
            parent.unknown(key, gang.types)
        elif name in first:
            told = f"{shown(key)} and {first[name]} are the same replica type"
            fix = "remove one of the two"
            parent.problems.add(Code.DUPLICATE_KEY, parent.key_spot(key), told, found=shown(key), fix=fix)
        else:
            first[name] = key
            found.append((name, (words[name], section)))
    return found


def _role(name: str, word: str, section: Section, gang: Gang, places: Places) -> Role:
    for place in ("replicas", "min", "max"):
        places.note(Place(place, name), section.cursor.key_spot("replicas"), f"{word}.replicas")
    for place in ("role", "template", "resources"):
        places.note(Place(place, name), section.cursor.spot)
    replicas = section.get(ReplicaKeys.replicas)
    if name in gang.single and replicas not in (None, 1) and (cursor := section.at("replicas")):
        told = f"a {gang.kind} has exactly one {word}"
        cursor.error(
            Code.OUT_OF_RANGE,
            told,
            allowed="1",
            fix="set it to 1" if replicas else f"set it to 1 or remove {word}",
        )
    template = section.get(ReplicaKeys.template)
    if template is None:
        container = f" named {gang.main.container}" if gang.main.container else ""
        section.cursor.missing(
            "template", f"{word} has a template", f"add a template with a container{container}"
        )
    low = gang.bounds.low if gang.bounds and name == WORKER else None
    count = max(low or 1, 1) if replicas is None else replicas
    return Role(
        name=name,
        replicas=count,
        min=count,
        max=count,
        template=Template() if template is None else read_pod_template(template, gang.main),
        restart_policy=section.get(ReplicaKeys.restart_policy) or gang.restarts.get(name, gang.restart),
    )


def _bounded(worker: Role, others: int, gang: Gang, run: RunReader, places: Places) -> Role:
    """The workers within their bounds, or with the floor that the scheduling policy leaves them."""
    bounds = gang.bounds
    if bounds is None:
        return _floored(worker, others, gang, run)
    for place, key, bound in (("min", bounds.low_key, bounds.low), ("max", bounds.high_key, bounds.high)):
        if bound is not None:
            places.note(Place(place, WORKER), bounds.section.cursor.key_spot(key), key)
    return msgspec.structs.replace(
        worker,
        min=worker.replicas if bounds.low is None else bounds.low,
        max=worker.replicas if bounds.high is None else bounds.high,
    )


def _floored(worker: Role, others: int, gang: Gang, run: RunReader) -> Role:
    floor = gang.min_available
    if floor is None or worker.replicas == 0:
        return worker
    if gang.spares:
        return msgspec.structs.replace(worker, min=min(max(floor - others, 1), worker.replicas))
    if floor < worker.replicas + others and run.scheduling:
        key = SchedulingKeys.min_available.key
        if cursor := run.scheduling.at(key):
            warn_idle(cursor, key, f"the members of a {gang.kind} without bounds wait for each other")
    return worker


def _bounds_nobody(bounds: Bounds) -> None:
    words = "it bounds the workers, and the job has none"
    if bounds.required:
        at = bounds.section.cursor
        key = at.path.rsplit(".", 1)[-1]
        at.error(Code.REQUIRED, f"{key} needs Worker: {words}", found="", fix=f"add Worker, or remove {key}")
        return
    for key in (bounds.low_key, bounds.high_key):
        if cursor := bounds.section.at(key):
            warn_idle(cursor, key, words)
