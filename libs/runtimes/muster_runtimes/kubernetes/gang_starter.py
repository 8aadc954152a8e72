"""Starts gangs: the pods of a gang are created all or none, and created pods are deleted again if one of them is rejected.

The job's config map is written first. A start does not wait: if a name is not free yet, a write has no answer, or an old pod is still
terminating, the job is notified when that changes, and the next start continues.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from muster_core.frameworks import ConfigFile
from muster_core.models import Job, ReplicaState
from muster_events.subjects import partition_of
from muster_runtimes.kubernetes.errors import KubernetesApiError, ObjectNotFound, RequestRejected
from muster_runtimes.kubernetes.held_jobs import encode_retained
from muster_runtimes.kubernetes.informers import PartitionInformers, ReplicaStore
from muster_runtimes.kubernetes.labels import GENERATION, is_addressed, replica_of
from muster_runtimes.kubernetes.manifests import (
    PodOptions,
    config_map_owner,
    needs_config_map,
    node_owner,
    pod_manifest,
    service_manifest,
    unsupported_reason,
)
from muster_runtimes.kubernetes.nodes import NodeInformer, pod_requests, sum_resources
from muster_runtimes.kubernetes.objects import Pod
from muster_runtimes.kubernetes.volume_claims import VolumeClaims
from muster_runtimes.kubernetes.writer import NameTaken, NameTerminating, ObjectWriter, is_quota_exceeded
from muster_runtimes.protocols import NOT_RUN, Launch, Observation, ReplicaId
from muster_service.logs import fields

log = logging.getLogger(__name__)

_RETRY_S = 0.5
_PEER_REJECTED = "another pod of its gang was rejected"

StartKey = tuple[int, int, int]
"""Attempt, generation and restart of the pods that start together, all or none."""


class _GangRejected(Exception):
    """Another pod of the gang was rejected."""


class _NodeFull(Exception):
    """Other pods have taken the node's capacity since the replica was placed."""


class RegisteredJob(msgspec.Struct, kw_only=True):
    """A job and the state of its starts.

    Attributes:
        uid: The uid of its config map; empty until this instance has written it.
        retained: What recreates its record.
        rejection: Why the namespace rejects the job's config map; empty if it does not.
        services: The replicas whose services exist.
        delayed: The replicas that could not start at once.
        rejected: The starts of which a pod was rejected.
        starting: How many pods of each start are being created.
        annotation: The encoded ``retained``; empty before the first use.
    """

    job: Job
    uid: str = ""
    members: bytes | None = None
    retained: bytes | None = None
    files: dict[str, ConfigFile] = msgspec.field(default_factory=dict[str, ConfigFile])
    rejection: str = ""
    services: set[ReplicaId] = msgspec.field(default_factory=set[ReplicaId])
    delayed: set[ReplicaId] = msgspec.field(default_factory=set[ReplicaId])
    rejected: set[StartKey] = msgspec.field(default_factory=set["StartKey"])
    starting: Counter[StartKey] = msgspec.field(default_factory=Counter["StartKey"])
    annotation: str = ""

    def retained_annotation(self) -> str | None:
        """Return what recreates its record as an annotation, encoded once; None if nothing is retained."""
        if self.retained is not None and not self.annotation:
            self.annotation = encode_retained(self.retained)
        return self.annotation or None


class GangStarter:
    """Starts replicas of registered jobs. ``node_lost_s`` is how long a pod tolerates an unavailable node."""

    def __init__(
        self,
        *,
        clock: Callable[[], int],
        nodes: NodeInformer,
        store: ReplicaStore,
        informers: PartitionInformers,
        writer: ObjectWriter,
        claims: VolumeClaims,
        pool: str,
        node_lost_s: int,
    ) -> None:
        self._clock = clock
        self._nodes = nodes
        self._store = store
        self._informers = informers
        self._writer = writer
        self._claims = claims
        self._pool = pool
        self._node_lost_s = node_lost_s
        self._jobs: dict[str, RegisteredJob] = {}

    def register_job(self, job_id: str, job: Job) -> None:
        """Add a job."""
        if job_id not in self._jobs:
            self._jobs[job_id] = RegisteredJob(job=job)

    def registered(self, job_id: str) -> RegisteredJob | None:
        """Return a job, if it is registered."""
        return self._jobs.get(job_id)

    def job(self, job_id: str) -> Job:
        """Return a job. Raises ``KeyError`` if it is not registered."""
        return self._jobs[job_id].job

    def jobs(self) -> dict[str, Job]:
        """Return all registered jobs by id."""
        return {job_id: registered.job for job_id, registered in self._jobs.items()}

    def forget(self, job_id: str) -> None:
        """Remove a job."""
        self._jobs.pop(job_id, None)

    def forget_partition(self, partition: int) -> None:
        """Remove the jobs of a partition that another instance owns now."""
        self._jobs = {
            job_id: registered
            for job_id, registered in self._jobs.items()
            if partition_of(job_id) != partition
        }

    async def start(self, launch: Launch) -> Observation:
        """Create the pod of a run, and return its state: EXITED if no pod can be made of it, REJECTED if the cluster does not accept it."""
        replica = launch.replica
        observation = self._store.observation(replica)
        if observation is not None:
            return observation
        registered = self._jobs[replica.job_id]
        if why := unsupported_reason(launch) or registered.rejection:
            return self._reject(replica, ReplicaState.EXITED, why)
        if self._store.has_terminating_predecessor(replica):
            # Its deletion is an event that notifies the job.
            registered.delayed.add(replica)
            return self._not_started(replica)
        key = (replica.attempt, launch.generation, replica.restart)
        registered.starting[key] += 1
        try:
            await self._start(launch, registered, key)
        except NameTerminating:
            registered.delayed.add(replica)
            asyncio.get_running_loop().call_later(_RETRY_S, self._store.notify, replica.job_id)
        except _GangRejected:
            return self._reject(replica, ReplicaState.REJECTED, f"not started: {_PEER_REJECTED}")
        except (RequestRejected, NameTaken, ObjectNotFound, _NodeFull) as rejection:
            registered.rejected.add(key)
            may_pass = isinstance(rejection, NameTaken | _NodeFull) or (
                isinstance(rejection, RequestRejected) and is_quota_exceeded(rejection)
            )
            state = ReplicaState.REJECTED if may_pass else ReplicaState.EXITED
            return self._reject(replica, state, str(rejection))
        finally:
            registered.starting[key] -= 1
            if not registered.starting[key] and key in registered.rejected:
                await self._delete_created(launch, registered)
        return self._store.observation(replica) or self._not_started(replica)

    def retain_job(self, job_id: str, retained: bytes) -> None:
        """Keep what recreates the record of a job for its config map, or for the annotations of its pods."""
        registered = self._jobs[job_id]
        registered.retained, registered.annotation = retained, ""

    async def write_members(self, job_id: str, content: bytes) -> None:
        """Write the list of members to the job's config map, or keep it for the annotations of its pods."""
        registered = self._jobs[job_id]
        registered.members = content
        # A job that has a config map keeps it, even if another instance wrote it.
        has_config_map = registered.uid or self._informers.config_map(job_id) is not None
        if has_config_map or needs_config_map(registered.job):
            await self._write_config_map(job_id, registered)

    async def write_config(self, job_id: str, files: Mapping[str, ConfigFile]) -> None:
        """Write the files to the job's config map."""
        registered = self._jobs[job_id]
        registered.files = dict(files)
        await self._write_config_map(job_id, registered)

    async def _start(self, launch: Launch, registered: RegisteredJob, key: StartKey) -> None:
        def check_not_rejected() -> None:
            if key in registered.rejected:
                raise _GangRejected

        check_not_rejected()
        replica, job = launch.replica, registered.job
        self._check_capacity(launch, registered)
        # Written again at each start, because it may have been deleted meanwhile; an existing one is not an error.
        if is_addressed(job) and replica not in registered.services:
            service = service_manifest(
                replica.job_id, job, replica.role, replica.index, pool=self._pool, owner_uid=registered.uid
            )
            await self._writer.ensure_service(service)
            registered.services.add(replica)
        options = PodOptions(
            pool=self._pool, gpu_resource=self._nodes.gpu_resource(), node_lost_s=self._node_lost_s
        )
        pod_template = launch.template.pod
        await self._claims.select_node(pod_template, namespace=job.namespace, node=launch.node)
        manifest = pod_manifest(
            launch,
            job,
            owner=self._owner_of(launch, registered),
            files=registered.files,
            options=options,
            members=None if registered.uid else (registered.members or b"").decode(),
            retained=None if registered.uid else registered.retained_annotation(),
        )
        grace_s = launch.template.grace_s
        pod = await self._writer.ensure_pod(
            manifest, replica, grace_s=grace_s, before_send=check_not_rejected
        )
        self._claims.select_node_later(
            pod_template, name=launch.name, namespace=job.namespace, node=launch.node
        )
        self._informers.put(replica.job_id, pod)

    def _check_capacity(self, launch: Launch, registered: RegisteredJob) -> None:
        """Raise ``_NodeFull`` if others have taken the node's capacity: the kubelet would reject the pod, and not every node has one.

        A replica that starts at once was placed a moment ago and needs no check.
        """
        replica = launch.replica
        if replica not in registered.delayed and not replica.restart:
            return
        ours = sum_resources(pod_requests(pod.spec) for pod in self._store.pods_on_node(launch.node))
        if self._nodes.lacks_capacity(launch.node, ours + launch.template.requests):
            raise _NodeFull(f"other pods have taken the capacity of node {launch.node} since the placement")

    async def _delete_created(self, launch: Launch, registered: RegisteredJob) -> None:
        """Delete the created pods of a gang of which a pod was rejected. A replica's own restart is not a start of the gang."""
        replica = launch.replica
        if replica.restart:
            return
        created = [pod for pod in self._store.job_pods(replica.job_id) if _starts_with(pod, launch)]
        for pod in created:
            if (peer := replica_of(pod.metadata)) is not None:
                self._store.mark_for_removal(peer, f"removed: {_PEER_REJECTED}")
        if created:
            try:
                await self._writer.delete_start(
                    replica, registered.job.namespace, generation=launch.generation
                )
            except KubernetesApiError as error:
                log.warning("cannot delete the pods of a rejected gang yet: %s", error)

    def _owner_of(self, launch: Launch, registered: RegisteredJob) -> dict[str, Any] | None:
        if registered.uid:
            return config_map_owner(registered.job.name, registered.uid)
        uid = self._nodes.uid(launch.node)
        return node_owner(launch.node, uid) if uid else None

    async def _write_config_map(self, job_id: str, registered: RegisteredJob) -> None:
        try:
            uid = await self._writer.ensure_config_map(
                job_id,
                registered.job,
                uid=registered.uid,
                members=registered.members,
                files=registered.files,
                retained=registered.retained,
            )
        except (RequestRejected, NameTaken, ObjectNotFound) as rejection:
            registered.rejection = str(rejection)
            log.warning("config map rejected: %s", rejection, extra=fields(job=registered.job.name))
            return
        if uid != registered.uid:
            # Services owned by an earlier config map are deleted with it.
            registered.services.clear()
        registered.uid, registered.rejection = uid, ""

    def _reject(self, replica: ReplicaId, state: ReplicaState, why: str) -> Observation:
        code = NOT_RUN if state is ReplicaState.EXITED else None
        return self._store.record(
            Observation(replica=replica, state=state, at=self._clock(), exit_code=code, reason=why)
        )

    def _not_started(self, replica: ReplicaId) -> Observation:
        return Observation(replica=replica, state=ReplicaState.PLACED, at=self._clock())


def _starts_with(pod: Pod, launch: Launch) -> bool:
    peer, replica = replica_of(pod.metadata), launch.replica
    return (
        peer is not None
        and (peer.attempt, peer.restart) == (replica.attempt, replica.restart)
        and pod.metadata.labels.get(GENERATION) == str(launch.generation)
    )
