"""``Job`` -> Kubeflow's TrainJob: equal replicas of PyTorch or JAX, as a trainer and what differs in its pods."""

from __future__ import annotations

from typing import cast

from muster_core.models import Job, Role
from muster_formats.export.details import tell_details
from muster_formats.export.losses import Losses
from muster_formats.export.one_role import restarts, the_role
from muster_formats.export.pods import main_container, write_metadata, write_pod_template
from muster_formats.names import Schema
from muster_formats.pods.framework_pods import main_of
from muster_formats.table import Table
from muster_formats.trainjob.document import BACKOFF, ROLE, RUNTIMES
from muster_formats.trainjob.keys import (
    API_VERSION,
    KIND,
    ContainerPatchKeys,
    PodPatchKeys,
    RuntimeRefKeys,
    SpecKeys,
    TargetKeys,
    TrainerKeys,
)
from muster_formats.trainjob.keys import PodOverrideKeys as OverrideKeys
from muster_formats.trainjob.pod import NODE
from muster_formats.typed.raw import Raw
from muster_formats.yaml_builder import Json

_SAID = frozenset({"spec.options.processes"})
_RESOURCES = "resources"
_LOST = {"workingDir": "workingDir", "ports": "ports", "terminationGracePeriodSeconds": "gracePeriod"}


def write_trainjob(job: Job, losses: Losses) -> Schema:
    """The document of a job; what cannot be said of it is told."""
    tell_details(job, _SAID, losses)
    runtime = next((name for name, framework in RUNTIMES.items() if framework is job.framework), None)
    if runtime is None:
        words = " or ".join(framework.value for framework in RUNTIMES.values())
        losses.refuse("spec.framework", f"it is for {words}, and this job is of {job.framework.value}")
    role = the_role(job, ROLE, losses)
    if runtime is None or role is None:
        return {}
    if not restarts(role, losses):
        losses.below(f"spec.roles.{role.name}").lose("restartPolicy", "a replica that fails is started again")
    if job.run.backoff_limit != BACKOFF:
        losses.lose("spec.run.backoffLimit", f"the runtime forgives {BACKOFF}")
    if job.run.ttl_s is not None:
        losses.lose("spec.run.ttl", "the record is kept until it is deleted")
    trainer, override = _parts(job, role, losses)
    if job.options.processes:
        said = job.options.processes
        trainer[TrainerKeys.processes.key] = int(said) if said.isdecimal() else said
    spec: Schema = {SpecKeys.runtime.key: {RuntimeRefKeys.name.key: runtime}, SpecKeys.trainer.key: trainer}
    if override:
        targets: list[Json] = [{TargetKeys.name.key: NODE}]
        spec[SpecKeys.overrides.key] = [{OverrideKeys.targets.key: targets, **override}]
    if job.run.suspend:
        spec[SpecKeys.suspend.key] = True
    if job.run.active_deadline_s is not None:
        spec[SpecKeys.deadline.key] = job.run.active_deadline_s
    metadata = write_metadata(job, job.annotations)
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def _parts(job: Job, role: Role, losses: Losses) -> tuple[Schema, Schema]:
    """The trainer, and how its pods differ; what of the template is in neither is lost."""
    below = losses.below(f"spec.roles.{role.name}")
    main = main_of(job.framework, job.annotations, container=NODE, required=True)
    template = write_pod_template(role.template, main, below)
    pod = cast("Raw", template.get("spec"))
    if len(cast("list[Json]", pod["containers"])) > 1:
        below.refuse("template", "it has one container")
    container = main_container(pod, main)
    trainer: Schema = {TrainerKeys.nodes.key: role.replicas, **_taken(container, TrainerKeys)}
    if _RESOURCES in container:
        trainer[TrainerKeys.resources.key] = container[_RESOURCES]
    patch = {**_taken(container, ContainerPatchKeys), "name": NODE}
    patch.pop(ContainerPatchKeys.env.key, None)
    spec = {**_taken(pod, PodPatchKeys)}
    spec.pop(PodPatchKeys.containers.key, None)
    if patch.keys() > {"name"}:
        spec[PodPatchKeys.containers.key] = [patch]
    override: Schema = {"spec": spec} if spec else {}
    if metadata := template.get("metadata"):
        override["metadata"] = metadata
    known = {*TrainerKeys.fields(), *ContainerPatchKeys.fields(), *PodPatchKeys.fields(), "name", _RESOURCES}
    for key, value in {**container, **pod}.items():
        if key not in known and value not in (None, "", [], {}):
            below.lose(_LOST.get(key, "template"), f"a trainer has no {key}")
    return trainer, override


def _taken(mapping: Raw, table: type[Table]) -> Schema:
    fields = table.fields()
    return {key: value for key, value in mapping.items() if key in fields and not fields[key].refused}
