"""``Template`` -> the Kubernetes PodTemplateSpec that says the same.

Where a template has one already, only what differs from it is put into it, so that what Muster does not read stays as it was.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import cast

from muster_core.models import GPU_MILLI, Job, Resources, Template, Toleration
from muster_core.quantities import format_bytes, format_cpu
from muster_formats.export.losses import Losses
from muster_formats.names import Schema
from muster_formats.pods.kubeshare import LIMIT, MEMORY, REQUEST
from muster_formats.pods.resource_lists import GPU_NAMES
from muster_formats.pods.template import Main
from muster_formats.typed.raw import Raw, template_of
from muster_formats.yaml_builder import Json

GPU = "nvidia.com/gpu"
"""The name by which whole GPUs are asked for."""

_MAIN = "main"


def write_pod_template(template: Template, main: Main, losses: Losses) -> Raw:
    """The PodTemplateSpec of ``template``, whose main container is the one that ``main`` looks for; ``losses`` are the role's.

    ``main.kubeshare``: whether a share of a GPU is asked for by annotations.
    """
    pod = cast("Raw", copy.deepcopy(template.pod)) or {
        "spec": {"containers": [{"name": main.container or _MAIN}]}
    }
    base = template_of(cast("dict[str, object]", pod), main)
    spec = _mapping(pod, "spec")
    container = main_container(spec, main)
    if main.required and main.container:
        container["name"] = main.container
    if not template.image:
        losses.refuse("image", "a container has an image", fix="give it an image")
    _set_container(container, template, base)
    _set_metadata(pod, template, base)
    _set_spec(spec, template, base)
    if (template.requests, template.limits) != (base.requests, base.limits):
        if main.kubeshare and asks_for_share(template):
            _set_share(pod, template, losses)
        _set_resources(container, template, _others(spec), main, losses)
    if not pod.get("metadata"):
        pod.pop("metadata", None)
    return pod


def write_metadata(job: Job, annotations: Mapping[str, str]) -> Schema:
    """A job's ``metadata`` in the Kubernetes manner."""
    metadata: Schema = {"name": job.name, "namespace": job.namespace}
    if job.labels:
        metadata["labels"] = dict(job.labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    return metadata


def asks_for_share(template: Template) -> bool:
    """Whether a replica asks for less than a whole GPU, or for some of a GPU's memory."""
    amounts = (template.requests, template.limits)
    return any(amount.gpu % GPU_MILLI or amount.gpu_memory for amount in amounts)


def _mapping(parent: Raw, key: str) -> Raw:
    """The mapping under a key, put there if it is missing."""
    value = parent.get(key)
    if not isinstance(value, dict):
        value = cast("Raw", {})
        parent[key] = value
    return value


def main_container(spec: Raw, main: Main) -> Raw:
    """The container of a PodSpec that ``main`` looks for, else the first."""
    containers = [one for one in cast("list[Json]", spec.get("containers") or []) if isinstance(one, dict)]
    named = [one for one in containers if main.container and one.get("name") == main.container]
    return (named or containers)[0]


def _set_container(container: Raw, template: Template, base: Template) -> None:
    fields: dict[str, tuple[Json, Json]] = {
        "image": (template.image, base.image),
        "command": (list(template.command), list(base.command)),
        "args": (list(template.args), list(base.args)),
        "workingDir": (template.working_dir, base.working_dir),
        "ports": (_ports(template), _ports(base)),
    }
    _replace(container, fields)
    if template.env != base.env:
        kept = [one for one in cast("list[Json]", container.get("env") or []) if _from_elsewhere(one)]
        container["env"] = [*({"name": name, "value": value} for name, value in template.env.items()), *kept]


def _from_elsewhere(variable: Json) -> bool:
    return isinstance(variable, dict) and variable.get("valueFrom") is not None


def _ports(template: Template) -> Json:
    return [{"name": port.name, "containerPort": port.number} for port in template.ports]


def _set_metadata(pod: Raw, template: Template, base: Template) -> None:
    fields: dict[str, tuple[Json, Json]] = {
        "labels": (dict(template.labels), dict(base.labels)),
        "annotations": (dict(template.annotations), dict(base.annotations)),
    }
    _replace(_mapping(pod, "metadata"), fields)


def _set_spec(spec: Raw, template: Template, base: Template) -> None:
    fields: dict[str, tuple[Json, Json]] = {
        "nodeSelector": (dict(template.node_selector), dict(base.node_selector)),
        "tolerations": (_tolerations(template), _tolerations(base)),
        "terminationGracePeriodSeconds": (template.grace_s, base.grace_s),
    }
    _replace(spec, fields)
    if template.node_affinity != base.node_affinity:
        _mapping(spec, "affinity")["nodeAffinity"] = dict(template.node_affinity)


def _tolerations(template: Template) -> Json:
    return [_toleration(toleration) for toleration in template.tolerations]


def _toleration(toleration: Toleration) -> Json:
    fields = {"key": toleration.key, "value": toleration.value, "effect": toleration.effect}
    return {"operator": toleration.operator, **{key: value for key, value in fields.items() if value}}


def _replace(mapping: Raw, fields: Mapping[str, tuple[Json, Json]]) -> None:
    """Put in what differs; what is empty and was not is taken out."""
    for key, (value, known) in fields.items():
        if value == known:
            continue
        if value in ("", [], {}):
            mapping.pop(key, None)
        else:
            mapping[key] = value


def _others(spec: Raw) -> bool:
    """Whether the pod's amounts are not those of the main container alone."""
    containers = cast("list[Json]", spec.get("containers") or [])
    return len(containers) > 1 or any(spec.get(key) for key in ("initContainers", "overhead", "resources"))


def _set_resources(container: Raw, template: Template, others: bool, main: Main, losses: Losses) -> None:
    requests, limits = template.requests, template.limits
    share = asks_for_share(template)
    if others:
        why = "the amounts are those of several containers, and cannot be told apart"
        losses.refuse("resources", why, fix="say them in the template")
        return
    if share and (not main.kubeshare or max(requests.gpu, limits.gpu) > GPU_MILLI):
        losses.refuse("resources", "Kubernetes knows whole GPUs only", fix="ask for whole GPUs")
    if not share and limits.gpu not in (0, requests.gpu):
        losses.lose("resources", "as many GPUs are requested as the limit allows")
    if any(requests.extended.get(name) != amount for name, amount in limits.extended.items()):
        losses.lose("resources", "as much of an extended resource is requested as the limit allows")
    container["resources"] = _resources(requests, limits, share=share)


def _set_share(pod: Raw, template: Template, losses: Losses) -> None:
    requests, limits = template.requests, template.limits
    annotations = _mapping(_mapping(pod, "metadata"), "annotations")
    losses.lose("annotations", "KubeShare's are added, for the share of a GPU")
    if limits.gpu_memory != requests.gpu_memory:
        losses.lose("resources", "KubeShare's memory is both what is requested and the limit")
    annotations[REQUEST] = str(requests.gpu / GPU_MILLI)
    if limits.gpu:
        annotations[LIMIT] = str(limits.gpu / GPU_MILLI)
    if requests.gpu_memory:
        annotations[MEMORY] = str(requests.gpu_memory)


def _resources(requests: Resources, limits: Resources, *, share: bool) -> Json:
    """Requests and limits as Kubernetes wants them: what is neither CPU, memory nor storage is a limit, and requested as such."""
    held = _amounts(limits)
    asked = {**dict.fromkeys(held, "0"), **_amounts(requests)}
    whole: dict[str, Json] = {} if share or not requests.gpu else {GPU: requests.gpu // GPU_MILLI}
    whole |= {name: amount for name, amount in requests.extended.items() if name not in GPU_NAMES}
    said: dict[str, Json] = {}
    if asked:
        said["requests"] = cast("Json", asked)
    if held or whole:
        said["limits"] = {**held, **whole}
    return said


def _amounts(resources: Resources) -> dict[str, str]:
    texts = {
        "cpu": format_cpu(resources.cpu) if resources.cpu else "",
        "memory": format_bytes(resources.memory) if resources.memory else "",
        "ephemeral-storage": format_bytes(resources.ephemeral_storage) if resources.ephemeral_storage else "",
    }
    return {name: text for name, text in texts.items() if text}
