"""``Job`` -> the native form: what ``parse`` reads back as the same job, defaults left out."""

from __future__ import annotations

import yaml

from muster_core.dialects.names import Schema
from muster_core.dialects.native_keys import API_VERSION, KIND
from muster_core.dialects.scalars import NumberError, resolve
from muster_core.dialects.yaml_builder import Json
from muster_core.models import (
    ElasticPolicy,
    Job,
    PlacementPolicy,
    Resources,
    Role,
    RunPolicy,
    Template,
    Toleration,
)
from muster_core.quantities import format_bytes, format_cpu, format_duration, format_gpu

_DEFAULT_RUN = RunPolicy()


def to_native(job: Job) -> Schema:
    """The native document of a job, as JSON. Where the job came from and its warnings are not part of it."""
    metadata: Schema = {"name": job.name, "namespace": job.namespace}
    metadata |= _given(labels=dict(job.labels), annotations=dict(job.annotations))
    spec: Schema = {"framework": job.framework.value, "kind": job.kind.value}
    spec |= _given(
        queue=job.queue, priority=job.priority, minAvailable=job.min_available, suspend=job.run.suspend
    )
    if not job.preemptible:
        spec["preemptible"] = False
    spec["roles"] = {role.name: _role(role) for role in job.roles}
    spec |= _given(placement=_placement(job.placement), elastic=_elastic(job.elastic), run=_run(job.run))
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def native_text(job: Job) -> str:
    """The native document of a job, as YAML."""
    return yaml.dump(to_native(job), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """Writes texts in quotes wherever they would be read as something else."""

    def ignore_aliases(self, data: object) -> bool:
        """Never: every value is spelt out."""
        del data
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    del dumper
    try:
        plain = isinstance(resolve(text), str)
    except NumberError:
        plain = False
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _represent_text)


def _given(**fields: Json) -> Schema:
    return {key: value for key, value in fields.items() if value not in (None, "", 0, False, [], {})}


def _role(role: Role) -> Schema:
    said: Schema = {"replicas": role.replicas}
    if (role.min, role.max) != (role.replicas, role.replicas):
        said |= {"min": role.min, "max": role.max}
    said["restartPolicy"] = role.restart_policy.value
    said |= _whole(role.template)
    if role.overrides:
        said["overrides"] = [
            {"index": index, **_override(template, role.template)}
            for index, template in sorted(role.overrides.items())
        ]
    return said


def _whole(template: Template) -> Schema:
    if template.pod:
        return {"template": dict(template.pod)}
    return {key: value for key, value in _fields(template).items() if value != _fields(Template())[key]}


def _override(template: Template, base: Template) -> Schema:
    if template.pod:
        return {"template": dict(template.pod)}
    known = _fields(base)
    return {key: value for key, value in _fields(template).items() if value != known[key]}


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
    asked, held = _amounts(requests), _amounts(limits)
    return {"requests": asked, "limits": held} if held else asked


def _amounts(resources: Resources) -> Schema:
    named = _given(
        cpu=resources.cpu and format_cpu(resources.cpu),
        memory=resources.memory and format_bytes(resources.memory),
        gpu=resources.gpu and format_gpu(resources.gpu),
        gpuMemory=resources.gpu_memory and format_bytes(resources.gpu_memory),
        ephemeralStorage=resources.ephemeral_storage and format_bytes(resources.ephemeral_storage),
    )
    return {**named, **resources.extended}


def _toleration(toleration: Toleration) -> Schema:
    return {
        "operator": toleration.operator,
        **_given(key=toleration.key, value=toleration.value, effect=toleration.effect),
    }


def _placement(placement: PlacementPolicy) -> Schema:
    if placement == PlacementPolicy():
        return {}
    return {
        "strategy": placement.strategy.value,
        **_given(
            topology=placement.topology,
            required=placement.topology_required,
            gpuTopology=placement.gpu_topology,
        ),
    }


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
