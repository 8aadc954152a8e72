"""A launch as a pod: the user's own template where there is one, with what Muster decides put into it.

Pure. The node is written into the pod, so no scheduler looks at it: one write instead of three, and the kubelet has the last word.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from muster_core.frameworks import ConfigFile
from muster_core.models import GPU_MILLI, Framework, Job, Port, Resources, Template
from muster_formats.defaults.apply import to_kubernetes
from muster_formats.pods.keys import PodKeys
from muster_runtimes.kubernetes.config import volumes
from muster_runtimes.kubernetes.labels import ADDRESS, FINALIZER, MAIN_CONTAINER, MEMBERS, run_labels
from muster_runtimes.kubernetes.requests import write_quantities
from muster_runtimes.kubernetes.services import LONGEST_NAME
from muster_runtimes.ports import Launch

Json = dict[str, Any]

MAIN = "main"
"""What the container is called where the user's document has no containers."""

_CONTAINERS = {
    Framework.TENSORFLOW: "tensorflow",
    Framework.PYTORCH: "pytorch",
    Framework.XGBOOST: "xgboost",
    Framework.PADDLE: "paddle",
    Framework.JAX: "jax",
    Framework.MXNET: "mxnet",
}
_WITHOUT_EFFECT = frozenset(field.key for field in PodKeys.fields().values() if field.idle)
_AWAY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class PodOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same for all pods of a cluster.

    ``pool`` is whose they are. ``gpu_resource`` is the device plug-in's name for a GPU. ``node_lost_s`` is how long a pod stands a node
    that is not heard of.
    """

    pool: str
    gpu_resource: str = "nvidia.com/gpu"
    node_lost_s: int = 60


def why_not(launch: Launch) -> str:
    """Why a launch can be no pod, in words for its user; empty where it can."""
    template = launch.template
    spec: Json = template.pod.get("spec") or {}
    if launch.is_build:
        return "images are not built on Kubernetes: build the image elsewhere, and name it in the job"
    if not template.image and not spec.get("containers"):
        return "on Kubernetes a replica needs an image"
    if len(launch.name) > LONGEST_NAME:
        return f"the name {launch.name} is longer than {LONGEST_NAME} characters: give the job a shorter one"
    if template.requests.gpu % GPU_MILLI:
        return "a share of a GPU cannot be had on Kubernetes: ask for whole ones"
    containers: list[Json] = spec.get("containers") or []
    asked: list[Json] = [one.get("resources") or {} for one in containers]
    if spec.get("resourceClaims") or any(resources.get("claims") for resources in asked):
        return "resource claims (DRA) are allocated by kube-scheduler alone, which does not place these pods"
    return ""


def make_pod(
    launch: Launch,
    job: Job,
    *,
    owner: Json | None,
    files: Mapping[str, ConfigFile],
    options: PodOptions,
    members: str | None = None,
) -> Json:
    """The pod of one run of a replica.

    ``owner`` refers to what it goes with; ``members`` is the list of them, where no config map has it.
    """
    template = launch.template
    pod: Json = copy.deepcopy(template.pod) if template.pod else _bare(template, options)
    spec: Json = pod.setdefault("spec", {})
    for key in _WITHOUT_EFFECT:
        spec.pop(key, None)
    main = main_container(spec["containers"], template, job.framework)
    _tell(main, launch)
    mounted, mounts = volumes(job.name, files, carried=members is not None)
    spec["volumes"] = [*(spec.get("volumes") or ()), *mounted]
    main["volumeMounts"] = [*(main.get("volumeMounts") or ()), *mounts]
    spec["tolerations"] = _tolerations(spec.get("tolerations") or [], options)
    spec |= {
        "nodeName": launch.node,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": template.grace_s,
    }
    said: Json = pod.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": launch.name,
            "namespace": job.namespace,
            "labels": {
                **job.labels,
                **(said.get("labels") or template.labels),
                **run_labels(launch.replica, job, pool=options.pool, generation=launch.generation),
            },
            "annotations": {
                **(said.get("annotations") or template.annotations),
                MAIN_CONTAINER: main["name"],
                ADDRESS: launch.env.get("MUSTER_ADDRESS", ""),
                **({} if members is None else {MEMBERS: members}),
            },
            "finalizers": [FINALIZER],
            "ownerReferences": [] if owner is None else [owner],
        },
        "spec": spec,
    }


def main_container(containers: Sequence[Json], template: Template, framework: Framework) -> Json:
    """The container whose end is the replica's: the one that the template was read from, of several the one with the framework's name."""
    wanted = _CONTAINERS.get(framework)
    alike = [container for container in containers if _is_of(container, template)]
    named = [container for container in alike or containers if container.get("name") == wanted]
    return (named or alike or containers)[0]


def _is_of(container: Json, template: Template) -> bool:
    same_image = (container.get("image") or "") == template.image
    same_words = tuple(container.get("args") or ()) == template.args
    # A framework may have given a replica a command that its author left out.
    same_command = tuple(container.get("command") or template.command) == template.command
    return same_image and same_words and same_command


def _bare(template: Template, options: PodOptions) -> Json:
    container: Json = {"name": MAIN, "image": template.image}
    if template.working_dir:
        container["workingDir"] = template.working_dir
    if template.args:
        container["args"] = list(template.args)
    if template.ports:
        container["ports"] = [_port(port) for port in template.ports]
    if resources := _resources(template, options):
        container["resources"] = resources
    spec: Json = {"containers": [container]}
    if template.node_selector:
        spec["nodeSelector"] = dict(template.node_selector)
    if template.node_affinity:
        spec["affinity"] = {"nodeAffinity": template.node_affinity}
    if template.tolerations:
        spec["tolerations"] = [to_kubernetes(toleration) for toleration in template.tolerations]
    return {"spec": spec}


def _port(port: Port) -> Json:
    return {"name": port.name, "containerPort": port.number}


def _resources(template: Template, options: PodOptions) -> Json:
    requests = write_quantities(template.requests, gpu_resource=options.gpu_resource)
    # Devices and other extended resources cannot be promised beyond what is asked for.
    devices = Resources(gpu=template.requests.gpu, extended=template.requests.extended)
    limits = write_quantities(template.limits, gpu_resource=options.gpu_resource) | write_quantities(
        devices, gpu_resource=options.gpu_resource
    )
    said = {"requests": requests, "limits": limits}
    return {name: quantities for name, quantities in said.items() if quantities}


def _tell(container: Json, launch: Launch) -> None:
    """What the replica is told comes first, so that its author's variables can refer to it; then these, in their order."""
    template = launch.template
    if template.command:
        container["command"] = list(template.command)
    own: list[Json] = container.get("env") or [
        {"name": name, "value": value} for name, value in template.env.items()
    ]
    told = {
        name: value
        for name, value in launch.env.items()
        if name not in template.env or template.env[name] != value
    }
    container["env"] = [
        *({"name": name, "value": _plain(value)} for name, value in told.items()),
        *(variable for variable in own if variable.get("name") not in told),
    ]


def _plain(value: str) -> str:
    """A value that Kubernetes is to hand over as it is."""
    return value.replace("$", "$$") if "$(" in value or "$$" in value else value


def _tolerations(own: list[Json], options: PodOptions) -> list[Json]:
    """The author's own, and a bound on how long a node may stay away where the author gave none."""
    stood = {cast("str", toleration.get("key") or "") for toleration in own}
    if "" in stood:
        return own
    return [
        *own,
        *(
            {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": options.node_lost_s,
            }
            for key in _AWAY
            if key not in stood
        ),
    ]
