"""The labels, annotations and names by which Muster's objects in a cluster are found, and by whom they are told apart.

Whether an object is Muster's, and of which run of which replica, is read from its labels alone: a launcher that has just started
knows nothing else. Kubeflow's labels stand beside them, for the tools that look for these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

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

FINALIZER = "muster.dev/exit-recorded"
"""Holds a pod until how it ended is on the bus."""

MAIN_CONTAINER = "kubectl.kubernetes.io/default-container"
"""The annotation that names the container which decides; ``kubectl logs`` and ``kubectl exec`` read it as well."""

MANIFEST_HASH = "muster.dev/asked-for"
"""The annotation of a pod with a digest of what was asked for. One of the same run that has another makes way."""

MEMBERS = "muster.dev/members"
"""The annotation of a pod with the list of the members, where there is no config map to say it."""

ADDRESS = "muster.dev/address"
"""The annotation of a pod that says where the others look for the replica."""

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
    """Whether the replicas of a job look for each other: those of a framework do, and those that listen on a port."""
    return job.framework is not Framework.PLAIN or any(role.template.ports for role in job.roles)


def job_labels(job_id: str, job: Job, *, pool: str) -> dict[str, str]:
    """What every object of a job is labelled with. Two pools of one cluster leave each other alone by the first."""
    queue = {QUEUE: job.queue} if _VALUE.fullmatch(job.queue) else {}
    return {POOL: pool, JOB: job.name, JOB_ID: job_id, SHARD: str(shard_of(job_id)), **queue}


def run_labels(replica: ReplicaId, job: Job, *, pool: str, generation: int) -> dict[str, str]:
    """What a pod is labelled with: the run that it is, beside what Kubeflow's operators would say."""
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
    """Kubeflow's labels, for the frameworks that it has operators for."""
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
    """By which a service finds the pod of a replica, whichever run of it that is."""
    return {JOB_ID: job_id, ROLE: role, INDEX: str(index)}


def replica_of(metadata: ObjectMeta) -> ReplicaId | None:
    """Which run an object is of; None for what is not Muster's."""
    labels: Mapping[str, str] = metadata.labels
    job_id, role = labels.get(JOB_ID, ""), labels.get(ROLE, "")
    numbers = [labels.get(label, "") for label in (ATTEMPT, INDEX, RESTART)]
    if not is_job_id(job_id) or not role or not all(number.isdecimal() for number in numbers):
        return None
    attempt, index, restart = map(int, numbers)
    return ReplicaId(job_id=job_id, attempt=attempt, role=role, index=index, restart=restart)


def of_partition(pool: str, partition: int) -> str:
    """The selector for what belongs to the jobs of a partition."""
    return f"{POOL}={pool},{JOB_ID},{SHARD} in ({','.join(map(str, shards_of(partition)))})"


def of_job(job_id: str) -> str:
    """The selector for what belongs to a job."""
    return f"{JOB_ID}={job_id}"


def of_start(replica: ReplicaId, generation: int) -> str:
    """The selector for the pods of those that start together with a replica."""
    return f"{of_job(replica.job_id)},{ATTEMPT}={replica.attempt},{GENERATION}={generation},{RESTART}={replica.restart}"


def of_others(pool: str) -> str:
    """The selector for what is not of this pool."""
    return f"{POOL}!={pool}"
