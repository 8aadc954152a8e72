"""``Job`` -> the native form: what ``parse`` reads back as the same job, defaults left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from muster_core.models import (
    Build,
    ElasticPolicy,
    FrameworkOptions,
    Job,
    PlacementPolicy,
    Rendezvous,
    ResourceLimits,
    Resources,
    Role,
    RunPolicy,
    Strategy,
    Template,
    Toleration,
)
from muster_core.quantities import format_bytes, format_cpu, format_duration, format_gpu
from muster_formats.builds import build_role
from muster_formats.export.yaml_text import yaml_text
from muster_formats.names import Schema
from muster_formats.native.keys import API_VERSION, KIND
from muster_formats.pods.framework_pods import main_of
from muster_formats.pods.template import Main
from muster_formats.typed.raw import template_of
from muster_formats.yaml_builder import Json

_DEFAULT_RUN = RunPolicy()


def to_native(job: Job) -> Schema:
    """The native document of a job, as JSON. Where the job came from, its warnings and the defaults that it got are not part of it."""
    metadata: Schema = {"name": job.name, "namespace": job.namespace}
    metadata |= _given(labels=dict(job.labels), annotations=dict(job.annotations))
    spec: Schema = {"framework": job.framework.value, "kind": job.kind.value}
    spec |= _given(
        category=job.category and job.category.value,
        options=_options(job.options),
        builtBy=job.built_by,
        queue=job.queue,
        priority=job.priority,
        minAvailable=job.min_available,
        suspend=job.run.suspend,
    )
    if not job.preemptible:
        spec["preemptible"] = False
    if job.build:
        spec["build"] = _build(job.build)
    if not job.build or job.roles != (build_role(job.build),):
        main = main_of(job.framework, job.annotations)
        spec["roles"] = {role.name: _role(role, main) for role in job.roles}
    spec |= _given(placement=_placement(job.placement), elastic=_elastic(job.elastic), run=_run(job.run))
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def native_text(job: Job) -> str:
    """The native document of a job, as YAML."""
    return yaml_text([to_native(job)])


def _given(**fields: Json) -> Schema:
    return {key: value for key, value in fields.items() if value not in (None, "", 0, False, [], {})}


def _options(options: FrameworkOptions) -> Schema:
    said = _given(
        processes=int(options.processes) if options.processes.isdecimal() else options.processes,
        sparseCluster=options.sparse_cluster,
        evaluatorInCluster=options.evaluator_in_cluster,
        modelDir=options.model_dir,
        conventions=[convention.value for convention in options.conventions],
        parameters=dict(options.parameters),
    )
    if options.rendezvous:
        said["rendezvous"] = _rendezvous(options.rendezvous)
    return said


def _rendezvous(rendezvous: Rendezvous) -> Schema:
    said: Schema = {"backend": rendezvous.backend}
    said |= _given(
        host=rendezvous.host,
        port=rendezvous.port,
        id=rendezvous.job_id,
        conf=dict(rendezvous.conf),
        standalone=rendezvous.standalone,
    )
    if rendezvous.max_restarts is not None:
        said["maxRestarts"] = rendezvous.max_restarts
    return said


def _build(build: Build) -> Schema:
    return _given(base=build.base, image=build.image, steps=list(build.steps), env=dict(build.env))


def _role(role: Role, main: Main) -> Schema:
    said: Schema = {"replicas": role.replicas}
    if (role.min, role.max) != (role.replicas, role.replicas):
        said |= {"min": role.min, "max": role.max}
    said["restartPolicy"] = role.restart_policy.value
    said |= _template(role.template, Template(), main)
    if role.overrides:
        said["overrides"] = [
            {"index": index, **_template(template, role.template, main)}
            for index, template in sorted(role.overrides.items())
        ]
    return said


def _template(template: Template, base: Template, main: Main) -> Schema:
    """What differs from ``base``; beside a Kubernetes template, what differs from what that says."""
    said: Schema = {}
    if template.pod != base.pod:
        said["template"] = dict(template.pod)
        base = template_of(template.pod, main) if template.pod else Template()
    known = _fields(base)
    return said | {key: value for key, value in _fields(template).items() if value != known[key]}


def _fields(template: Template) -> Schema:
    return {
        "image": template.image,
        "command": list(template.command),
        "args": list(template.args),
        "env": dict(template.env),
        "workingDir": template.working_dir,
        "resources": _resources(template.requests, template.limits),
        "ports": [{"name": port.name, "containerPort": port.number} for port in template.ports],
        "labels": dict(template.labels),
        "annotations": dict(template.annotations),
        "nodeSelector": dict(template.node_selector),
        "tolerations": [_toleration(toleration) for toleration in template.tolerations],
        "nodeAffinity": dict(template.node_affinity),
        "gracePeriod": format_duration(template.grace_s),
    }


def _resources(requests: Resources, limits: Resources) -> Schema:
    held = native_amounts(limits)
    asked = {**dict.fromkeys(held, 0), **native_amounts(requests)}
    return {"requests": asked, "limits": held} if held else asked


def native_amounts(resources: Resources) -> Schema:
    """Amounts in the native form; what is 0 is left out."""
    named = _given(
        cpu=resources.cpu and format_cpu(resources.cpu),
        memory=resources.memory and format_bytes(resources.memory),
        gpu=resources.gpu and format_gpu(resources.gpu),
        gpuMemory=resources.gpu_memory and format_bytes(resources.gpu_memory),
        ephemeralStorage=resources.ephemeral_storage and format_bytes(resources.ephemeral_storage),
    )
    return {**named, **resources.extended}


def native_limits(limits: ResourceLimits) -> Schema:
    """Limits in the native form; 0 is a limit."""
    forms: dict[str, tuple[str, Callable[[int], Any]]] = {
        "cpu": ("cpu", format_cpu),
        "memory": ("memory", format_bytes),
        "gpu": ("gpu", format_gpu),
        "gpu_memory": ("gpuMemory", format_bytes),
        "ephemeral_storage": ("ephemeralStorage", format_bytes),
    }
    said: Schema = {}
    for name, amount in limits.amounts().items():
        key, form = forms.get(name, (name, int))
        said[key] = form(amount)
    return said


def _toleration(toleration: Toleration) -> Schema:
    return {
        "operator": toleration.operator,
        **_given(key=toleration.key, value=toleration.value, effect=toleration.effect),
    }


def _placement(placement: PlacementPolicy) -> Schema:
    return _given(
        strategy="" if placement.strategy is Strategy.PACK else placement.strategy.value,
        topology=placement.topology,
        required=placement.topology_required,
        gpuTopology=placement.gpu_topology,
    )


def _elastic(elastic: ElasticPolicy) -> Schema:
    cool_down = format_duration(elastic.cool_down_s) if elastic.cool_down_s else ""
    return _given(policy=elastic.policy, coolDown=cool_down, step=elastic.step)


def _run(run: RunPolicy) -> Schema:
    said: Schema = {}
    if run.restart_scope is not None:
        said["restartScope"] = run.restart_scope.value
    if run.backoff_limit != _DEFAULT_RUN.backoff_limit:
        said["backoffLimit"] = run.backoff_limit
    for key, seconds in (
        ("activeDeadline", run.active_deadline_s),
        ("queueDeadline", run.queue_deadline_s),
        ("startTimeout", run.start_timeout_s),
        ("ttl", run.ttl_s),
    ):
        if seconds is not None:
            said[key] = format_duration(seconds)
    if run.clean_pod_policy is not _DEFAULT_RUN.clean_pod_policy:
        said["cleanPodPolicy"] = run.clean_pod_policy.value
    if run.success_policy is not _DEFAULT_RUN.success_policy:
        said["successPolicy"] = run.success_policy.value
    return said
