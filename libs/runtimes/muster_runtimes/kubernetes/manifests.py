"""The objects of a job: its pods, its config map and its headless services. Pure.

A pod is the user's own template, if there is one, with Muster's decisions added. The manifest has the node's name, so no scheduler
handles it: one write instead of three, and the kubelet has the last word.

The config map holds the list of members and the files of the job's framework, and owns all objects of the job. A change reaches running
replicas when their kubelet syncs its volumes (about a minute). A small gang of fixed size without services needs no config map: each
pod carries the list in an annotation, and is owned by its node.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from muster_core.frameworks import ConfigFile, port_of
from muster_core.models import GPU_MILLI, Framework, Job, Resources, Template, replica_name
from muster_core.quantities import format_bytes, format_cpu
from muster_formats.defaults import write_toleration
from muster_formats.pods import PodSpecFields
from muster_runtimes.kubernetes.labels import (
    ADDRESS,
    FINALIZER,
    GPUS,
    MAIN_CONTAINER,
    MEMBERS,
    RETAINED_JOB,
    address_labels,
    is_addressed,
    job_labels,
    run_labels,
)
from muster_runtimes.protocols import Launch

Json = dict[str, Any]

MEMBERS_KEY = "members.json"
RETAINED_KEY = "job.json"
MEMBERS_DIRECTORY = "/etc/muster"
FILES_DIRECTORY = "/etc/mpi"
MEMBERS_VOLUME = "muster-members"
FILES_VOLUME = "muster-files"
MEMBERS_PATH = f"{MEMBERS_DIRECTORY}/{MEMBERS_KEY}"

REMOTE_SHELL = """#!/bin/sh
exec ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "$@"
"""
"""A script that is called like ``rsh``. Images for MPI have ssh and keys of their own."""

MAX_NAME_LENGTH = 63
"""The longest name of a service, as a label of a host name."""

MAIN = "main"
"""The name of the container if the user's document has none."""

_MAX_GANG_WITHOUT_CONFIG_MAP = 16
_CONTAINER_NAMES = {
    Framework.TENSORFLOW: "tensorflow",
    Framework.PYTORCH: "pytorch",
    Framework.XGBOOST: "xgboost",
    Framework.PADDLE: "paddle",
    Framework.JAX: "jax",
    Framework.MXNET: "mxnet",
}
_KEYS_WITHOUT_EFFECT = frozenset(field.key for field in PodSpecFields.fields().values() if field.ignored)
_NODE_UNAVAILABLE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def config_map_name(job: str) -> str:
    """Return the name of a job's config map."""
    return f"{job}-config"


def needs_config_map(job: Job) -> bool:
    """Whether a job without framework files has a config map: it is elastic, has services, or its gang is large.

    Each pod of a job without a config map carries the whole list of members, which is too much for a large gang.
    """
    elastic = any(not role.min == role.replicas == role.max for role in job.roles)
    large = sum(role.replicas for role in job.roles) > _MAX_GANG_WITHOUT_CONFIG_MAP
    return elastic or is_addressed(job) or large


def config_map_manifest(
    job_id: str,
    job: Job,
    *,
    pool: str,
    members: bytes | None,
    files: Mapping[str, ConfigFile],
    retained: bytes | None = None,
) -> Json:
    """Return the config map of a job; ``retained`` recreates its record."""
    contents = {name: file.content for name, file in files.items()}
    contents |= {
        key: content
        for key, content in ((MEMBERS_KEY, members), (RETAINED_KEY, retained))
        if content is not None
    }
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


def service_manifest(job_id: str, job: Job, role: str, index: int, *, pool: str, owner_uid: str) -> Json:
    """Return the headless service of a replica. It publishes the address before the pod is ready, because peers look it up early."""
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


def config_map_owner(job: str, uid: str) -> Json:
    """Return the owner reference to a job's config map."""
    return _owner("ConfigMap", config_map_name(job), uid)


def node_owner(name: str, uid: str) -> Json:
    """Return the owner reference to a node."""
    return _owner("Node", name, uid)


class PodOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What all pods of a cluster have in common.

    Attributes:
        pool: The pool of the pods.
        gpu_resource: The device plug-in's name for GPUs.
        node_lost_s: How long a pod tolerates an unavailable node, in seconds.
    """

    pool: str
    gpu_resource: str = "nvidia.com/gpu"
    node_lost_s: int = 60


def unsupported_reason(launch: Launch) -> str:
    """Return why no pod can be made of a launch, for the user; empty if one can."""
    template = launch.template
    spec: Json = template.pod.get("spec") or {}
    if launch.is_build:
        return "the Kubernetes runtime does not build images; build the image elsewhere and set it in the job"
    if not template.image and not spec.get("containers"):
        return "the replica has no image; on Kubernetes, set image"
    if len(launch.name) > MAX_NAME_LENGTH:
        return (
            f"the name {launch.name} is longer than {MAX_NAME_LENGTH} characters; give the job a shorter name"
        )
    if template.requests.gpu % GPU_MILLI:
        return "Kubernetes cannot allocate a fraction of a GPU; request whole GPUs"
    containers: list[Json] = spec.get("containers") or []
    resources: list[Json] = [container.get("resources") or {} for container in containers]
    if spec.get("resourceClaims") or any(each.get("claims") for each in resources):
        return "resource claims (DRA) are not supported: only kube-scheduler allocates them, and Muster places these pods itself"
    return ""


def pod_manifest(
    launch: Launch,
    job: Job,
    *,
    owner: Json | None,
    files: Mapping[str, ConfigFile],
    options: PodOptions,
    members: str | None = None,
    retained: str | None = None,
) -> Json:
    """Return the pod of one run of a replica.

    Args:
        launch: What to start, and where.
        job: The job of the replica.
        owner: The owner reference of the pod, if any.
        files: The files of the framework, in the job's config map.
        options: What all pods have in common.
        members: The list of members, for a job without a config map.
        retained: What recreates the record of a job without a config map, encoded for an annotation.
    """
    template = launch.template
    pod: Json = copy.deepcopy(template.pod) if template.pod else _pod_of(template, options)
    spec: Json = pod.setdefault("spec", {})
    for key in _KEYS_WITHOUT_EFFECT:
        spec.pop(key, None)
    main = main_container(spec["containers"], template, job.framework)
    _add_environment(main, launch)
    volumes, mounts = _volumes(job.name, files, in_annotation=members is not None)
    spec["volumes"] = [*(spec.get("volumes") or ()), *volumes]
    main["volumeMounts"] = [*(main.get("volumeMounts") or ()), *mounts]
    spec["tolerations"] = _tolerations(spec.get("tolerations") or [], options)
    spec |= {
        "nodeName": launch.node,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": template.grace_s,
    }
    own: Json = pod.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": launch.name,
            "namespace": job.namespace,
            "labels": {
                **job.labels,
                **(own.get("labels") or template.labels),
                **run_labels(launch.replica, job, pool=options.pool, generation=launch.generation),
            },
            "annotations": {
                **(own.get("annotations") or template.annotations),
                MAIN_CONTAINER: main["name"],
                ADDRESS: launch.env.get("MUSTER_ADDRESS", ""),
                **({} if members is None else {MEMBERS: members}),
                **({} if retained is None else {RETAINED_JOB: retained}),
                **({GPUS: ",".join(map(str, launch.gpus))} if launch.gpus else {}),
            },
            "finalizers": [FINALIZER],
            "ownerReferences": [] if owner is None else [owner],
        },
        "spec": spec,
    }


def main_container(containers: Sequence[Json], template: Template, framework: Framework) -> Json:
    """Return the container whose end is the replica's end.

    It is the container that the template was read from; of several such containers, the one with the framework's name.
    """
    wanted = _CONTAINER_NAMES.get(framework)
    alike = [container for container in containers if _matches(container, template)]
    named = [container for container in alike or containers if container.get("name") == wanted]
    return (named or alike or containers)[0]


def format_resource_list(resources: Resources, *, gpu_resource: str) -> dict[str, str]:
    """Return the resource list of some amounts, without zeros; ``gpu_resource`` is the device plug-in's name for GPUs."""
    quantities = {
        "cpu": format_cpu(resources.cpu) if resources.cpu else "",
        "memory": format_bytes(resources.memory) if resources.memory else "",
        "ephemeral-storage": format_bytes(resources.ephemeral_storage) if resources.ephemeral_storage else "",
        gpu_resource: str(resources.gpu // GPU_MILLI) if resources.gpu else "",
        **{name: str(amount) for name, amount in resources.extended.items() if amount},
    }
    return {name: quantity for name, quantity in quantities.items() if quantity}


def _volumes(
    job: str, files: Mapping[str, ConfigFile], *, in_annotation: bool
) -> tuple[list[Json], list[Json]]:
    """Return volumes and mounts for the list of members (from the pod's annotation or the config map) and the files."""
    name = config_map_name(job)
    members = (
        {"downwardAPI": {"items": [{"path": MEMBERS_KEY, "fieldRef": _MEMBERS_FIELD}]}}
        if in_annotation
        else {"configMap": {"name": name, "items": [{"key": MEMBERS_KEY, "path": MEMBERS_KEY}]}}
    )
    volumes: list[Json] = [{"name": MEMBERS_VOLUME, **members}]
    mounts = [_mount(MEMBERS_VOLUME, MEMBERS_DIRECTORY)]
    if files:
        items = [{"key": key, "path": key, "mode": file.mode} for key, file in sorted(files.items())]
        volumes.append({"name": FILES_VOLUME, "configMap": {"name": name, "items": items}})
        mounts.append(_mount(FILES_VOLUME, FILES_DIRECTORY))
    return volumes, mounts


_MEMBERS_FIELD = {"fieldPath": f"metadata.annotations['{MEMBERS}']"}


def _mount(name: str, path: str) -> Json:
    return {"name": name, "mountPath": path, "readOnly": True}


def _owner(kind: str, name: str, uid: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def _matches(container: Json, template: Template) -> bool:
    same_image = (container.get("image") or "") == template.image
    same_args = tuple(container.get("args") or ()) == template.args
    # A framework may have added a command that the document leaves out.
    same_command = tuple(container.get("command") or template.command) == template.command
    return same_image and same_args and same_command


def _pod_of(template: Template, options: PodOptions) -> Json:
    container: Json = {"name": MAIN, "image": template.image}
    if template.working_dir:
        container["workingDir"] = template.working_dir
    if template.args:
        container["args"] = list(template.args)
    if template.ports:
        container["ports"] = [{"name": port.name, "containerPort": port.number} for port in template.ports]
    if resources := _resources(template, options):
        container["resources"] = resources
    spec: Json = {"containers": [container]}
    if template.node_selector:
        spec["nodeSelector"] = dict(template.node_selector)
    if template.node_affinity:
        spec["affinity"] = {"nodeAffinity": template.node_affinity}
    if template.tolerations:
        spec["tolerations"] = [write_toleration(toleration) for toleration in template.tolerations]
    return {"spec": spec}


def _resources(template: Template, options: PodOptions) -> Json:
    gpu = options.gpu_resource
    requests = format_resource_list(template.requests, gpu_resource=gpu)
    # Extended resources cannot be overcommitted: their limits must equal their requests.
    devices = Resources(gpu=template.requests.gpu, extended=template.requests.extended)
    limits = format_resource_list(template.limits, gpu_resource=gpu) | format_resource_list(
        devices, gpu_resource=gpu
    )
    resources = {"requests": requests, "limits": limits}
    return {name: quantities for name, quantities in resources.items() if quantities}


def _add_environment(container: Json, launch: Launch) -> None:
    """Add Muster's variables before the author's, in which the author may refer to Muster's."""
    template = launch.template
    if template.command:
        container["command"] = list(template.command)
    own: list[Json] = container.get("env") or [
        {"name": name, "value": value} for name, value in template.env.items()
    ]
    added = {
        name: value
        for name, value in launch.env.items()
        if name not in template.env or template.env[name] != value
    }
    container["env"] = [
        *({"name": name, "value": _escaped(value)} for name, value in added.items()),
        *(variable for variable in own if variable.get("name") not in added),
    ]


def _escaped(value: str) -> str:
    """Return a value that Kubernetes does not expand."""
    return value.replace("$", "$$") if "$(" in value or "$$" in value else value


def _tolerations(own: list[Json], options: PodOptions) -> list[Json]:
    """Return the author's tolerations, and bounds for an unavailable node where the author has none."""
    tolerated = {cast("str", toleration.get("key") or "") for toleration in own}
    if "" in tolerated:
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
            for key in _NODE_UNAVAILABLE_TAINTS
            if key not in tolerated
        ),
    ]
