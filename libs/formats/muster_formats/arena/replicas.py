"""Turn the flags of a replica into a PodTemplateSpec and read it like any other, so that one set of rules
applies.

A replica with an image keeps the PodTemplateSpec if it uses volumes, shared memory, code to fetch, or host
namespaces. A replica without an image is a program of this machine and has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from muster_core.models import Port, Template
from muster_core.models.problem_codes import Code
from muster_formats.arena.flags import CommonFlags, MPIFlags
from muster_formats.arena.kinds import Mount
from muster_formats.arena.line import Line
from muster_formats.names import DNS_1123
from muster_formats.nodes import Json
from muster_formats.pods import MainContainer, template_of

Raw = dict[str, Json]

_CODE_VOLUME, _CODE_FOLDER = "code-sync", "/code"
_SHARED_MEMORY = "2Gi"
_HOME = "/root"
_RDMA = "rdma/hca"
_GPU = "nvidia.com/gpu"
_SYNC_IMAGES = {"git": "alpine/git", "rsync": "instrumentisto/rsync-ssh"}


@dataclass(frozen=True, kw_only=True)
class Replica:
    """The values of one role. Quantities keep their spelling; ``mounts``: whether it mounts the job's volumes."""

    container: str
    image: str
    command: tuple[str, ...] = ()
    cpu: str = ""
    memory: str = ""
    cpu_limit: str = ""
    memory_limit: str = ""
    gpus: int = 0
    devices: Mapping[str, int] = field(default_factory=dict[str, int])
    port: Port | None = None
    selector: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    tell: Mapping[str, str] = field(default_factory=dict[str, str])
    mounts: bool = True
    works: bool = True


def template(line: Line, replica: Replica) -> Template:
    """Build the template of a replica. ``works`` is false for TensorBoard, which needs neither code nor shared memory."""
    container = _container(line, replica)
    volumes = _volumes(line, replica) if replica.image else []
    declared = {str(volume["name"]): _without_path(volume) for volume in volumes}
    extras: Raw = {"volumes": list[Json](declared.values())} if volumes else {}
    if volumes:
        container["volumeMounts"] = [{"name": one["name"], "mountPath": one["mountPath"]} for one in volumes]
    if replica.image and replica.works and (sync := _sync(line, container)):
        extras["initContainers"] = [sync]
    extras |= _host(line) if replica.works else {}
    if secrets := line.all(CommonFlags.image_pull_secret):
        extras["imagePullSecrets"] = [{"name": secret} for secret in secrets]
    if policy := line.get(CommonFlags.image_pull_policy):
        container["imagePullPolicy"] = policy
    if replica.works and line.get(CommonFlags.rdma):
        container["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    spec: Raw = {"containers": [container], **_placement(line, replica), **extras}
    pod: dict[str, object] = {**_metadata(line, replica), "spec": spec}
    read = template_of(pod, MainContainer(container=replica.container, port=replica.port))
    kept = bool(replica.image) and bool(extras or {"imagePullPolicy", "securityContext"} & container.keys())
    return read if kept else msgspec.structs.replace(read, pod={})


def check_sync(line: Line, image: str) -> None:
    """Report problems of the code to fetch."""
    mode = line.at(CommonFlags.sync_mode)
    for flag in (CommonFlags.sync_source, CommonFlags.sync_image):
        if (cursor := line.at(flag)) and mode is None:
            words = f"{flag.key} without {CommonFlags.sync_mode.key}"
            cursor.error(Code.REQUIRED, words, fix=f"add {CommonFlags.sync_mode.key}=git or rsync")
    if mode is None:
        return
    if line.at(CommonFlags.sync_source) is None:
        words = f"{mode.path} needs {CommonFlags.sync_source.key}"
        mode.error(Code.REQUIRED, words, fix=f"add {CommonFlags.sync_source.key}=...")
    if not image:
        words = "an init container fetches the code, and the process runtime has no containers"
        mode.error(Code.UNSUPPORTED, words, fix="fetch the code in the command, or add an image")


def working_dir(line: Line, image: str) -> str:
    """Return the working directory."""
    return line.get(CommonFlags.working_dir) or (_HOME if image else "")


def _container(line: Line, replica: Replica) -> Raw:
    cpu, memory = replica.cpu or replica.cpu_limit, replica.memory or replica.memory_limit
    counted: Raw = {name: str(count) for name, count in replica.devices.items()}
    if replica.gpus:
        counted[_GPU] = str(replica.gpus)
    if replica.works and line.get(CommonFlags.rdma):
        counted[_RDMA] = "1"
    requests = {**_amounts(cpu, memory), **counted}
    limits = {**_amounts(replica.cpu_limit or cpu, replica.memory_limit or memory), **counted}
    said: Raw = {
        "image": replica.image,
        "command": list(replica.command),
        "workingDir": working_dir(line, replica.image) if replica.works else "",
        "env": _variables(line, replica),
        "ports": [{"name": replica.port.name, "containerPort": replica.port.number}] if replica.port else [],
        "resources": {"requests": requests, "limits": limits} if requests else {},
    }
    return {"name": replica.container, **{key: value for key, value in said.items() if value}}


def _variables(line: Line, replica: Replica) -> list[Json]:
    """Return the variables that Arena sets (numbers of workers and GPUs), then the job's."""
    counts = {"workers": str(worker_count(line)), "gpus": str(line.get(CommonFlags.gpus) or 0)}
    told = {**counts, **replica.tell} if replica.works else {}
    return [{"name": name, "value": value} for name, value in {**told, **line.map(CommonFlags.env)}.items()]


def worker_count(line: Line) -> int:
    """Return the number of workers."""
    count = line.get(CommonFlags.workers)
    return 1 if count is None else count


def _amounts(cpu: str, memory: str) -> Raw:
    return {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}


def _metadata(line: Line, replica: Replica) -> dict[str, object]:
    labels = line.map(CommonFlags.label)
    annotations = {**line.map(CommonFlags.annotation), **replica.annotations}
    said = {"labels": labels, "annotations": annotations}
    metadata = {key: value for key, value in said.items() if value}
    return {"metadata": metadata} if metadata else {}


def _placement(line: Line, replica: Replica) -> Raw:
    said: Raw = {
        "nodeSelector": dict(replica.selector),
        "tolerations": [
            {
                key: value
                for key, value in (
                    ("key", one.key),
                    ("operator", one.operator),
                    ("value", one.value),
                    ("effect", one.effect),
                )
                if value
            }
            for one in line.all(CommonFlags.toleration)
        ],
    }
    return {key: value for key, value in said.items() if value}


def _volumes(line: Line, replica: Replica) -> list[Raw]:
    """Return the volumes, each with its ``mountPath``."""
    volumes: list[Raw] = []
    if replica.works:
        memory = line.get(CommonFlags.share_memory) or _SHARED_MEMORY
        empty: Raw = {"medium": "Memory", "sizeLimit": memory}
        volumes.append({"name": "dshm", "emptyDir": empty, "mountPath": "/dev/shm"})  # noqa: S108 (shared memory, not a file)
    if replica.works and line.at(CommonFlags.sync_mode):
        path = f"{working_dir(line, replica.image).rstrip('/')}{_CODE_FOLDER}"
        volumes.append({"name": _CODE_VOLUME, "emptyDir": {}, "mountPath": path})
    if replica.mounts:
        volumes += [_claim(index, mount) for index, mount in enumerate(line.all(CommonFlags.data))]
        volumes += [_folder(index, mount) for index, mount in enumerate(line.all(CommonFlags.data_dir))]
    return volumes


def _claim(index: int, mount: Mount) -> Raw:
    name = mount.source if DNS_1123.allows(mount.source) else f"claim-{index}"
    return {"name": name, "persistentVolumeClaim": {"claimName": mount.source}, "mountPath": mount.path}


def _folder(index: int, mount: Mount) -> Raw:
    return {"name": f"training-data-{index}", "hostPath": {"path": mount.source}, "mountPath": mount.path}


def _without_path(volume: Raw) -> Raw:
    return {key: value for key, value in volume.items() if key != "mountPath"}


def _sync(line: Line, container: Raw) -> Raw | None:
    """Return the init container that fetches the code, with the replica's resources."""
    mode, source = line.get(CommonFlags.sync_mode), line.get(CommonFlags.sync_source)
    if not mode or not source:
        return None
    project = source.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")
    target = f"{_CODE_FOLDER}/{project}"
    command = {
        "git": ["git", "clone", "--depth=1", source, target],
        "rsync": ["rsync", "-avP", source, _CODE_FOLDER],
    }[mode]
    said: Raw = {
        "name": "init-code",
        "image": line.get(CommonFlags.sync_image) or _SYNC_IMAGES[mode],
        "command": list[Json](command),
        "volumeMounts": [{"name": _CODE_VOLUME, "mountPath": _CODE_FOLDER}],
    }
    for key in ("env", "resources"):
        if key in container:
            said[key] = container[key]
    return said


def _host(line: Line) -> Raw:
    flags = {
        "hostNetwork": CommonFlags.host_network,
        "hostIPC": CommonFlags.host_ipc,
        "hostPID": CommonFlags.host_pid,
    }
    host: Raw = {key: True for key, flag in flags.items() if line.get(flag)}
    if "hostNetwork" in host:
        host["dnsPolicy"] = "ClusterFirstWithHostNet"
    return host


def mounts_on_launcher(line: Line) -> bool:
    """Return whether a launcher mounts the workers' volumes."""
    return line.get(MPIFlags.mounts_on_launcher) or False
