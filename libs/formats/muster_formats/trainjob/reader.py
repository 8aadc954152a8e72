"""Reading Kubeflow's TrainJob (``trainer.kubeflow.org/v1alpha1``) if it is self-contained.

A TrainJob names a runtime, which is an object of a cluster and therefore unknown here. Two runtimes only define a framework; they are
supported, with image and command in the job itself. The replicas' pod template is generated from the trainer and the patches of the
runtime, and read like any other; its problems are reported where the document defines them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from muster_core.models import Framework, FrameworkOptions, Job, RestartPolicy, Role, RunPolicy, Template
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.locations import FieldLocations, JobField
from muster_formats.nodes import YamlEntry, YamlNode
from muster_formats.pods import (
    JobMetadata,
    MetadataFields,
    main_container_of,
    read_metadata,
    read_pod_template,
)
from muster_formats.problems import RelocatedProblems, shown
from muster_formats.registry import Format, ReadContext
from muster_formats.rules import apply_rules
from muster_formats.schema import Section
from muster_formats.trainjob.fields import (
    API_VERSION,
    KIND,
    NAME,
    ContainerPatchFields,
    JobPatchFields,
    JobSetPatchFields,
    JobSetSpecPatchFields,
    JobSpecPatchFields,
    PodOverrideFields,
    PodPatchFields,
    PodTemplatePatchFields,
    ReplicatedJobPatchFields,
    RuntimePatchFields,
    RuntimeRefFields,
    RuntimeSpecPatchFields,
    TargetFields,
    TrainerFields,
    TrainJobFields,
    TrainJobSpecFields,
)

RUNTIMES: Mapping[str, Framework] = {"torch-distributed": Framework.PYTORCH, "jax-distributed": Framework.JAX}
"""The supported runtimes: those of the trainer's release that only define a framework."""

ROLE = "worker"
"""The one role of a TrainJob."""

NODE = "node"
"""What the runtimes call the trainer's job and its container."""

BACKOFF_LIMIT = 6
"""The backoff limit of the runtimes."""

_OTHER_KINDS = {
    "deepspeed-distributed": "write it as an MPIJob (kubeflow.org/v1)",
    "mlx-distributed": "write it as an MPIJob (kubeflow.org/v1)",
    "xgboost-distributed": "write it as an XGBoostJob (kubeflow.org/v1)",
}
_CLUSTER_RUNTIME = "ClusterTrainingRuntime"
_GROUP = "trainer.kubeflow.org"
_CONTAINER_FIELDS = (TrainerFields.image, TrainerFields.command, TrainerFields.args, TrainerFields.env)
_MERGED_FIELDS = frozenset({"nodeSelector", "labels", "annotations"})


def read_trainjob(cursor: Cursor, context: ReadContext) -> tuple[Job, ...]:
    """Read a TrainJob; see ``Read``."""
    document = Section(cursor, TrainJobFields)
    header = document.get(TrainJobFields.metadata)
    metadata = read_metadata(document, header)
    locations = FieldLocations(cursor.location)
    locations.record(JobField("name"), (header or document).cursor.key_location(MetadataFields.name.key))
    spec = document.get(TrainJobFields.spec)
    if spec is None:
        cursor.missing("spec", "spec is missing", "add spec: {runtimeRef: ..., trainer: ...}")
        return ()
    framework = _framework(spec)
    trainer = spec.get(TrainJobSpecFields.trainer)
    if trainer is None:
        fix = "add trainer: {image: ..., numNodes: 1}"
        spec.cursor.missing("trainer", "trainer is missing", fix)
        return ()
    locations.record(JobField("suspend"), spec.cursor.key_location(TrainJobSpecFields.suspend.key))
    key = TrainerFields.processes.key
    locations.record(JobField("processes"), trainer.cursor.key_location(key), key)
    processes = trainer.get(TrainerFields.processes)
    # The trainer is read even if the runtime is unsupported, so that its problems are reported too.
    role = _role(spec, trainer, framework or Framework.PLAIN, metadata, locations)
    if framework is None:
        return ()
    job = Job(
        name=metadata.name,
        namespace=metadata.namespace or context.namespace or "default",
        labels={**metadata.labels, **(spec.get(TrainJobSpecFields.labels) or {})},
        annotations={**metadata.annotations, **(spec.get(TrainJobSpecFields.annotations) or {})},
        framework=framework,
        options=FrameworkOptions(processes=processes or ""),
        format=NAME,
        roles=(role,),
        run=RunPolicy(
            backoff_limit=BACKOFF_LIMIT,
            active_deadline_s=spec.get(TrainJobSpecFields.deadline),
            suspend=spec.get(TrainJobSpecFields.suspend) or False,
        ),
    )
    apply_rules(job, locations, cursor.problems, context.limits)
    return (job,)


FORMATS = (Format(name=NAME, version=API_VERSION, kind=KIND, read=read_trainjob, table=TrainJobFields),)
"""The formats of this module."""


def _framework(spec: Section) -> Framework | None:
    """The framework of the runtime; ``None`` after reporting that the runtime is not supported."""
    names = ", ".join(RUNTIMES)
    runtime = spec.get(TrainJobSpecFields.runtime)
    if runtime is None:
        fix = f"add runtimeRef: {{name: {next(iter(RUNTIMES))}}}"
        spec.cursor.missing("runtimeRef", "runtimeRef is missing", fix)
        return None
    name, cursor = runtime.get(RuntimeRefFields.name), runtime.at(RuntimeRefFields.name.key)
    if name is None or cursor is None:
        runtime.cursor.missing("name", "the runtime's name is missing", f"write one of {names}")
        return None
    is_cluster_runtime = (runtime.get(RuntimeRefFields.kind) or _CLUSTER_RUNTIME) == _CLUSTER_RUNTIME
    is_trainer_group = (runtime.get(RuntimeRefFields.group) or _GROUP) == _GROUP
    released = is_cluster_runtime and is_trainer_group
    if name in RUNTIMES and released:
        return RUNTIMES[name]
    either = names.replace(", ", " or ")
    fix = f"use {either}, without kind, and write the runtime's settings under trainer"
    cursor.error(
        Code.UNSUPPORTED,
        f"the runtime {shown(name)} is an object of a cluster, which Muster cannot read",
        allowed=names,
        fix=_OTHER_KINDS.get(name, fix) if released else fix,
    )
    return None


def _role(
    spec: Section, trainer: Section, framework: Framework, metadata: JobMetadata, locations: FieldLocations
) -> Role:
    key = TrainerFields.nodes.key
    for field in ("replicas", "min", "max"):
        locations.record(JobField(field, ROLE), trainer.cursor.key_location(key), key)
    locations.record(JobField("roles"), trainer.cursor.key_location(key))
    for field in ("role", "template", "resources"):
        locations.record(JobField(field, ROLE), trainer.cursor.location)
    if trainer.get(TrainerFields.image) is None:
        _report_missing_image(spec, trainer)
    nodes = trainer.get(TrainerFields.nodes)
    count = 1 if nodes is None else nodes
    main = main_container_of(framework, metadata.annotations, container=NODE)
    template: Template = read_pod_template(_pod_template(spec, trainer), main)
    return Role(
        name=ROLE,
        replicas=count,
        min=count,
        max=count,
        template=template,
        restart_policy=RestartPolicy.ON_FAILURE,
    )


def _report_missing_image(spec: Section, trainer: Section) -> None:
    path = trainer.cursor.below(TrainerFields.image.key)
    if not trainer.cursor.problems.has_error_at(path):
        at_trainer = spec.cursor.key_location(TrainJobSpecFields.trainer.key)
        location = dataclasses.replace(at_trainer, path=path)
        message = "image is missing, and the runtime's own image is unknown to Muster"
        fix = "add image: the runtime's, or your own"
        trainer.cursor.problems.add(Code.REQUIRED, location, message, fix=fix)


@dataclass(frozen=True)
class _Patch:
    """A patch of the trainer's pods."""

    metadata: Section | None
    spec: Section | None


def _pod_template(spec: Section, trainer: Section) -> Cursor:
    """Generate the template of the replicas."""
    builder = _PodTemplateBuilder(trainer)
    for patch in _patches(spec):
        if patch.metadata:
            builder.apply("metadata", patch.metadata)
        if patch.spec:
            builder.apply("spec", patch.spec)
            for container in patch.spec.get(PodPatchFields.containers) or ():
                builder.apply_to_container(container)
    return builder.build(trainer.cursor.node)


class _PodTemplateBuilder:
    """Builds a pod template and records where its parts come from."""

    def __init__(self, trainer: Section) -> None:
        origin = trainer.cursor.path
        self._root = f"{origin}.template"
        self._container_path = f"{self._root}.spec.containers[0]"
        self._problems = RelocatedProblems(trainer.cursor.problems)
        self._container: dict[str, YamlEntry] = {
            "name": _entry(YamlNode(NODE, 0, 0, NODE), trainer.cursor.node)
        }
        self._parts: dict[str, dict[str, YamlEntry]] = {"metadata": {}, "spec": {}}
        for path in (self._root, f"{self._root}.spec", self._container_path):
            self._problems.record(path, origin)
        for field in _CONTAINER_FIELDS:
            if cursor := trainer.at(field.key):
                self._set_container_field(field.key, cursor)
        if cursor := trainer.at(TrainerFields.resources.key):
            self._set_container_field("resources", cursor)

    def build(self, origin: YamlNode) -> Cursor:
        """Return the template, located at ``origin``."""
        line, column = origin.line, origin.column
        containers = YamlNode([YamlNode(self._container, line, column)], line, column)
        spec = {**self._parts["spec"], "containers": _entry(containers, origin)}
        whole = {"spec": _entry(YamlNode(spec, line, column), origin)}
        if metadata := self._parts["metadata"]:
            whole["metadata"] = _entry(YamlNode(metadata, line, column), origin)
        return Cursor(YamlNode(whole, line, column), self._root, self._problems)

    def apply(self, part: str, patch: Section) -> None:
        """Apply a patch to the metadata or the pod: later ones win, and mappings of names are merged."""
        fields, into = patch.table.fields(), self._parts[part]
        for key, cursor in patch.cursor.items().items():
            field = fields.get(key)
            skipped = field is None or field.ignored or field.rejected or cursor.is_null
            if skipped or key == PodPatchFields.containers.key:
                continue
            node = cursor.node
            before = into[key].node.value if key in into and key in _MERGED_FIELDS else None
            if isinstance(before, dict) and isinstance(node.value, dict):
                node = YamlNode({**before, **node.value}, node.line, node.column)
            into[key] = _entry(node, node)
            self._problems.record(f"{self._root}.{part}.{key}", cursor.path)

    def apply_to_container(self, patch: Section) -> None:
        """Apply a patch of a container, which must be the trainer's."""
        name = patch.get(ContainerPatchFields.name)
        if name != NODE:
            cursor = patch.at(ContainerPatchFields.name.key)
            if cursor and name:
                message = f"the runtime has no container {name}"
                cursor.error(Code.UNSUPPORTED, message, allowed=NODE, fix="remove it")
            elif cursor is None:
                patch.cursor.missing("name", "the container's name is missing", f"add name: {NODE}")
            return
        for field in (ContainerPatchFields.mounts, ContainerPatchFields.security):
            if cursor := patch.at(field.key):
                self._set_container_field(field.key, cursor)

    def _set_container_field(self, key: str, cursor: Cursor) -> None:
        self._container[key] = _entry(cursor.node, cursor.node)
        self._problems.record(f"{self._container_path}.{key}", cursor.path)


def _patches(spec: Section) -> Iterator[_Patch]:
    for override in spec.get(TrainJobSpecFields.overrides) or ():
        targets = override.get(PodOverrideFields.targets) or []
        named = [_is_trainer(target, TargetFields.name.key) for target in targets]
        patch = _Patch(override.get(PodOverrideFields.metadata), override.get(PodOverrideFields.spec))
        if any(named) or not named:
            yield patch
    for whole in spec.get(TrainJobSpecFields.patches) or ():
        whole.get(RuntimePatchFields.manager)
        runtime = whole.get(RuntimePatchFields.runtime)
        jobset = runtime.get(RuntimeSpecPatchFields.template) if runtime else None
        jobset_spec = jobset.get(JobSetPatchFields.spec) if jobset else None
        for job in (jobset_spec.get(JobSetSpecPatchFields.jobs) if jobset_spec else None) or ():
            patch = job.get(ReplicatedJobPatchFields.template)
            job_spec = patch.get(JobPatchFields.spec) if patch else None
            template = job_spec.get(JobSpecPatchFields.template) if job_spec else None
            if _is_trainer(job, ReplicatedJobPatchFields.name.key) and template:
                yield _Patch(
                    template.get(PodTemplatePatchFields.metadata), template.get(PodTemplatePatchFields.spec)
                )


def _is_trainer(section: Section, key: str) -> bool:
    """Whether a patch is for the trainer's job; warns about a patch of another."""
    cursor = section.at(key)
    if cursor is None:
        section.cursor.missing(key, "the name of the patched job is missing", f"add name: {NODE}")
        return False
    if cursor.node.text == NODE:
        return True
    cursor.warn_ignored(f"a patch of {cursor.node.text}", f"the supported runtimes have one job, {NODE}")
    return False


def _entry(node: YamlNode, at: YamlNode) -> YamlEntry:
    return YamlEntry(at.line, at.column, node)
