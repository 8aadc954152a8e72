"""Writing jobs as native documents, which ``parse`` reads back as the same jobs; default values are left out."""

from __future__ import annotations

from collections.abc import Callable

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
)
from muster_core.quantities import format_bytes, format_cpu, format_duration, format_gpu
from muster_formats.native.fields import API_VERSION, KIND
from muster_formats.native.reader import build_role
from muster_formats.nodes import Json, JsonObject
from muster_formats.pods import MainContainer, main_container_of, template_of, write_toleration
from muster_formats.source import yaml_text

_DEFAULT_RUN = RunPolicy()
_MAX_DIGITS = 9


def to_native(job: Job, *, compact: bool = True) -> JsonObject:
    """Return the native document of a job as JSON; the job's format, warnings and applied defaults are not part of it.

    Args:
        job: The job.
        compact: Whether to leave out fields that follow from a raw pod template, which has to be read for that.
    """
    metadata = _given(name=job.name, namespace=job.namespace)
    metadata |= _given(labels=dict(job.labels), annotations=dict(job.annotations))
    spec: JsonObject = {"framework": job.framework.value, "kind": job.kind.value}
    spec |= _given(
        category=job.category and job.category.value,
        options=_options(job.options),
        builtBy=job.built_by,
        queue=job.queue,
        priority=job.priority,
        suspend=job.run.suspend,
    )
    if job.min_available is not None:
        spec["minAvailable"] = job.min_available
    if not job.preemptible:
        spec["preemptible"] = False
    if job.build:
        spec["build"] = _build(job.build)
    if not job.build or job.roles != (build_role(job.build),):
        main = main_container_of(job.framework, job.annotations)
        spec["roles"] = {role.name: _role(role, main, compact=compact) for role in job.roles}
    spec |= _given(placement=_placement(job.placement), elastic=_elastic(job.elastic), run=_run(job.run))
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def native_text(job: Job) -> str:
    """Return the native document of a job as YAML."""
    return yaml_text([to_native(job)])


def _given(**values: Json) -> JsonObject:
    return {key: value for key, value in values.items() if value not in (None, "", 0, False, [], {})}


def _options(options: FrameworkOptions) -> JsonObject:
    processes = options.processes
    fields: JsonObject = {}
    if processes:
        is_number = processes.isdecimal() and len(processes) <= _MAX_DIGITS
        fields["processes"] = int(processes) if is_number else processes
    fields |= _given(
        sparseCluster=options.sparse_cluster,
        evaluatorInCluster=options.evaluator_in_cluster,
        modelDir=options.model_dir,
        conventions=[convention.value for convention in options.conventions],
        parameters=dict(options.parameters),
    )
    if options.rendezvous:
        fields["rendezvous"] = _rendezvous(options.rendezvous)
    return fields


def _rendezvous(rendezvous: Rendezvous) -> JsonObject:
    fields: JsonObject = {"backend": rendezvous.backend}
    fields |= _given(
        host=rendezvous.host,
        id=rendezvous.job_id,
        conf=dict(rendezvous.conf),
        standalone=rendezvous.standalone,
    )
    if rendezvous.port is not None:
        fields["port"] = rendezvous.port
    if rendezvous.max_restarts is not None:
        fields["maxRestarts"] = rendezvous.max_restarts
    return fields


def _build(build: Build) -> JsonObject:
    return _given(base=build.base, image=build.image, steps=list(build.steps), env=dict(build.env))


def _role(role: Role, main: MainContainer, *, compact: bool) -> JsonObject:
    fields: JsonObject = {"replicas": role.replicas}
    if (role.min, role.max) != (role.replicas, role.replicas):
        fields |= {"min": role.min, "max": role.max}
    fields["restartPolicy"] = role.restart_policy.value
    fields |= _template(role.template, Template(), main, compact=compact)
    if role.overrides:
        fields["overrides"] = [
            {"index": index, **_template(template, role.template, main, compact=compact)}
            for index, template in sorted(role.overrides.items())
        ]
    return fields


def _template(template: Template, base: Template, main: MainContainer, *, compact: bool) -> JsonObject:
    """The fields that differ from ``base``, or with a pod template, from that template."""
    fields: JsonObject = {}
    if template.pod != base.pod:
        fields["template"] = dict(template.pod)
        if template.pod and not compact:
            return fields | _fields(template)
        base = template_of(template.pod, main) if template.pod else Template()
    known = _fields(base)
    return fields | {key: value for key, value in _fields(template).items() if value != known[key]}


def _fields(template: Template) -> JsonObject:
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
        "tolerations": [write_toleration(toleration) for toleration in template.tolerations],
        "nodeAffinity": dict(template.node_affinity),
        "gracePeriod": format_duration(template.grace_s),
    }


def _resources(requests: Resources, limits: Resources) -> JsonObject:
    limited = native_amounts(limits)
    requested = {**dict.fromkeys(limited, 0), **native_amounts(requests)}
    return {"requests": requested, "limits": limited} if limited else requested


def native_amounts(resources: Resources) -> JsonObject:
    """Return amounts in the native format; zeros are left out."""
    named = _given(
        cpu=resources.cpu and format_cpu(resources.cpu),
        memory=resources.memory and format_bytes(resources.memory),
        gpu=resources.gpu and format_gpu(resources.gpu),
        gpuMemory=resources.gpu_memory and format_bytes(resources.gpu_memory),
        ephemeralStorage=resources.ephemeral_storage and format_bytes(resources.ephemeral_storage),
    )
    return {**named, **resources.extended}


def native_limits(limits: ResourceLimits) -> JsonObject:
    """Return limits in the native format; 0 is a limit."""
    formats: dict[str, tuple[str, Callable[[int], Json]]] = {
        "cpu": ("cpu", format_cpu),
        "memory": ("memory", format_bytes),
        "gpu": ("gpu", format_gpu),
        "gpu_memory": ("gpuMemory", format_bytes),
        "ephemeral_storage": ("ephemeralStorage", format_bytes),
    }
    fields: JsonObject = {}
    for name, amount in limits.amounts().items():
        key, form = formats.get(name, (name, int))
        fields[key] = form(amount)
    return fields


def _placement(placement: PlacementPolicy) -> JsonObject:
    return _given(
        strategy="" if placement.strategy is Strategy.PACK else placement.strategy.value,
        topology=placement.topology,
        required=placement.topology_required,
        gpuTopology=placement.gpu_topology,
    )


def _elastic(elastic: ElasticPolicy) -> JsonObject:
    cool_down = format_duration(elastic.cool_down_s) if elastic.cool_down_s else ""
    return _given(policy=elastic.policy, coolDown=cool_down, step=elastic.step)


def _run(run: RunPolicy) -> JsonObject:
    fields: JsonObject = {}
    if run.restart_scope is not None:
        fields["restartScope"] = run.restart_scope.value
    if run.backoff_limit != _DEFAULT_RUN.backoff_limit:
        fields["backoffLimit"] = run.backoff_limit
    for key, seconds in (
        ("activeDeadline", run.active_deadline_s),
        ("queueDeadline", run.queue_deadline_s),
        ("startTimeout", run.start_timeout_s),
        ("ttl", run.ttl_s),
    ):
        if seconds is not None:
            fields[key] = format_duration(seconds)
    if run.clean_pod_policy is not _DEFAULT_RUN.clean_pod_policy:
        fields["cleanPodPolicy"] = run.clean_pod_policy.value
    if run.success_policy is not _DEFAULT_RUN.success_policy:
        fields["successPolicy"] = run.success_policy.value
    return fields
