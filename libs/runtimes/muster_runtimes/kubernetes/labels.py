"""Labels, annotations and selectors of Muster's objects in a cluster.

The labels alone tell whether an object is Muster's and which run of which replica it belongs to, so that a new pod-launcher needs
nothing else. Objects also have Kubeflow's labels, for tools that select by them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from muster_core.lifecycle import OrphanMark
from muster_core.models import Framework, Job
from muster_events.subjects import is_job_id, shard_of, shards_of
from muster_runtimes.kubernetes.objects import ObjectMeta
from muster_runtimes.protocols import ReplicaId

POOL = "muster.dev/pool"
JOB = "muster.dev/job"
JOB_ID = "muster.dev/job-id"
ROLE = "muster.dev/role"
INDEX = "muster.dev/index"
ATTEMPT = "muster.dev/attempt"
RESTART = "muster.dev/restart"
GENERATION = "muster.dev/generation"
QUEUE = "muster.dev/queue"
SHARD = "muster.dev/shard"

ORPHAN = "muster.dev/orphan"
"""The label that marks the pods and the config map of an orphan; ``encode_mark`` has its value. A selector finds them."""

FINALIZER = "muster.dev/exit-recorded"
"""The finalizer that holds a pod until its end is on the bus."""

MAIN_CONTAINER = "kubectl.kubernetes.io/default-container"
"""The annotation that names the main container; ``kubectl logs`` and ``kubectl exec`` use it, too."""

MANIFEST_HASH = "muster.dev/manifest-hash"
"""The annotation with a hash of the pod's manifest. A pod of the same run with another hash is replaced."""

MEMBERS = "muster.dev/members"
"""The annotation with the list of members, for a job without a config map."""

RETAINED_JOB = "muster.dev/retained-job"
"""The annotation that recreates the record of a job without a config map: compressed JSON in base64."""

GPUS = "muster.dev/gpus"
"""The annotation with the indices of the pod's GPUs in its allocation, separated by commas."""

ADDRESS = "muster.dev/address"
"""The annotation with the address of the replica."""

_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_OPERATORS = {
    Framework.TENSORFLOW: "tfjob-controller",
    Framework.PYTORCH: "pytorchjob-controller",
    Framework.MPI: "mpijob-controller",
    Framework.XGBOOST: "xgboostjob-controller",
    Framework.PADDLE: "paddlejob-controller",
    Framework.JAX: "jaxjob-controller",
    Framework.MXNET: "mxjob-controller",
}
_LEADERS = frozenset({"master", "chief", "launcher"})


def is_addressed(job: Job) -> bool:
    """Whether the replicas of a job need addresses: they use a framework or listen on a port."""
    return job.framework is not Framework.PLAIN or any(role.template.ports for role in job.roles)


def job_labels(job_id: str, job: Job, *, pool: str) -> dict[str, str]:
    """Return the labels of every object of a job. The pool label separates the pools of one cluster."""
    queue = {QUEUE: job.queue} if _VALUE.fullmatch(job.queue) else {}
    return {POOL: pool, JOB: job.name, JOB_ID: job_id, SHARD: str(shard_of(job_id)), **queue}


def run_labels(replica: ReplicaId, job: Job, *, pool: str, generation: int) -> dict[str, str]:
    """Return the labels of a pod: those of its run, and those of Kubeflow's operators."""
    return {
        **kubeflow_labels(replica, job),
        **job_labels(replica.job_id, job, pool=pool),
        ROLE: replica.role,
        INDEX: str(replica.index),
        ATTEMPT: str(replica.attempt),
        RESTART: str(replica.restart),
        GENERATION: str(generation),
    }


def kubeflow_labels(replica: ReplicaId, job: Job) -> dict[str, str]:
    """Return Kubeflow's labels, for the frameworks with a Kubeflow operator."""
    operator = _OPERATORS.get(job.framework)
    if operator is None:
        return {}
    leader = {"training.kubeflow.org/job-role": "master"} if replica.role in _LEADERS else {}
    return {
        "training.kubeflow.org/job-name": job.name,
        "training.kubeflow.org/operator-name": operator,
        "training.kubeflow.org/replica-type": replica.role,
        "training.kubeflow.org/replica-index": str(replica.index),
        **leader,
    }


def address_labels(job_id: str, role: str, index: int) -> dict[str, str]:
    """Return the selector labels of a replica's service, which match every run of the replica."""
    return {JOB_ID: job_id, ROLE: role, INDEX: str(index)}


def replica_of(metadata: ObjectMeta) -> ReplicaId | None:
    """Return the run that an object belongs to; None for an object that is not Muster's."""
    labels: Mapping[str, str] = metadata.labels
    job_id, role = labels.get(JOB_ID, ""), labels.get(ROLE, "")
    numbers = [labels.get(label, "") for label in (ATTEMPT, INDEX, RESTART)]
    if not is_job_id(job_id) or not role or not all(number.isdecimal() for number in numbers):
        return None
    attempt, index, restart = map(int, numbers)
    return ReplicaId(job_id=job_id, attempt=attempt, role=role, index=index, restart=restart)


def of_partition(pool: str, partition: int) -> str:
    """Return the selector for the objects of a partition's jobs."""
    return f"{POOL}={pool},{JOB_ID},{SHARD} in ({','.join(map(str, shards_of(partition)))})"


def of_job(job_id: str) -> str:
    """Return the selector for the objects of a job."""
    return f"{JOB_ID}={job_id}"


def of_start(replica: ReplicaId, generation: int) -> str:
    """Return the selector for the pods that start together with a replica."""
    return f"{of_job(replica.job_id)},{ATTEMPT}={replica.attempt},{GENERATION}={generation},{RESTART}={replica.restart}"


def of_others(pool: str) -> str:
    """Return the selector for objects that do not belong to this pool."""
    return f"{POOL}!={pool}"


def of_orphans(pool: str) -> str:
    """Return the selector for the objects of orphans."""
    return f"{POOL}={pool},{JOB_ID},{ORPHAN}"


_REMOVED = "removed-"


def encode_mark(mark: OrphanMark) -> str:
    """Return the value of the label ``ORPHAN``: the time in µs, after ``removed-`` if the removal is requested."""
    return f"{_REMOVED if mark.removal_requested else ''}{mark.found_at}"


def decode_mark(metadata: ObjectMeta) -> OrphanMark | None:
    """Return the mark of an object; None if it has none, or another value."""
    value = metadata.labels.get(ORPHAN, "")
    at = value.removeprefix(_REMOVED)
    return OrphanMark(found_at=int(at), removal_requested=at != value) if at.isdecimal() else None
