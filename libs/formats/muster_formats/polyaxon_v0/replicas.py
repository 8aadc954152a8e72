"""Read the replicas of a Polyaxon 0.x experiment in its current and older layouts.

``replicas`` is under ``environment`` or beside it; older documents name the framework instead
(``environment.tensorflow``), and some have the lists of workers and parameter servers outside that section.
"""

from __future__ import annotations

from dataclasses import dataclass

from muster_core.models import Framework
from muster_core.models.problem_codes import Code
from muster_formats.polyaxon_v0.env import Env, read_env, read_resources_only
from muster_formats.polyaxon_v0.env_keys import (
    ExperimentEnvKeys,
    ReplicaEnvKeys,
    ReplicaResourceKeys,
    ReplicasKeys,
    SideKeys,
)
from muster_formats.polyaxon_v0.keys import ExperimentKeys
from muster_formats.problems import SourceLocation
from muster_formats.schema import Field, Section

FRAMEWORKS = {
    "tensorflow": Framework.TENSORFLOW,
    "mxnet": Framework.MXNET,
    "horovod": Framework.HOROVOD,
    "pytorch": Framework.PYTORCH,
}
"""The frameworks of experiments with replicas."""

_OLDER = {
    "tensorflow": ExperimentEnvKeys.tensorflow,
    "mxnet": ExperimentEnvKeys.mxnet,
    "horovod": ExperimentEnvKeys.horovod,
    "pytorch": ExperimentEnvKeys.pytorch,
}


@dataclass(frozen=True, kw_only=True)
class Override:
    """One replica that differs: its settings and source location."""

    env: Env
    location: SourceLocation
    index_spot: SourceLocation


@dataclass(frozen=True, kw_only=True)
class Side:
    """The workers, or the parameter servers."""

    count: int
    count_spot: SourceLocation
    location: SourceLocation
    default: Env
    overrides: dict[int, Override]


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """The replicas besides the master, their ``framework``, and where it is given."""

    framework: str
    location: SourceLocation
    worker: Side
    ps: Side


@dataclass(frozen=True, kw_only=True)
class _SideFields:
    count: Field[int]
    default: Field[Section]
    default_misspelt: Field[Section]
    each: Field[list[Section]]
    resources: Field[list[Section]]


_WORKER = _SideFields(
    count=ReplicasKeys.n_workers,
    default=SideKeys.default_worker,
    default_misspelt=SideKeys.worker_default,
    each=SideKeys.worker,
    resources=SideKeys.worker_resources,
)
_PS = _SideFields(
    count=ReplicasKeys.n_ps,
    default=SideKeys.default_ps,
    default_misspelt=SideKeys.ps_default,
    each=SideKeys.ps,
    resources=SideKeys.ps_resources,
)


def read_replicas(document: Section, environment: Section | None) -> Replicas | None:
    """Read the replicas from any layout, or return ``None`` if there are none; report contradictions."""
    section, implied = _section(document, environment)
    if environment is not None:
        _tell_beside(environment, replicas=section is not None)
    if section is None:
        return None
    beside = environment if _side_keys(environment) else None
    return Replicas(
        framework=_framework(document, section, implied),
        location=section.cursor.location,
        worker=_side(_WORKER, section, beside),
        ps=_side(_PS, section, beside),
    )


def _section(document: Section, environment: Section | None) -> tuple[Section | None, str]:
    """Return where the replicas are, and the framework that the location implies."""
    found: list[tuple[Section, str]] = []
    if environment is not None:
        if section := environment.get(ExperimentEnvKeys.replicas):
            found.append((section, ""))
        for framework, field in _OLDER.items():
            if section := environment.get(field):
                found.append((section, framework))
                environment.cursor.problems.warn(
                    Code.MISSPELT,
                    environment.cursor.key_location(framework),
                    f"environment.{framework} is the older form of replicas",
                    found=framework,
                    fix=f"write framework: {framework} and environment.replicas",
                )
    if section := document.get(ExperimentKeys.replicas):
        found.append((section, ""))
    for section, _ in found[1:]:
        words = f"replicas are already given under {found[0][0].cursor.path}"
        section.cursor.error(Code.CONFLICT, words, found="", fix="remove one of the two")
    return found[0] if found else (None, "")


def _framework(document: Section, section: Section, implied: str) -> str:
    said = document.get(ExperimentKeys.framework)
    at = document.at("framework")
    if said and implied and said != implied and at:
        at.error(Code.CONFLICT, f"the replicas belong to {implied}", fix=f"write framework: {implied}")
    if said and not implied and said not in FRAMEWORKS and at:
        at.error(
            Code.NOT_ALLOWED,
            "this framework has no replicas",
            allowed=", ".join(FRAMEWORKS),
            fix="remove the replicas, or name their framework",
        )
    if not said and not implied and at is None:
        section.cursor.error(
            Code.REQUIRED,
            "replicas need a framework",
            found="",
            allowed=", ".join(FRAMEWORKS),
            fix="add framework: tensorflow",
        )
    return implied or said or ""


def _side(fields: _SideFields, section: Section, beside: Section | None) -> Side:
    default = read_env(section.get_misspelt(fields.default, fields.default_misspelt))
    overrides = _overrides(fields, section, {})
    if beside is not None:
        default = default.or_else(read_env(beside.get_misspelt(fields.default, fields.default_misspelt)))
        overrides = _overrides(fields, beside, overrides)
    given = [key for key in (fields.default.key, fields.default_misspelt.key) if section.at(key)]
    return Side(
        count=section.get(fields.count) or 0,
        count_spot=section.cursor.key_location(fields.count.key),
        location=section.cursor.key_location(given[0]) if given else section.cursor.location,
        default=default,
        overrides=overrides,
    )


def _overrides(fields: _SideFields, section: Section, known: dict[int, Override]) -> dict[int, Override]:
    overrides = dict(known)
    for one in section.get(fields.each) or ():
        _override(one, ReplicaEnvKeys.index, read_env(one), overrides)
    listed = section.get(fields.resources) or ()
    if listed:
        section.cursor.problems.warn(
            Code.MISSPELT,
            section.cursor.key_location(fields.resources.key),
            f"{fields.resources.key} is read as {fields.each.key}, with resources",
            found=fields.resources.key,
            fix=f"write {fields.each.key}: [{{index: 0, resources: ...}}]",
        )
    for one in listed:
        _override(one, ReplicaResourceKeys.index, read_resources_only(one), overrides)
    return overrides


def _override(one: Section, field: Field[int], env: Env, overrides: dict[int, Override]) -> None:
    index = one.get(field)
    if index is None:
        one.cursor.missing("index", "a replica that differs needs an index", "add index: 0")
    elif index in overrides:
        words = f"replica {index} is repeated"
        one.cursor.problems.add(
            Code.DUPLICATE, one.cursor.key_location("index"), words, found=str(index), fix="merge the two"
        )
    else:
        overrides[index] = Override(
            env=env, location=one.cursor.location, index_spot=one.cursor.key_location("index")
        )


def _side_keys(environment: Section | None) -> list[str]:
    keys = environment.given_keys() if environment else ()
    fields = SideKeys.fields()
    return [key for key in keys if key in fields and not fields[key].rejected]


def _tell_beside(environment: Section, *, replicas: bool) -> None:
    """Report roles that are described outside the replicas, or without replicas."""
    for key in _side_keys(environment):
        spot = environment.cursor.key_location(key)
        if replicas:
            words = f"{key} belongs under replicas and is read as part of them"
            environment.cursor.problems.warn(
                Code.MISSPELT, spot, words, found=key, fix=f"move {key} into replicas"
            )
        else:
            words = f"{key} describes replicas, but there are none"
            environment.cursor.problems.add(
                Code.CONFLICT, spot, words, found=key, fix="add replicas: {n_workers: ...}"
            )
