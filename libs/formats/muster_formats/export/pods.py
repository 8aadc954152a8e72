"""Writing templates as Kubernetes PodTemplateSpecs.

If a template has a raw pod template, only the fields that differ are set in it, so that fields that Muster does not read are kept.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import cast

from muster_core.models import GPU_MILLI, Job, Resources, Template
from muster_core.quantities import format_bytes, format_cpu
from muster_formats.export.losses import LossReport
from muster_formats.nodes import Json, JsonObject
from muster_formats.pods import (
    GPU_NAMES,
    KUBESHARE_LIMIT,
    KUBESHARE_MEMORY,
    KUBESHARE_REQUEST,
    MainContainer,
    template_of,
    write_toleration,
)

GPU = "nvidia.com/gpu"
"""The resource name of whole GPUs."""

_MAIN = "main"


def write_pod_template(template: Template, main: MainContainer, losses: LossReport) -> JsonObject:
    """Return the PodTemplateSpec of ``template``; ``losses`` are the role's.

    With ``main.kubeshare`` a share of a GPU is requested by annotations.
    """
    pod = cast("JsonObject", copy.deepcopy(template.pod)) or {
        "spec": {"containers": [{"name": main.container or _MAIN}]}
    }
    base = template_of(cast("dict[str, object]", pod), main)
    spec = _mapping(pod, "spec")
    container = find_main_container(spec, main)
    if main.required and main.container:
        container["name"] = main.container
    if not template.image:
        losses.error("image", "a container must have an image", fix="add image")
    _set_container(container, template, base)
    _set_metadata(pod, template, base)
    _set_spec(spec, template, base)
    if (template.requests, template.limits) != (base.requests, base.limits):
        if main.kubeshare and requests_gpu_share(template):
            _set_share(pod, template, losses)
        _set_resources(container, template, _has_other_resources(spec), main, losses)
    if not pod.get("metadata"):
        pod.pop("metadata", None)
    return pod


def write_metadata(job: Job, annotations: Mapping[str, str]) -> JsonObject:
    """Return a job's ``metadata``."""
    metadata: JsonObject = {"name": job.name, "namespace": job.namespace}
    if job.labels:
        metadata["labels"] = dict(job.labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    return metadata


def requests_gpu_share(template: Template) -> bool:
    """Whether a replica requests less than a whole GPU, or memory of a GPU."""
    amounts = (template.requests, template.limits)
    return any(amount.gpu % GPU_MILLI or amount.gpu_memory for amount in amounts)


def _mapping(parent: JsonObject, key: str) -> JsonObject:
    """The mapping under a key, which is added if it is missing."""
    value = parent.get(key)
    if not isinstance(value, dict):
        value = cast("JsonObject", {})
        parent[key] = value
    return value


def find_main_container(spec: JsonObject, main: MainContainer) -> JsonObject:
    """Return the container of a PodSpec that ``main`` names, else the first."""
    containers = [one for one in cast("list[Json]", spec.get("containers") or []) if isinstance(one, dict)]
    named = [one for one in containers if main.container and one.get("name") == main.container]
    return (named or containers)[0]


def _set_container(container: JsonObject, template: Template, base: Template) -> None:
    fields: dict[str, tuple[Json, Json]] = {
        "image": (template.image, base.image),
        "command": (list(template.command), list(base.command)),
        "args": (list(template.args), list(base.args)),
        "workingDir": (template.working_dir, base.working_dir),
        "ports": (_ports(template), _ports(base)),
    }
    _replace(container, fields)
    if template.env != base.env:
        kept = [one for one in cast("list[Json]", container.get("env") or []) if _has_source(one)]
        container["env"] = [*({"name": name, "value": value} for name, value in template.env.items()), *kept]


def _has_source(variable: Json) -> bool:
    return isinstance(variable, dict) and variable.get("valueFrom") is not None


def _ports(template: Template) -> Json:
    return [{"name": port.name, "containerPort": port.number} for port in template.ports]


def _set_metadata(pod: JsonObject, template: Template, base: Template) -> None:
    fields: dict[str, tuple[Json, Json]] = {
        "labels": (dict(template.labels), dict(base.labels)),
        "annotations": (dict(template.annotations), dict(base.annotations)),
    }
    _replace(_mapping(pod, "metadata"), fields)


def _set_spec(spec: JsonObject, template: Template, base: Template) -> None:
    fields: dict[str, tuple[Json, Json]] = {
        "nodeSelector": (dict(template.node_selector), dict(base.node_selector)),
        "tolerations": (
            [write_toleration(one) for one in template.tolerations],
            [write_toleration(one) for one in base.tolerations],
        ),
        "terminationGracePeriodSeconds": (template.grace_s, base.grace_s),
    }
    _replace(spec, fields)
    if template.node_affinity != base.node_affinity:
        _mapping(spec, "affinity")["nodeAffinity"] = dict(template.node_affinity)


def _replace(mapping: JsonObject, fields: Mapping[str, tuple[Json, Json]]) -> None:
    """Set the values that differ; remove those that are now empty."""
    for key, (value, known) in fields.items():
        if value == known:
            continue
        if value in ("", [], {}):
            mapping.pop(key, None)
        else:
            mapping[key] = value


def _has_other_resources(spec: JsonObject) -> bool:
    """Whether other parts of the pod than the main container have resources."""
    containers = cast("list[Json]", spec.get("containers") or [])
    return len(containers) > 1 or any(spec.get(key) for key in ("initContainers", "overhead", "resources"))


def _set_resources(
    container: JsonObject, template: Template, shared: bool, main: MainContainer, losses: LossReport
) -> None:
    requests, limits = template.requests, template.limits
    share = requests_gpu_share(template)
    if shared:
        why = "they are the sum of several containers"
        losses.error("resources", why, fix="set them in the template")
        return
    if share and (not main.kubeshare or max(requests.gpu, limits.gpu) > GPU_MILLI):
        losses.error("resources", "Kubernetes has whole GPUs only", fix="request whole GPUs")
    if not share and limits.gpu not in (0, requests.gpu):
        losses.warn("resources", "the limit of GPUs must equal the request")
    if any(requests.extended.get(name) != amount for name, amount in limits.extended.items()):
        losses.warn("resources", "the limit of an extended resource must equal the request")
    container["resources"] = _resources(requests, limits, share=share)


def _set_share(pod: JsonObject, template: Template, losses: LossReport) -> None:
    requests, limits = template.requests, template.limits
    annotations = _mapping(_mapping(pod, "metadata"), "annotations")
    losses.warn("annotations", "KubeShare's annotations are added, for the share of a GPU")
    if limits.gpu_memory != requests.gpu_memory:
        losses.warn("resources", "KubeShare's memory is both request and limit")
    annotations[KUBESHARE_REQUEST] = str(requests.gpu / GPU_MILLI)
    if limits.gpu:
        annotations[KUBESHARE_LIMIT] = str(limits.gpu / GPU_MILLI)
    if requests.gpu_memory:
        annotations[KUBESHARE_MEMORY] = str(requests.gpu_memory)


def _resources(requests: Resources, limits: Resources, *, share: bool) -> Json:
    """Requests and limits; extended resources are limits only, which are also the requests."""
    limited = _amounts(limits)
    requested = {**dict.fromkeys(limited, "0"), **_amounts(requests)}
    whole: dict[str, Json] = {} if share or not requests.gpu else {GPU: requests.gpu // GPU_MILLI}
    whole |= {name: amount for name, amount in requests.extended.items() if name not in GPU_NAMES}
    resources: dict[str, Json] = {}
    if requested:
        resources["requests"] = cast("Json", requested)
    if limited or whole:
        resources["limits"] = {**limited, **whole}
    return resources


def _amounts(resources: Resources) -> dict[str, str]:
    texts = {
        "cpu": format_cpu(resources.cpu) if resources.cpu else "",
        "memory": format_bytes(resources.memory) if resources.memory else "",
        "ephemeral-storage": format_bytes(resources.ephemeral_storage) if resources.ephemeral_storage else "",
    }
    return {name: text for name, text in texts.items() if text}
