"""The flags of replicas, and what the sub-commands share: a PodTemplateSpec is read like any other, so that one set of rules applies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from muster_core.frameworks import FRAMEWORK_PORTS
from muster_core.models import (
    CleanPodPolicy,
    Framework,
    Job,
    PlacementPolicy,
    Port,
    RestartPolicy,
    Role,
    RunPolicy,
    Template,
)
from muster_core.models.problem_codes import Code
from muster_formats.arena.command_line import ArenaCommand
from muster_formats.arena.flag_types import Flag, Mount
from muster_formats.arena.flags import CommonFlags, EveryReplicaFlags, MPIFlags, RunFlags
from muster_formats.locations import FieldLocations, JobField
from muster_formats.names import DNS_1123
from muster_formats.nodes import Json
from muster_formats.pods import MainContainer, template_of
from muster_formats.registry import ReadContext

NAME = "arena"
"""The name of this format."""


def job_of(
    args: ArenaCommand, given: ReadContext, framework: Framework, roles: tuple[Role, ...], run: RunPolicy
) -> Job:
    """Build a job of these roles and read the flags that apply to the whole job."""
    flags = CommonFlags
    trains = any(role.template.image for role in roles)
    if flags.sync_mode.key in args.flags or flags.sync_source.key in args.flags:
        warn_about_sync(args, "yes" if trains else "")
    args.warn_kubernetes_only(*(() if trains else (flags.sync_mode, flags.sync_source, flags.sync_image)))
    if (cursor := args.at(flags.gang)) and args.get(flags.gang) is False:
        cursor.warn_ignored(cursor.path, "every job is placed as a gang")
    name = args.get(flags.name)
    if name is None and not args.problems.has_error_at(flags.name.key):
        args.problems.add(
            Code.REQUIRED,
            args.missing_location(flags.name.key),
            "name is missing",
            fix=f"add {flags.name.key}=my-job",
        )
    return Job(
        name=name or "",
        namespace=args.get(flags.namespace) or given.namespace or "default",
        queue=args.get(flags.queue) or "",
        priority=args.get(flags.priority) or 0,
        labels=args.map(flags.label),
        annotations=args.map(flags.annotation),
        framework=framework,
        format=NAME,
        placement=PlacementPolicy(gpu_topology=args.get(flags.gpu_topology) or False),
        roles=roles,
        run=run,
    )


def run_policy(args: ArenaCommand, clean: CleanPodPolicy) -> RunPolicy:
    """Read deadlines and retention; ``clean`` is the default clean-up policy."""
    return RunPolicy(
        backoff_limit=args.get(RunFlags.retry) or 0,
        active_deadline_s=args.get(RunFlags.running_timeout) or None,
        ttl_s=args.get(RunFlags.ttl) or None,
        clean_pod_policy=args.get(RunFlags.clean) or clean,
    )


def restart_policy(args: ArenaCommand) -> RestartPolicy:
    """Return whether failed replicas restart."""
    return RestartPolicy.ON_FAILURE if args.get(CommonFlags.retry) else RestartPolicy.NEVER


def command_of(args: ArenaCommand) -> tuple[str, ...]:
    """Return the trailing words, run by a shell as in Arena."""
    words = " ".join(word.text for word in args.command)
    return (args.get(CommonFlags.shell) or "sh", "-c", words) if words.strip() else ()


def every_replica(args: ArenaCommand, container: str) -> Replica:
    """Build the replica whose flags apply to all replicas."""
    flags = EveryReplicaFlags
    return Replica(
        container=container,
        image=args.get(flags.image) or "",
        command=command_of(args),
        cpu=args.get(flags.cpu) or "",
        memory=args.get(flags.memory) or "",
        gpus=args.get(flags.gpus) or 0,
        devices=args.map(flags.device),
        selector=args.map(flags.selector),
    )


def port_of(framework: Framework, number: int | None) -> Port:
    """Return the port of a framework's replicas; ``number`` overrides its default."""
    usual = FRAMEWORK_PORTS[framework]
    return Port(name=usual.name, number=number or usual.number)


def role_of(name: str, count: int, base: Template, restart: RestartPolicy) -> Role:
    """Build a role of fixed size."""
    return Role(name=name, replicas=count, min=count, max=count, template=base, restart_policy=restart)


def with_bounds(role: Role, low: int | None, high: int | None) -> Role:
    """Build the workers between their bounds; an absent bound is the requested number, so that jobs do not resize unasked."""
    return msgspec.structs.replace(
        role, min=role.replicas if low is None else low, max=role.replicas if high is None else high
    )


def record_role_locations(
    args: ArenaCommand, locations: FieldLocations, role: str, **flags: Flag[int]
) -> None:
    """Record which flags set ``replicas``, ``min`` and ``max`` of a role."""
    count = flags["replicas"]
    for job_field in ("replicas", "min", "max"):
        flag = flags.get(job_field)
        known = flag if flag and flag.key in args.flags else count
        locations.record(JobField(job_field, role), args.location_of(known), known.key)
    for job_field, name in (
        ("role", count.key),
        ("template", CommonFlags.image.key),
        ("resources", CommonFlags.gpus.key),
    ):
        locations.record(JobField(job_field, role), args.missing_location(name))


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
    extra_env: Mapping[str, str] = field(default_factory=dict[str, str])
    mounts: bool = True
    works: bool = True


def template(args: ArenaCommand, replica: Replica) -> Template:
    """Build the template of a replica. ``works`` is false for TensorBoard, which needs neither code nor shared memory."""
    container = _container(args, replica)
    volumes = _volumes(args, replica) if replica.image else []
    declared = {str(volume["name"]): _without_path(volume) for volume in volumes}
    extras: Raw = {"volumes": list[Json](declared.values())} if volumes else {}
    if volumes:
        container["volumeMounts"] = [{"name": one["name"], "mountPath": one["mountPath"]} for one in volumes]
    if replica.image and replica.works and (sync := _sync(args, container)):
        extras["initContainers"] = [sync]
    extras |= _host(args) if replica.works else {}
    if secrets := args.all(CommonFlags.image_pull_secret):
        extras["imagePullSecrets"] = [{"name": secret} for secret in secrets]
    if policy := args.get(CommonFlags.image_pull_policy):
        container["imagePullPolicy"] = policy
    if replica.works and args.get(CommonFlags.rdma):
        container["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    spec: Raw = {"containers": [container], **_placement(args, replica), **extras}
    pod: dict[str, object] = {**_metadata(args, replica), "spec": spec}
    read = template_of(pod, MainContainer(container=replica.container, port=replica.port))
    kept = bool(replica.image) and bool(extras or {"imagePullPolicy", "securityContext"} & container.keys())
    return read if kept else msgspec.structs.replace(read, pod={})


def warn_about_sync(args: ArenaCommand, image: str) -> None:
    """Report problems of the code to fetch."""
    mode = args.at(CommonFlags.sync_mode)
    for flag in (CommonFlags.sync_source, CommonFlags.sync_image):
        if (cursor := args.at(flag)) and mode is None:
            words = f"{flag.key} without {CommonFlags.sync_mode.key}"
            cursor.error(Code.REQUIRED, words, fix=f"add {CommonFlags.sync_mode.key}=git or rsync")
    if mode is None:
        return
    if args.at(CommonFlags.sync_source) is None:
        words = f"{mode.path} needs {CommonFlags.sync_source.key}"
        mode.error(Code.REQUIRED, words, fix=f"add {CommonFlags.sync_source.key}=...")
    if not image:
        words = "an init container fetches the code, and the process runtime has no containers"
        mode.error(Code.UNSUPPORTED, words, fix="fetch the code in the command, or add an image")


def working_dir(args: ArenaCommand, image: str) -> str:
    """Return the working directory."""
    return args.get(CommonFlags.working_dir) or (_HOME if image else "")


def _container(args: ArenaCommand, replica: Replica) -> Raw:
    cpu, memory = replica.cpu or replica.cpu_limit, replica.memory or replica.memory_limit
    counted: Raw = {name: str(count) for name, count in replica.devices.items()}
    if replica.gpus:
        counted[_GPU] = str(replica.gpus)
    if replica.works and args.get(CommonFlags.rdma):
        counted[_RDMA] = "1"
    requests = {**_amounts(cpu, memory), **counted}
    limits = {**_amounts(replica.cpu_limit or cpu, replica.memory_limit or memory), **counted}
    given: Raw = {
        "image": replica.image,
        "command": list(replica.command),
        "workingDir": working_dir(args, replica.image) if replica.works else "",
        "env": _variables(args, replica),
        "ports": [{"name": replica.port.name, "containerPort": replica.port.number}] if replica.port else [],
        "resources": {"requests": requests, "limits": limits} if requests else {},
    }
    return {"name": replica.container, **{key: value for key, value in given.items() if value}}


def _variables(args: ArenaCommand, replica: Replica) -> list[Json]:
    """Return the variables that Arena sets (numbers of workers and GPUs), then the job's."""
    counts = {"workers": str(worker_count(args)), "gpus": str(args.get(CommonFlags.gpus) or 0)}
    given = {**counts, **replica.extra_env} if replica.works else {}
    return [{"name": name, "value": value} for name, value in {**given, **args.map(CommonFlags.env)}.items()]


def worker_count(args: ArenaCommand) -> int:
    """Return the number of workers."""
    count = args.get(CommonFlags.workers)
    return 1 if count is None else count


def _amounts(cpu: str, memory: str) -> Raw:
    return {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}


def _metadata(args: ArenaCommand, replica: Replica) -> dict[str, object]:
    labels = args.map(CommonFlags.label)
    annotations = {**args.map(CommonFlags.annotation), **replica.annotations}
    given = {"labels": labels, "annotations": annotations}
    metadata = {key: value for key, value in given.items() if value}
    return {"metadata": metadata} if metadata else {}


def _placement(args: ArenaCommand, replica: Replica) -> Raw:
    given: Raw = {
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
            for one in args.all(CommonFlags.toleration)
        ],
    }
    return {key: value for key, value in given.items() if value}


def _volumes(args: ArenaCommand, replica: Replica) -> list[Raw]:
    """Return the volumes, each with its ``mountPath``."""
    volumes: list[Raw] = []
    if replica.works:
        memory = args.get(CommonFlags.share_memory) or _SHARED_MEMORY
        empty: Raw = {"medium": "Memory", "sizeLimit": memory}
        volumes.append({"name": "dshm", "emptyDir": empty, "mountPath": "/dev/shm"})  # noqa: S108 (shared memory, not a file)
    if replica.works and args.at(CommonFlags.sync_mode):
        path = f"{working_dir(args, replica.image).rstrip('/')}{_CODE_FOLDER}"
        volumes.append({"name": _CODE_VOLUME, "emptyDir": {}, "mountPath": path})
    if replica.mounts:
        volumes += [_claim(index, mount) for index, mount in enumerate(args.all(CommonFlags.data))]
        volumes += [_folder(index, mount) for index, mount in enumerate(args.all(CommonFlags.data_dir))]
    return volumes


def _claim(index: int, mount: Mount) -> Raw:
    name = mount.source if DNS_1123.allows(mount.source) else f"claim-{index}"
    return {"name": name, "persistentVolumeClaim": {"claimName": mount.source}, "mountPath": mount.path}


def _folder(index: int, mount: Mount) -> Raw:
    return {"name": f"training-data-{index}", "hostPath": {"path": mount.source}, "mountPath": mount.path}


def _without_path(volume: Raw) -> Raw:
    return {key: value for key, value in volume.items() if key != "mountPath"}


def _sync(args: ArenaCommand, container: Raw) -> Raw | None:
    """Return the init container that fetches the code, with the replica's resources."""
    mode, source = args.get(CommonFlags.sync_mode), args.get(CommonFlags.sync_source)
    if not mode or not source:
        return None
    project = source.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")
    target = f"{_CODE_FOLDER}/{project}"
    command = {
        "git": ["git", "clone", "--depth=1", source, target],
        "rsync": ["rsync", "-avP", source, _CODE_FOLDER],
    }[mode]
    given: Raw = {
        "name": "init-code",
        "image": args.get(CommonFlags.sync_image) or _SYNC_IMAGES[mode],
        "command": list[Json](command),
        "volumeMounts": [{"name": _CODE_VOLUME, "mountPath": _CODE_FOLDER}],
    }
    for key in ("env", "resources"):
        if key in container:
            given[key] = container[key]
    return given


def _host(args: ArenaCommand) -> Raw:
    flags = {
        "hostNetwork": CommonFlags.host_network,
        "hostIPC": CommonFlags.host_ipc,
        "hostPID": CommonFlags.host_pid,
    }
    host: Raw = {key: True for key, flag in flags.items() if args.get(flag)}
    if "hostNetwork" in host:
        host["dnsPolicy"] = "ClusterFirstWithHostNet"
    return host


def mounts_on_launcher(args: ArenaCommand) -> bool:
    """Return whether a launcher mounts the workers' volumes."""
    return args.get(MPIFlags.mounts_on_launcher) or False
