"""The starts of replicas: a gang's pods are created all or none, and what was created is taken back when one of them cannot be. Their
job's config map is written first.

Nothing waits in here. A name that is not free yet, an answer that did not come, a pod that is still on its way out: the job is looked at
again when that has changed, and the same question leads to the rest of the work.
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
from muster_runtimes.kubernetes.api_client import KubernetesApiError, ObjectNotFound, RequestRejected
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
from muster_runtimes.protocols import Launch, Observation, ReplicaId
from muster_service.logs import fields

log = logging.getLogger(__name__)

CANNOT_RUN = 126
"""The exit code of a replica that no pod can be made of, as a shell has it for a command that cannot be run."""

_SOON_S = 0.5
_ANOTHER = "since another of its gang was refused"

StartKey = tuple[int, int, int]
"""Those that start together, all or none: attempt, generation and restart of each."""


class _GangRejected(Exception):
    """Another of those that are to start together was refused."""


class _NodeFull(Exception):
    """Others have taken the room of the node since the replica was placed."""


class KnownJob(msgspec.Struct, kw_only=True):
    """What is known of a job that this copy writes for.

    ``uid`` is its config map's, empty until this copy has written it. ``refusal``: why its namespace takes nothing of it. ``late`` are the
    replicas that could not start when they were first to. ``refused`` are the starts of which a member was refused, and ``starting`` counts
    the members of each that are under way.
    """

    job: Job
    uid: str = ""
    members: bytes | None = None
    files: dict[str, ConfigFile] = msgspec.field(default_factory=dict[str, ConfigFile])
    refusal: str = ""
    services: set[ReplicaId] = msgspec.field(default_factory=set[ReplicaId])
    late: set[ReplicaId] = msgspec.field(default_factory=set[ReplicaId])
    refused: set[StartKey] = msgspec.field(default_factory=set["StartKey"])
    starting: Counter[StartKey] = msgspec.field(default_factory=Counter["StartKey"])


class GangStarter:
    """Starts replicas of the jobs that it knows. ``node_lost_s`` is how long a pod stands a node that is not heard of."""

    def __init__(
        self,
        *,
        clock: Callable[[], int],
        nodes: NodeInformer,
        runs: ReplicaStore,
        partitions: PartitionInformers,
        writer: ObjectWriter,
        claims: VolumeClaims,
        pool: str,
        node_lost_s: int,
    ) -> None:
        self._clock = clock
        self._nodes = nodes
        self._runs = runs
        self._partitions = partitions
        self._writer = writer
        self._claims = claims
        self._pool = pool
        self._node_lost_s = node_lost_s
        self._jobs: dict[str, KnownJob] = {}

    def register_job(self, job_id: str, job: Job) -> None:
        """What a job is; said before anything is asked for it."""
        if job_id not in self._jobs:
            self._jobs[job_id] = KnownJob(job=job)

    def known(self, job_id: str) -> KnownJob | None:
        """What is known of a job, if anything."""
        return self._jobs.get(job_id)

    def job(self, job_id: str) -> Job:
        """What a job is. Raises ``KeyError`` where nobody has said so."""
        return self._jobs[job_id].job

    def jobs(self) -> dict[str, Job]:
        """All that are known, by their ids."""
        return {job_id: known.job for job_id, known in self._jobs.items()}

    def forget(self, job_id: str) -> None:
        """A job is no more."""
        self._jobs.pop(job_id, None)

    def forget_partition(self, partition: int) -> None:
        """Somebody else looks after the jobs of a partition."""
        self._jobs = {
            job_id: known for job_id, known in self._jobs.items() if partition_of(job_id) != partition
        }

    async def start(self, launch: Launch) -> Observation:
        """Have the pod of a run; what stands now. What no pod can be made of has EXITED, what the cluster does not take is REJECTED."""
        replica = launch.replica
        seen = self._runs.observation(replica)
        if seen is not None:
            return seen
        known = self._jobs[replica.job_id]
        if why := unsupported_reason(launch) or known.refusal:
            return self._refuse(replica, ReplicaState.EXITED, why)
        if self._runs.has_terminating_predecessor(replica):
            # That it has gone is an event, which has the job looked at.
            known.late.add(replica)
            return self._not_yet(replica)
        start = (replica.attempt, launch.generation, replica.restart)
        known.starting[start] += 1
        try:
            await self._start(launch, known, start)
        except NameTerminating:
            known.late.add(replica)
            self._look_soon(replica.job_id)
        except _GangRejected:
            return self._refuse(replica, ReplicaState.REJECTED, f"not started, {_ANOTHER}")
        except (RequestRejected, NameTaken, ObjectNotFound, _NodeFull) as refusal:
            known.refused.add(start)
            is_passing = isinstance(refusal, NameTaken | _NodeFull) or (
                isinstance(refusal, RequestRejected) and is_quota_exceeded(refusal)
            )
            state = ReplicaState.REJECTED if is_passing else ReplicaState.EXITED
            return self._refuse(replica, state, str(refusal))
        finally:
            known.starting[start] -= 1
            if not known.starting[start] and start in known.refused:
                await self._take_back(launch, known)
        return self._runs.observation(replica) or self._not_yet(replica)

    async def write_members(self, job_id: str, content: bytes) -> None:
        """Have the job's config map say who its members are, or each of its pods."""
        known = self._jobs[job_id]
        known.members = content
        # One that has a config map keeps it, whoever wrote it.
        if known.uid or needs_config_map(known.job) or self._partitions.config_map(job_id) is not None:
            await self._write(job_id, known)

    async def write_config(self, job_id: str, files: Mapping[str, ConfigFile]) -> None:
        """Have the job's config map hold these files."""
        known = self._jobs[job_id]
        known.files = dict(files)
        await self._write(job_id, known)

    async def _start(self, launch: Launch, known: KnownJob, start: StartKey) -> None:
        def none_is_refused() -> None:
            if start in known.refused:
                raise _GangRejected

        none_is_refused()
        replica, job = launch.replica, known.job
        self._check_node(launch, known)
        # At each start, since somebody may have deleted it meanwhile; that it is there is then the answer.
        if is_addressed(job) and replica not in known.services:
            service = service_manifest(
                replica.job_id, job, replica.role, replica.index, pool=self._pool, owner_uid=known.uid
            )
            await self._writer.service(service)
            known.services.add(replica)
        options = PodOptions(
            pool=self._pool, gpu_resource=self._nodes.gpu_resource(), node_lost_s=self._node_lost_s
        )
        pod_template = launch.template.pod
        await self._claims.select(pod_template, namespace=job.namespace, node=launch.node)
        content = pod_manifest(
            launch,
            job,
            config_map_owner=self._owner_of(launch, known),
            files=known.files,
            options=options,
            members=None if known.uid else (known.members or b"").decode(),
        )
        grace_s = launch.template.grace_s
        pod = await self._writer.pod(content, replica, grace_s=grace_s, before_send=none_is_refused)
        self._claims.follow(pod_template, name=launch.name, namespace=job.namespace, node=launch.node)
        self._partitions.put(replica.job_id, pod)

    def _check_node(self, launch: Launch, known: KnownJob) -> None:
        """Raise where others have taken the node's room meanwhile: a kubelet would refuse the pod, and not every node has one that does.

        Whoever starts at once is placed on what was known a moment ago, and need not be looked at again.
        """
        replica = launch.replica
        if replica not in known.late and not replica.restart:
            return
        ours = sum_resources(pod_requests(pod.spec) for pod in self._runs.pods_on_node(launch.node))
        if self._nodes.lacks_capacity(launch.node, ours + launch.template.requests):
            raise _NodeFull(f"others have taken the room on {launch.node} since it was placed there")

    async def _take_back(self, launch: Launch, known: KnownJob) -> None:
        """A gang starts as a whole: where a member is refused, those that were created go as well. A replica's own restart is no gang's."""
        replica = launch.replica
        if replica.restart:
            return
        created = [pod for pod in self._runs.pods_of(replica.job_id) if _starts_with(pod, launch)]
        for pod in created:
            if (peer := replica_of(pod.metadata)) is not None:
                self._runs.mark_for_removal(peer, f"taken back, {_ANOTHER}")
        if created:
            try:
                await self._writer.delete_start(replica, known.job.namespace, generation=launch.generation)
            except KubernetesApiError as error:
                log.warning("a gang that was refused is not taken back yet: %s", error)

    def _owner_of(self, launch: Launch, known: KnownJob) -> dict[str, Any] | None:
        if known.uid:
            return config_map_owner(known.job.name, known.uid)
        uid = self._nodes.uid(launch.node)
        return node_owner(launch.node, uid) if uid else None

    async def _write(self, job_id: str, known: KnownJob) -> None:
        try:
            uid = await self._writer.config(
                job_id, known.job, uid=known.uid, members=known.members, files=known.files
            )
        except (RequestRejected, NameTaken, ObjectNotFound) as refusal:
            known.refusal = str(refusal)
            log.warning("a job's config map is refused: %s", refusal, extra=fields(job=known.job.name))
            return
        if uid != known.uid:
            # What belonged to another config map goes with that one.
            known.services.clear()
        known.uid, known.refusal = uid, ""

    def _refuse(self, replica: ReplicaId, state: ReplicaState, why: str) -> Observation:
        code = CANNOT_RUN if state is ReplicaState.EXITED else None
        return self._runs.record(
            Observation(replica=replica, state=state, at=self._clock(), exit_code=code, reason=why)
        )

    def _not_yet(self, replica: ReplicaId) -> Observation:
        return Observation(replica=replica, state=ReplicaState.PLACED, at=self._clock())

    def _look_soon(self, job_id: str) -> None:
        asyncio.get_running_loop().call_later(_SOON_S, self._runs.notify, job_id)


def _starts_with(pod: Pod, launch: Launch) -> bool:
    peer, replica = replica_of(pod.metadata), launch.replica
    return (
        peer is not None
        and (peer.attempt, peer.restart) == (replica.attempt, replica.restart)
        and pod.metadata.labels.get(GENERATION) == str(launch.generation)
    )
