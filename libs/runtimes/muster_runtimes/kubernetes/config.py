"""The config map of a job: who its members are, and the files of its framework; and, being first and last, the owner of all its objects.

What a member reads is mounted from it, so a change reaches those that run when their kubelet looks next (about a minute). A small gang that
stays as it is and whose replicas nobody looks for has none: each of its pods carries the list, and goes with its node at the latest.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from muster_core.frameworks import ConfigFile
from muster_core.models import Job
from muster_runtimes.kubernetes.labels import MEMBERS, is_addressed, job_labels

MEMBERS_KEY = "members.json"
MEMBERS_FOLDER = "/etc/muster"
FILES_FOLDER = "/etc/mpi"
MEMBERS_VOLUME = "muster-members"
FILES_VOLUME = "muster-files"

MEMBERS_PATH = f"{MEMBERS_FOLDER}/{MEMBERS_KEY}"

_MOST_WITHOUT = 16
"""The largest gang without a config map. Each pod carries the whole list, so that a large one would carry it too often."""

REMOTE_SHELL = """#!/bin/sh
exec ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "$@"
"""
"""Called as ``rsh`` is. Images of MPI bring ssh and their own keys."""


def config_name(job: str) -> str:
    """The name of a job's config map."""
    return f"{job}-config"


def needs_config(job: Job) -> bool:
    """Whether the job has a config map: its members change, there are too many of them, or it has services, which need an owner.

    A job that has files for its framework needs one in any case.
    """
    changes = any(not role.min == role.replicas == role.max for role in job.roles)
    return changes or is_addressed(job) or sum(role.replicas for role in job.roles) > _MOST_WITHOUT


def config_map(
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
            "name": config_name(job.name),
            "namespace": job.namespace,
            "labels": job_labels(job_id, job, pool=pool),
        },
        "binaryData": {name: base64.b64encode(content).decode() for name, content in contents.items()},
    }


def volumes(
    job: str, files: Mapping[str, ConfigFile], *, carried: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The volumes of a pod of the job, and where its container sees them; ``carried``: the pod has the list of members itself."""
    name = config_name(job)
    made: list[dict[str, Any]] = [{"name": MEMBERS_VOLUME, **(_CARRIED if carried else _listed(name))}]
    mounts = [_mount(MEMBERS_VOLUME, MEMBERS_FOLDER)]
    if files:
        items = [{"key": key, "path": key, "mode": file.mode} for key, file in sorted(files.items())]
        made.append({"name": FILES_VOLUME, "configMap": {"name": name, "items": items}})
        mounts.append(_mount(FILES_VOLUME, FILES_FOLDER))
    return made, mounts


def owner(job: str, uid: str) -> dict[str, Any]:
    """The reference that makes an object go with its job's config map."""
    return _owner("ConfigMap", config_name(job), uid)


def node_as_owner(name: str, uid: str) -> dict[str, Any]:
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
