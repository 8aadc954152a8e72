"""DOC."""

from __future__ import annotations

import base64
import copy
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from muster_core.frameworks import ConfigFile, port_of
from muster_core.models import GPU_MILLI, Framework, Job, Port, Resources, Template, replica_name
from muster_formats.defaults.apply import to_kubernetes
from muster_formats.pods.keys import PodKeys
from muster_runtimes.kubernetes.labels import (
    ADDRESS,
    FINALIZER,
    MAIN_CONTAINER,
    MEMBERS,
    address_labels,
    is_addressed,
    job_labels,
    run_labels,
)
from muster_runtimes.kubernetes.nodes import format_resource_list
from muster_runtimes.protocols import Launch

MEMBERS_KEY = "members.json"
MEMBERS_DIRECTORY = "/etc/muster"
FILES_DIRECTORY = "/etc/mpi"
MEMBERS_VOLUME = "muster-members"
FILES_VOLUME = "muster-files"

MEMBERS_PATH = f"{MEMBERS_DIRECTORY}/{MEMBERS_KEY}"

_MOST_WITHOUT = 16
"""The largest gang without a config map. Each pod carries the whole list, so that a large one would carry it too often."""

REMOTE_SHELL = """#!/bin/sh
exec ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "$@"
"""
"""Called as ``rsh`` is. Images of MPI bring ssh and their own keys."""


def config_map_name(job: str) -> str:
    """The name of a job's config map."""
    return f"{job}-config"


def needs_config_map(job: Job) -> bool:
    """Whether the job has a config map: its members change, there are too many of them, or it has services, which need an owner.

    A job that has files for its framework needs one in any case.
    """
    changes = any(not role.min == role.replicas == role.max for role in job.roles)
    return changes or is_addressed(job) or sum(role.replicas for role in job.roles) > _MOST_WITHOUT


def config_map_manifest(
    job_id: str, job: Job, *, pool: str, members: bytes | None, files: Mapping[str, ConfigFile]
) -> dict[str, Any]:
    """The config map, with everything that it is to hold."""
    contents = {name: file.content for name, file in files.items()}
    if members is not None:
        contents[MEMBERS_KEY] = members
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": config_map_name(job.name),
            "namespace": job.namespace,
            "labels": job_labels(job_id, job, pool=pool),
        },
        "binaryData": {name: base64.b64encode(content).decode() for name, content in contents.items()},
    }


def volumes(
    job: str, files: Mapping[str, ConfigFile], *, carried: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The volumes of a pod of the job, and where its container sees them; ``carried``: the pod has the list of members itself."""
    name = config_map_name(job)
    made: list[dict[str, Any]] = [{"name": MEMBERS_VOLUME, **(_CARRIED if carried else _listed(name))}]
    mounts = [_mount(MEMBERS_VOLUME, MEMBERS_DIRECTORY)]
    if files:
        items = [{"key": key, "path": key, "mode": file.mode} for key, file in sorted(files.items())]
        made.append({"name": FILES_VOLUME, "configMap": {"name": name, "items": items}})
        mounts.append(_mount(FILES_VOLUME, FILES_DIRECTORY))
    return made, mounts


def config_map_owner(job: str, uid: str) -> dict[str, Any]:
    """The reference that makes an object go with its job's config map."""
    return _owner("ConfigMap", config_map_name(job), uid)


def node_owner(name: str, uid: str) -> dict[str, Any]:
    """The reference that makes a pod go with its node."""
    return _owner("Node", name, uid)


_CARRIED: dict[str, Any] = {
    "downwardAPI": {
        "items": [{"path": MEMBERS_KEY, "fieldRef": {"fieldPath": f"metadata.annotations['{MEMBERS}']"}}]
    }
}


def _listed(name: str) -> dict[str, Any]:
    return {"configMap": {"name": name, "items": [{"key": MEMBERS_KEY, "path": MEMBERS_KEY}]}}


def _owner(kind: str, name: str, uid: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def _mount(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "mountPath": path, "readOnly": True}


MAX_NAME_LENGTH = 63
"""Of a service, since its name is part of a host's."""


def service_manifest(
    job_id: str, job: Job, role: str, index: int, *, pool: str, owner_uid: str
) -> dict[str, Any]:
    """The service of one replica. Peers may look for it before it is ready."""
    selector = address_labels(job_id, role, index)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": replica_name(job.name, role, index),
            "namespace": job.namespace,
            "labels": job_labels(job_id, job, pool=pool) | selector,
            "ownerReferences": [config_map_owner(job.name, owner_uid)],
        },
        "spec": {
            "clusterIP": "None",
            "selector": selector,
            "publishNotReadyAddresses": True,
            "ports": [{"name": "job", "port": port_of(job, role, index)}],
        },
    }


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


def unsupported_reason(launch: Launch) -> str:
    """Why a launch can be no pod, in words for its user; empty where it can."""
    template = launch.template
    spec: Json = template.pod.get("spec") or {}
    if launch.is_build:
        return "images are not built on Kubernetes: build the image elsewhere, and name it in the job"
    if not template.image and not spec.get("containers"):
        return "on Kubernetes a replica needs an image"
    if len(launch.name) > MAX_NAME_LENGTH:
        return (
            f"the name {launch.name} is longer than {MAX_NAME_LENGTH} characters: give the job a shorter one"
        )
    if template.requests.gpu % GPU_MILLI:
        return "a share of a GPU cannot be had on Kubernetes: ask for whole ones"
    containers: list[Json] = spec.get("containers") or []
    stop_requested: list[Json] = [one.get("resources") or {} for one in containers]
    if spec.get("resourceClaims") or any(resources.get("claims") for resources in stop_requested):
        return "resource claims (DRA) are allocated by kube-scheduler alone, which does not place these pods"
    return ""


def pod_manifest(
    launch: Launch,
    job: Job,
    *,
    config_map_owner: Json | None,
    files: Mapping[str, ConfigFile],
    options: PodOptions,
    members: str | None = None,
) -> Json:
    """The pod of one run of a replica.

    ``config_map_owner`` refers to what it goes with; ``members`` is the list of them, where no config map has it.
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
            "ownerReferences": [] if config_map_owner is None else [config_map_owner],
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
    requests = format_resource_list(template.requests, gpu_resource=options.gpu_resource)
    # Devices and other extended resources cannot be promised beyond what is asked for.
    devices = Resources(gpu=template.requests.gpu, extended=template.requests.extended)
    limits = format_resource_list(template.limits, gpu_resource=options.gpu_resource) | format_resource_list(
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
