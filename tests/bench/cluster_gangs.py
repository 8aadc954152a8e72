"""The gangs that every contender starts, in each contender's form.

Pods created directly come from Muster's own function. Pods created on their nodes are byte-identical, except that a node
owns them where Muster would create a config map.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from muster_core.frameworks import RuntimeContext, environment, membership
from muster_core.models import Job, JobRecord, ReplicaRecord, Resources, Role, Template, replica_name
from muster_events.subjects import job_id_of
from muster_rpc.v1 import job_pb2, job_service_pb2
from muster_runtimes import Launch, ReplicaId
from muster_runtimes.kubernetes.manifests import Json, PodOptions, needs_config_map, node_owner, pod_manifest

NAMESPACE = "bench"
NODE_CPU, NODE_MEMORY, NODE_GPUS = 32, "256Gi", 8

_ROLE = "worker"
_IMAGE = "registry.example/team/training:2026.1"
_COMMAND = ("python", "-m", "training.main", "--epochs", "90", "--checkpoints", "/mnt/checkpoints")
_POD_MEMORY = 2**30
_TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_UID = "00000000-0000-0000-0000-000000000000"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A number of gangs of a number of members, each asking for ``cpu`` CPUs, one GPU and 1 GiB."""

    gangs: int
    members: int
    cpu: int = 1

    @property
    def name(self) -> str:
        """The name in figures."""
        return f"{self.gangs}x{self.members}"

    @property
    def pods(self) -> int:
        """All members of all gangs."""
        return self.gangs * self.members


def gang_name(index: int) -> str:
    """Return the name of a gang, its job and its pod group."""
    return f"gang-{index:04}"


def gang_of(pod: str) -> str:
    """Return the gang of a pod by its name."""
    return pod.rpartition(f"-{_ROLE}-")[0]


def request_id(job: str) -> str:
    """Return the request id of a gang's submission."""
    return f"{NAMESPACE}-{job}"


def submissions(shape: Shape, *, prefix: str = "") -> list[job_service_pb2.SubmitJobRequest]:
    """Return the submissions to Muster: a typed specification for each gang."""
    return [_submission(shape, f"{prefix}{gang_name(index)}") for index in range(shape.gangs)]


def pods(shape: Shape, *, nodes: Mapping[str, str] | None = None, grouped: bool = False) -> list[list[Json]]:
    """Return the pods of each gang as bare objects: on ``nodes`` (uids by name) in turn, or on none; ``grouped`` as
    members of its pod group.
    """
    made: list[list[Json]] = []
    turns = list((nodes or {"": _UID}).items())
    for gang in range(shape.gangs):
        job = _job(shape, gang_name(gang))
        members: list[Json] = []
        for index in range(shape.members):
            node, uid = turns[(gang * shape.members + index) % len(turns)]
            members.append(_pod(job, index, node=node, uid=uid, group=job.name if grouped else ""))
        made.append(members)
    return made


def in_groups(shape: Shape, *, ahead: int) -> list[Json]:
    """Yield pod groups and their pods; each group precedes its pods by some gangs, so that none waits for it."""
    groups = [_pod_group(gang_name(gang), shape.members) for gang in range(shape.gangs)]
    objects = groups[:ahead]
    for gang, members in enumerate(pods(shape, grouped=True)):
        objects += groups[gang + ahead : gang + ahead + 1]
        objects += members
    return objects


def _pod_group(name: str, members: int) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"schedulingPolicy": {"gang": {"minCount": members}}},
    }


def _submission(shape: Shape, name: str) -> job_service_pb2.SubmitJobRequest:
    requests = job_pb2.Resources(cpu_milli=1000 * shape.cpu, memory_bytes=_POD_MEMORY, gpu_milli=1000)
    template = job_pb2.Template(image=_IMAGE, command=_COMMAND, requests=requests)
    role = job_pb2.Role(name=_ROLE, replicas=shape.members, template=template)
    spec = job_pb2.JobSpec(name=name, namespace=NAMESPACE, roles=[role])
    request = job_service_pb2.SubmitJobRequest(request_id=request_id(name), spec=spec)
    request.validation_wait.FromMilliseconds(0)
    return request


def _job(shape: Shape, name: str) -> Job:
    requests = Resources(cpu=1000 * shape.cpu, memory=_POD_MEMORY, gpu=1000)
    template = Template(image=_IMAGE, command=_COMMAND, requests=requests)
    role = Role(name=_ROLE, replicas=shape.members, min=shape.members, max=shape.members, template=template)
    return Job(name=name, namespace=NAMESPACE, roles=(role,))


def _pod(job: Job, index: int, *, node: str, uid: str, group: str) -> Json:
    job_id = job_id_of(request_id(job.name))
    replica = ReplicaRecord(role=_ROLE, index=index, attempt=1, generation=1, node=node)
    record = JobRecord(
        job_id=job_id, applied_sequence=1, job=job, attempt=1, generation=1, replicas=(replica,)
    )
    context = RuntimeContext(addresses={}, members_path="/etc/muster/members.json", config_folder="/etc/mpi")
    launch = Launch(
        replica=ReplicaId(job_id=job_id, attempt=1, role=_ROLE, index=index),
        name=replica_name(job.name, _ROLE, index),
        node=node,
        template=job.roles[0].template,
        env=environment(record, job, replica, context=context, traceparent=_TRACEPARENT),
    )
    members = membership(record, context.addresses).decode() if not needs_config_map(job) else None
    owner = node_owner(node or job.name, uid)
    options = PodOptions(pool=NAMESPACE)
    pod = pod_manifest(launch, job, owner=owner, files={}, options=options, members=members)
    if not node:
        # The garbage collector would delete objects whose owner does not exist.
        held = [pod["metadata"].pop("finalizers"), pod["metadata"].pop("ownerReferences")]
        pod["metadata"]["annotations"]["held"] = msgspec.json.encode(held).decode()
        del pod["spec"]["nodeName"]
    if group:
        pod["spec"]["schedulingGroup"] = {"podGroupName": group}
    return pod
