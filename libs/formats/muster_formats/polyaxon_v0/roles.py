"""Roles of a Polyaxon 0.x experiment: its replicas in the current and older layouts, named by framework and backend."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from muster_core.models import Framework, RestartPolicy, Role, Template
from muster_core.models.problem_codes import Code
from muster_formats.locations import FieldLocations, JobField
from muster_formats.pods import main_container_of
from muster_formats.polyaxon_v0.environment import (
    V0Environment,
    V0ExperimentEnvFields,
    V0ReplicaEnvFields,
    V0ReplicaResourceFields,
    V0ReplicasFields,
    V0SideFields,
    pod_template,
    read_env,
    read_resources_only,
)
from muster_formats.polyaxon_v0.fields import Backend, V0ExperimentFields
from muster_formats.problems import Problems, SourceLocation
from muster_formats.schema import Field, Section

FRAMEWORKS = {
    "tensorflow": Framework.TENSORFLOW,
    "mxnet": Framework.MXNET,
    "horovod": Framework.HOROVOD,
    "pytorch": Framework.PYTORCH,
}
"""The frameworks of experiments with replicas."""

_OLDER = {
    "tensorflow": V0ExperimentEnvFields.tensorflow,
    "mxnet": V0ExperimentEnvFields.mxnet,
    "horovod": V0ExperimentEnvFields.horovod,
    "pytorch": V0ExperimentEnvFields.pytorch,
}


@dataclass(frozen=True, kw_only=True)
class Override:
    """One replica that differs: its settings and source location."""

    env: V0Environment
    location: SourceLocation
    index_location: SourceLocation


@dataclass(frozen=True, kw_only=True)
class SideReplicas:
    """The workers, or the parameter servers."""

    count: int
    count_location: SourceLocation
    location: SourceLocation
    default: V0Environment
    overrides: dict[int, Override]


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """The replicas besides the master, their ``framework``, and where it is given."""

    framework: str
    location: SourceLocation
    worker: SideReplicas
    ps: SideReplicas


@dataclass(frozen=True, kw_only=True)
class _SideFields:
    count: Field[int]
    default: Field[Section]
    default_misspelt: Field[Section]
    each: Field[list[Section]]
    resources: Field[list[Section]]


_WORKER = _SideFields(
    count=V0ReplicasFields.n_workers,
    default=V0SideFields.default_worker,
    default_misspelt=V0SideFields.worker_default,
    each=V0SideFields.worker,
    resources=V0SideFields.worker_resources,
)
_PS = _SideFields(
    count=V0ReplicasFields.n_ps,
    default=V0SideFields.default_ps,
    default_misspelt=V0SideFields.ps_default,
    each=V0SideFields.ps,
    resources=V0SideFields.ps_resources,
)


def read_replicas(document: Section, environment: Section | None) -> Replicas | None:
    """Read the replicas from any layout, or return ``None`` if there are none; report contradictions."""
    section, implied = _section(document, environment)
    if environment is not None:
        _report_misplaced_roles(environment, replicas=section is not None)
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
        if section := environment.get(V0ExperimentEnvFields.replicas):
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
    if section := document.get(V0ExperimentFields.replicas):
        found.append((section, ""))
    for section, _ in found[1:]:
        message = f"replicas are already given under {found[0][0].cursor.path}"
        section.cursor.error(Code.CONFLICT, message, found="", fix="remove one of the two")
    return found[0] if found else (None, "")


def _framework(document: Section, section: Section, implied: str) -> str:
    given = document.get(V0ExperimentFields.framework)
    at = document.at("framework")
    if given and implied and given != implied and at:
        at.error(Code.CONFLICT, f"the replicas belong to {implied}", fix=f"write framework: {implied}")
    if given and not implied and given not in FRAMEWORKS and at:
        at.error(
            Code.NOT_ALLOWED,
            "this framework has no replicas",
            allowed=", ".join(FRAMEWORKS),
            fix="remove the replicas, or name their framework",
        )
    if not given and not implied and at is None:
        section.cursor.error(
            Code.REQUIRED,
            "replicas need a framework",
            found="",
            allowed=", ".join(FRAMEWORKS),
            fix="add framework: tensorflow",
        )
    return implied or given or ""


def _side(fields: _SideFields, section: Section, beside: Section | None) -> SideReplicas:
    default = read_env(section.get_misspelt(fields.default, fields.default_misspelt))
    overrides = _overrides(fields, section, {})
    if beside is not None:
        default = default.or_else(read_env(beside.get_misspelt(fields.default, fields.default_misspelt)))
        overrides = _overrides(fields, beside, overrides)
    given = [key for key in (fields.default.key, fields.default_misspelt.key) if section.at(key)]
    return SideReplicas(
        count=section.get(fields.count) or 0,
        count_location=section.cursor.key_location(fields.count.key),
        location=section.cursor.key_location(given[0]) if given else section.cursor.location,
        default=default,
        overrides=overrides,
    )


def _overrides(fields: _SideFields, section: Section, known: dict[int, Override]) -> dict[int, Override]:
    overrides = dict(known)
    for one in section.get(fields.each) or ():
        _override(one, V0ReplicaEnvFields.index, read_env(one), overrides)
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
        _override(one, V0ReplicaResourceFields.index, read_resources_only(one), overrides)
    return overrides


def _override(one: Section, field: Field[int], env: V0Environment, overrides: dict[int, Override]) -> None:
    index = one.get(field)
    if index is None:
        one.cursor.missing("index", "a replica that differs needs an index", "add index: 0")
    elif index in overrides:
        message = f"replica {index} is repeated"
        one.cursor.problems.add(
            Code.DUPLICATE, one.cursor.key_location("index"), message, found=str(index), fix="merge the two"
        )
    else:
        overrides[index] = Override(
            env=env, location=one.cursor.location, index_location=one.cursor.key_location("index")
        )


def _side_keys(environment: Section | None) -> list[str]:
    keys = environment.given_keys() if environment else ()
    fields = V0SideFields.fields()
    return [key for key in keys if key in fields and not fields[key].rejected]


def _report_misplaced_roles(environment: Section, *, replicas: bool) -> None:
    """Report roles that are described outside the replicas, or without replicas."""
    for key in _side_keys(environment):
        location = environment.cursor.key_location(key)
        if replicas:
            message = f"{key} belongs under replicas and is read as part of them"
            environment.cursor.problems.warn(
                Code.MISSPELT, location, message, found=key, fix=f"move {key} into replicas"
            )
        else:
            message = f"{key} describes replicas, but there are none"
            environment.cursor.problems.add(
                Code.CONFLICT, location, message, found=key, fix="add replicas: {n_workers: ...}"
            )


_SLEEP = ("sleep", "infinity")
_REMOTE = frozenset({Framework.MPI, Framework.HOROVOD})
_CONTAINER = "main"


@dataclass(frozen=True, kw_only=True)
class RoleNames:
    """The names of the roles."""

    master: str = "master"
    worker: str = "worker"
    ps: str = "ps"


def framework_of(field_name: str, backend: Backend) -> Framework:
    """Return the framework of an experiment with replicas."""
    framework = FRAMEWORKS.get(field_name, Framework.PLAIN)
    return Framework.MPI if backend is Backend.MPI and framework is not Framework.HOROVOD else framework


def names_of(framework: Framework, backend: Backend) -> RoleNames:
    """Return the role names for a framework and backend."""
    if framework in _REMOTE:
        return RoleNames(master="launcher")
    if framework is Framework.MXNET:
        return RoleNames(master="scheduler", ps="server")
    if framework is Framework.TENSORFLOW and backend is Backend.KUBEFLOW:
        return RoleNames(master="chief")
    return RoleNames()


def one_replica(
    name: str, template: Template, env: V0Environment, framework: Framework, policy: RestartPolicy
) -> Role:
    """Build a role of one replica with the settings of ``env``."""
    return Role(
        name=name,
        replicas=1,
        min=1,
        max=1,
        template=with_env(template, env, framework),
        restart_policy=_policy(env, policy),
    )


def with_env(template: Template, env: V0Environment, framework: Framework = Framework.PLAIN) -> Template:
    """Build the template with the settings of ``env``; what only a pod can have needs an image."""
    requests, limits = env.resources or (template.requests, template.limits)
    full = msgspec.structs.replace(
        template,
        env={**template.env, **env.variables},
        requests=requests,
        limits=limits,
        labels=env.labels,
        annotations=env.annotations,
        node_selector=env.node_selector,
        tolerations=env.tolerations,
        node_affinity=env.node_affinity or {},
    )
    if not env.kubernetes_only or not full.image:
        return full
    main = main_container_of(framework, {})
    port = (main.port,) if main.port else ()
    ported = msgspec.structs.replace(full, ports=(*full.ports, *port))
    return msgspec.structs.replace(ported, pod=pod_template(ported, env, main.container or _CONTAINER))


def side_roles(
    replicas: Replicas,
    template: Template,
    framework: Framework,
    names: RoleNames,
    *,
    locations: FieldLocations,
    problems: Problems,
) -> tuple[Role, ...]:
    """Build the roles of workers and parameter servers; a role that the framework does not have is a problem."""
    ps = replicas.ps
    if framework not in (Framework.TENSORFLOW, Framework.MXNET, Framework.PLAIN) and (
        ps.count or ps.overrides or ps.default != V0Environment()
    ):
        location = ps.count_location if ps.count else ps.location
        message = f"{framework.value} has no parameter servers"
        problems.add(
            Code.CONFLICT, location, message, found=str(ps.count), fix="remove n_ps, default_ps and ps"
        )
        ps = replace(ps, count=0, overrides={}, default=V0Environment())
    sleeping = msgspec.structs.replace(template, command=_SLEEP) if framework in _REMOTE else template
    sides = ((names.worker, "n_workers", replicas.worker, sleeping), (names.ps, "n_ps", ps, template))
    roles: list[Role] = []
    for name, field_name, side, base in sides:
        if side.count or side.overrides:
            roles.append(_role(name, side, base, framework))
            _note(name, field_name, side, locations)
        elif side.default != V0Environment():
            message = f"{field_name} is not given, so this has no effect"
            problems.warn(Code.IGNORED, side.location, message, fix=f"add {field_name}")
    return tuple(roles)


def _role(name: str, side: SideReplicas, template: Template, framework: Framework) -> Role:
    return Role(
        name=name,
        replicas=side.count,
        min=side.count,
        max=side.count,
        template=with_env(template, side.default, framework),
        overrides={
            index: with_env(template, override.env.or_else(side.default), framework)
            for index, override in sorted(side.overrides.items())
        },
        restart_policy=_policy(side.default, RestartPolicy.NEVER),
    )


def _policy(env: V0Environment, otherwise: RestartPolicy) -> RestartPolicy:
    if env.restart_policy is not None:
        return env.restart_policy
    return RestartPolicy.ON_FAILURE if env.restarts and otherwise is RestartPolicy.NEVER else otherwise


def _note(name: str, field_name: str, side: SideReplicas, locations: FieldLocations) -> None:
    for field in ("replicas", "min", "max"):
        locations.record(JobField(field, name), side.count_location, field_name)
    for field in ("role", "template", "resources"):
        locations.record(JobField(field, name), side.location)
    for index, override in side.overrides.items():
        locations.record(JobField("overrides", name, index), override.index_location)
        locations.record(JobField("override", name, index), override.location)
        if override.env.resources:
            locations.record(JobField("resources", name, index), override.location)
