"""Writing jobs in the formats with one role of equal replicas: Kubernetes' Job and Kubeflow's TrainJob."""

from __future__ import annotations

import dataclasses
from typing import cast

from muster_core.models import Framework, Job, RestartPolicy, Role
from muster_formats import batch_job
from muster_formats.batch_job import INDEX_VARIABLES, BatchJobSpecFields
from muster_formats.export.losses import LossReport, report_details, report_overrides
from muster_formats.export.pods import find_main_container, write_metadata, write_pod_template
from muster_formats.nodes import Json, JsonObject
from muster_formats.pods import main_container_of
from muster_formats.schema import Table
from muster_formats.trainjob.fields import (
    API_VERSION,
    KIND,
    ContainerPatchFields,
    PodOverrideFields,
    PodPatchFields,
    RuntimeRefFields,
    TargetFields,
    TrainerFields,
    TrainJobSpecFields,
)
from muster_formats.trainjob.reader import BACKOFF_LIMIT, NODE, ROLE, RUNTIMES

_TRAINJOB_EXPRESSIBLE = frozenset({"spec.options.processes"})
_RESOURCES = "resources"
_LOST_FIELDS = {"workingDir": "workingDir", "ports": "ports", "terminationGracePeriodSeconds": "gracePeriod"}


def write_batch_job(job: Job, losses: LossReport) -> JsonObject:
    """Write a job as a Kubernetes Job whose replicas all run at the same time."""
    report_details(job, frozenset(), losses)
    if job.framework is not Framework.PLAIN:
        why = f"its replicas do not know each other, but those of {job.framework.value} must"
        losses.error("spec.framework", why)
    role = _single_role(job, batch_job.ROLE, losses)
    if role is None:
        return {}
    below = losses.below(f"spec.roles.{role.name}")
    indexed = INDEX_VARIABLES.items() <= role.template.env.items()
    main = main_container_of(Framework.PLAIN, job.annotations)
    main = dataclasses.replace(main, variables=INDEX_VARIABLES if indexed else {})
    template = write_pod_template(role.template, main, below)
    pod = cast("JsonObject", template["spec"])
    restarts = _restarts(role, losses)
    pod["restartPolicy"] = "OnFailure" if restarts else "Never"
    if indexed:
        _remove_index_variables(find_main_container(pod, main))
    fields = BatchJobSpecFields
    spec: JsonObject = {
        fields.completions.key: role.replicas,
        fields.parallelism.key: role.replicas,
        fields.backoff_limit.key: job.run.backoff_limit if restarts else 0,
    }
    if indexed:
        spec[fields.mode.key] = "Indexed"
    if job.run.active_deadline_s is not None:
        spec[fields.active_deadline.key] = job.run.active_deadline_s
    if job.run.ttl_s is not None:
        spec[fields.ttl.key] = job.run.ttl_s
    if job.run.suspend:
        spec[fields.suspend.key] = True
    spec[fields.template.key] = template
    metadata = write_metadata(job, job.annotations)
    return {"apiVersion": batch_job.API_VERSION, "kind": batch_job.KIND, "metadata": metadata, "spec": spec}


def write_trainjob(job: Job, losses: LossReport) -> JsonObject:
    """Write a job as a TrainJob: a trainer, and overrides of its pods."""
    report_details(job, _TRAINJOB_EXPRESSIBLE, losses)
    runtime = next((name for name, framework in RUNTIMES.items() if framework is job.framework), None)
    if runtime is None:
        frameworks = " or ".join(framework.value for framework in RUNTIMES.values())
        losses.error("spec.framework", f"it is for {frameworks}, not for {job.framework.value}")
    role = _single_role(job, ROLE, losses)
    if runtime is None or role is None:
        return {}
    if not _restarts(role, losses):
        losses.below(f"spec.roles.{role.name}").warn("restartPolicy", "failed replicas are restarted")
    if job.run.backoff_limit != BACKOFF_LIMIT:
        losses.warn("spec.run.backoffLimit", f"the runtime's backoff limit is {BACKOFF_LIMIT}")
    if job.run.ttl_s is not None:
        losses.warn("spec.run.ttl", "the job record is kept until it is deleted")
    trainer, override = _trainer_and_override(job, role, losses)
    if processes := job.options.processes:
        trainer[TrainerFields.processes.key] = int(processes) if processes.isdecimal() else processes
    fields = TrainJobSpecFields
    spec: JsonObject = {fields.runtime.key: {RuntimeRefFields.name.key: runtime}, fields.trainer.key: trainer}
    if override:
        targets: list[Json] = [{TargetFields.name.key: NODE}]
        spec[fields.overrides.key] = [{PodOverrideFields.targets.key: targets, **override}]
    if job.run.suspend:
        spec[fields.suspend.key] = True
    if job.run.active_deadline_s is not None:
        spec[fields.deadline.key] = job.run.active_deadline_s
    metadata = write_metadata(job, job.annotations)
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def _single_role(job: Job, name: str, losses: LossReport) -> Role | None:
    """The one role with replicas, which the format calls ``name``; ``None`` after reporting that there are several or none."""
    running = [role for role in job.roles if role.max > 0]
    if len(running) != 1:
        losses.error("spec.roles", "it has one role", fix="write it in a format that has roles")
        return None
    (role,) = running
    if role.name != name:
        losses.warn(f"spec.roles.{role.name}", f"the replicas are named {name}")
    below = losses.below(f"spec.roles.{role.name}")
    report_overrides(role, below)
    if not role.min == role.replicas == role.max:
        why = f"the number of replicas is always {role.replicas}"
        below.error("replicas", why, fix="remove min and max")
    return role


def _restarts(role: Role, losses: LossReport) -> bool:
    """Whether failed replicas are restarted, which is all that the formats can express."""
    if role.restart_policy in (RestartPolicy.ALWAYS, RestartPolicy.EXIT_CODE):
        why = "a replica is restarted if and only if it fails"
        losses.below(f"spec.roles.{role.name}").warn("restartPolicy", why)
    return role.restart_policy is not RestartPolicy.NEVER


def _remove_index_variables(container: JsonObject) -> None:
    variables = cast("list[Json]", container.get("env") or [])
    container["env"] = [
        one for one in variables if not (isinstance(one, dict) and one.get("name") in INDEX_VARIABLES)
    ]


def _trainer_and_override(job: Job, role: Role, losses: LossReport) -> tuple[JsonObject, JsonObject]:
    """The trainer, and the override of its pods; fields of the template that neither has are lost."""
    below = losses.below(f"spec.roles.{role.name}")
    main = main_container_of(job.framework, job.annotations, container=NODE, required=True)
    template = write_pod_template(role.template, main, below)
    pod = cast("JsonObject", template.get("spec"))
    if len(cast("list[Json]", pod["containers"])) > 1:
        below.error("template", "it has one container")
    container = find_main_container(pod, main)
    trainer: JsonObject = {TrainerFields.nodes.key: role.replicas, **_known(container, TrainerFields)}
    if _RESOURCES in container:
        trainer[TrainerFields.resources.key] = container[_RESOURCES]
    patch = {**_known(container, ContainerPatchFields), "name": NODE}
    patch.pop(ContainerPatchFields.env.key, None)
    spec = {**_known(pod, PodPatchFields)}
    spec.pop(PodPatchFields.containers.key, None)
    if patch.keys() > {"name"}:
        spec[PodPatchFields.containers.key] = [patch]
    override: JsonObject = {"spec": spec} if spec else {}
    if metadata := template.get("metadata"):
        override["metadata"] = metadata
    tables = (TrainerFields, ContainerPatchFields, PodPatchFields)
    known = {"name", _RESOURCES}.union(*(table.fields() for table in tables))
    for key, value in {**container, **pod}.items():
        if key not in known and value not in (None, "", [], {}):
            below.warn(_LOST_FIELDS.get(key, "template"), f"a trainer has no {key}")
    return trainer, override


def _known(mapping: JsonObject, table: type[Table]) -> JsonObject:
    fields = table.fields()
    return {key: value for key, value in mapping.items() if key in fields and not fields[key].rejected}
