"""Polyaxon 0.x (``version: 1``) documents: experiments with replicas, jobs, notebooks, tensorboards, builds.

If an image is built first, the document is two jobs, and the second waits for the first. ``environment``
applies to the master only.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import msgspec

from muster_core.models import Category, Framework, Job, JobKind, Port, RestartPolicy, Role, Template
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.locations import FieldLocations, JobField
from muster_formats.native import BUILD_ROLE
from muster_formats.polyaxon_v0.environment import V0Environment, read_env
from muster_formats.polyaxon_v0.fields import (
    NAME,
    TABLES,
    VERSION,
    Backend,
    NotebookBackend,
    V0BuildDocumentFields,
    V0BuildFieldFields,
    V0ExperimentFields,
    V0NotebookFields,
    V0OpFields,
    V0RunFields,
    V0RunnableFields,
)
from muster_formats.polyaxon_v0.jobs import (
    Image,
    V0Operation,
    build_role_of,
    image_template,
    name_of,
    read_image,
    run_policy,
)
from muster_formats.polyaxon_v0.parameters import Placeholders, read_params
from muster_formats.polyaxon_v0.roles import (
    RoleNames,
    framework_of,
    names_of,
    one_replica,
    read_replicas,
    side_roles,
)
from muster_formats.registry import Format, Read, ReadContext
from muster_formats.rules import apply_rules
from muster_formats.schema import Section

_SHELL = ("/bin/bash", "-c")
_OUTPUTS = "outputs"
_MANAGER = "{} belongs to an experiment manager, not to a scheduler"
_JUPYTER = "exec jupyter {} --no-browser --allow-root --ip=0.0.0.0 --port=$MUSTER_PORT"
_TENSORBOARD = "exec tensorboard --bind_all --logdir={} --port=$MUSTER_PORT"
_PORTS = {"notebook": 8888, "tensorboard": 6006}


def read_experiment(op: V0Operation) -> tuple[Job, ...]:
    """Read ``kind: experiment``: an optional build, then the master and its replicas."""
    section = op.section
    image = read_image(section.get(V0RunnableFields.build))
    environment = section.get(V0ExperimentFields.environment)
    env, replicas = read_env(environment), read_replicas(section, environment)
    backend = section.get(V0ExperimentFields.backend) or Backend.NATIVE
    locations = op.locations()
    framework = framework_of(replicas.framework, backend) if replicas else Framework.PLAIN
    names = names_of(framework, backend)
    template = _runs(op, image_template(op, image), "")
    others: tuple[Role, ...] = ()
    if replicas:
        problems = section.cursor.problems
        locations.record(JobField("roles"), replicas.location)
        others = side_roles(replicas, template, framework, names, locations=locations, problems=problems)
    if not others:
        framework, names = Framework.PLAIN, RoleNames()
        if backend is not Backend.NATIVE and (cursor := section.at("backend")):
            cursor.warn_ignored("backend", "the experiment has no replicas besides the master")
    _note_lone(op, names.master, locations)
    master = one_replica(names.master, template, env, framework, RestartPolicy.NEVER)
    job = op.job(
        (master, *others),
        run=run_policy(env, (replicas.worker.default, replicas.ps.default) if replicas else ()),
        category=Category.EXPERIMENTS,
        framework=framework,
        model_dir=_model_dir(op, env)
        if framework is Framework.TENSORFLOW and backend is Backend.NATIVE
        else "",
    )
    return _after_build(op, image, job, locations)


def read_job(op: V0Operation) -> tuple[Job, ...]:
    """Read ``kind: job``: one replica."""
    return _lone(op, "", RestartPolicy.NEVER, JobKind.BATCH)


def read_notebook(op: V0Operation) -> tuple[Job, ...]:
    """Read ``kind: notebook``: Jupyter as a service."""
    face = op.section.get(V0NotebookFields.backend) or NotebookBackend.NOTEBOOK
    return _lone(op, _JUPYTER.format(face.value), RestartPolicy.ALWAYS, JobKind.SERVICE)


def read_tensorboard(op: V0Operation) -> tuple[Job, ...]:
    """Read ``kind: tensorboard``: a service."""
    env = read_env(op.section.get(V0RunnableFields.environment))
    return _lone(op, _TENSORBOARD.format(_outputs(env)), RestartPolicy.ALWAYS, JobKind.SERVICE)


def read_build(op: V0Operation) -> tuple[Job, ...]:
    """Read ``kind: build``, whose fields may be in a section of their own."""
    section, inner = op.section, op.section.get(V0BuildDocumentFields.build)
    twice = [key for key in section.given_keys() if key in V0BuildFieldFields.fields()] if inner else []
    for key in twice:
        section.cursor.problems.add(
            Code.CONFLICT,
            section.cursor.key_location(key),
            f"{key} cannot be combined with build, which defines how the image is built",
            fix=f"move {key} into build",
        )
    image = read_image(inner or section)
    env = read_env(section.get(V0BuildDocumentFields.environment)).or_else(image.env)
    build = image.build(op.name)
    locations = op.locations()
    _note_lone(op, BUILD_ROLE, locations)
    locations.record(JobField("build"), (inner or section).cursor.location, "build")
    job = op.job(
        (build_role_of(build, env),),
        run=run_policy(env),
        category=Category.BUILDS,
        kind=JobKind.BUILD,
        build=build,
    )
    apply_rules(job, locations, section.cursor.problems, op.limits)
    return (job,)


_KINDS = {
    "experiment": read_experiment,
    "job": read_job,
    "notebook": read_notebook,
    "tensorboard": read_tensorboard,
    "build": read_build,
}
_REFUSED = ("group", "pipeline")


def read_document(kind: str, cursor: Cursor, given: ReadContext) -> tuple[Job, ...]:
    """Read a document of one kind; see ``Read``."""
    table = TABLES[kind]
    declared = Section(cursor, table)
    params = read_params(declared)
    parts = set(table.fields()) - set(V0OpFields.fields()) | {"environment"}
    section = Section(_filled(cursor, parts, Placeholders(params.nodes)), table)
    section.get(V0OpFields.logging)
    op = V0Operation(
        kind=kind,
        section=section,
        name=name_of(section, kind, given),
        namespace=given.namespace or "default",
        params=params,
        limits=given.limits,
    )
    return _KINDS[kind](op)


def reject_document(kind: str, cursor: Cursor, given: ReadContext) -> tuple[Job, ...]:
    """Reject an unsupported kind; see ``Read``."""
    del given
    fix = "submit its experiments or jobs as separate documents"
    cursor.problems.add(
        Code.UNSUPPORTED, cursor.key_location("kind"), _MANAGER.format(f"a {kind}"), found=kind, fix=fix
    )
    return ()


def _format(kind: str, read: Read, *, supported: bool) -> Format:
    table = TABLES.get(kind)
    return Format(
        name=NAME,
        version_key="version",
        version=VERSION,
        kind=kind,
        read=read,
        supported=supported,
        table=table,
    )


FORMATS = (
    *(_format(kind, functools.partial(read_document, kind), supported=True) for kind in _KINDS),
    *(_format(kind, functools.partial(reject_document, kind), supported=False) for kind in _REFUSED),
)
"""The kinds of this format."""


def _filled(cursor: Cursor, parts: set[str], placeholders: Placeholders) -> Cursor:
    """Expand the placeholders in some sections of the document."""
    entries = cursor.node.value
    if not isinstance(entries, Mapping):
        return cursor
    children = cursor.items()
    value = {
        key: dataclasses.replace(entry, node=placeholders.fill(children[key]).node) if key in parts else entry
        for key, entry in entries.items()
    }
    return dataclasses.replace(cursor, node=dataclasses.replace(cursor.node, value=value))


def _lone(op: V0Operation, otherwise: str, policy: RestartPolicy, kind: JobKind) -> tuple[Job, ...]:
    """Build a job of one replica that runs ``otherwise`` if the document has no command."""
    section = op.section
    image, env = (
        read_image(section.get(V0RunnableFields.build)),
        read_env(section.get(V0RunnableFields.environment)),
    )
    template = _runs(op, image_template(op, image), otherwise)
    if port := _PORTS.get(op.kind):
        template = msgspec.structs.replace(template, ports=(Port(name="http", number=port),))
    locations = op.locations()
    _note_lone(op, op.kind, locations)
    role = one_replica(op.kind, template, env, Framework.PLAIN, policy)
    job = op.job((role,), run=run_policy(env), category=Category.JOBS, kind=kind)
    return _after_build(op, image, job, locations)


def _after_build(op: V0Operation, image: Image, job: Job, locations: FieldLocations) -> tuple[Job, ...]:
    """Return the job, preceded by its build job if there is one."""
    problems = op.section.cursor.problems
    if not image.steps:
        apply_rules(job, locations, problems, op.limits)
        return (job,)
    build = op.build_job(image)
    built = FieldLocations(op.section.cursor.key_location("build"))
    built.record(JobField("name"), op.section.cursor.key_location("name"))
    apply_rules(build, built, problems, op.limits)
    job = msgspec.structs.replace(job, built_by=build.name)
    apply_rules(job, locations, problems, op.limits)
    return build, job


def _runs(op: V0Operation, template: Template, otherwise: str) -> Template:
    """Build the template with the document's command, or ``otherwise``; an empty ``otherwise`` makes the command required."""
    run = op.section.get(V0RunnableFields.run)
    command = run.get(V0RunFields.cmd) if run else None
    if command is None and not otherwise:
        where, key = (op.section, "run") if run is None else (run, "cmd")
        message = f"{op.kind} needs run.cmd"
        where.cursor.missing(key, message, "add run: {cmd: python train.py}")
    line = command or otherwise
    return msgspec.structs.replace(template, command=(*_SHELL, line)) if line else template


def _note_lone(op: V0Operation, role: str, locations: FieldLocations) -> None:
    cursor = op.section.cursor
    environment = op.section.at("environment")
    for field in ("role", "replicas", "min", "max"):
        locations.record(JobField(field, role), cursor.key_location("kind"))
    locations.record(JobField("template", role), cursor.key_location("run"))
    locations.record(JobField("resources", role), (environment or cursor).key_location("resources"))


def _outputs(env: V0Environment) -> str:
    return f"/{_OUTPUTS}/{env.artifacts[0].name}" if env.artifacts else _OUTPUTS


def _model_dir(op: V0Operation, env: V0Environment) -> str:
    return f"{_outputs(env)}/{op.name}"
