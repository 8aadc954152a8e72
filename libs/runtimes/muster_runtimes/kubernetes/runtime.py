"""Replicas as pods of a cluster, written with their node's name: the truth is in the API server, and what is kept here is a view of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec

from muster_core.frameworks import Addresses, ConfigFile, RemoteShell, Site, service_addresses
from muster_core.models import Job, Node, ReplicaState
from muster_runtimes.kubernetes.access import PodAccess
from muster_runtimes.kubernetes.api_client import ApiClient, KubernetesApiError
from muster_runtimes.kubernetes.gang_starter import GangStarter
from muster_runtimes.kubernetes.informers import PartitionInformers, ReplicaStore
from muster_runtimes.kubernetes.logs import LogArchive, LogProgressReader, PodLogReader
from muster_runtimes.kubernetes.manifests import (
    FILES_DIRECTORY,
    MEMBERS_PATH,
    REMOTE_SHELL,
    config_map_name,
)
from muster_runtimes.kubernetes.nodes import NodeInformer
from muster_runtimes.kubernetes.objects import ObjectMeta, Pod
from muster_runtimes.kubernetes.pod_cleanup import PodFinalizer
from muster_runtimes.kubernetes.volume_claims import VolumeClaims
from muster_runtimes.kubernetes.writer import ObjectWriter
from muster_runtimes.protocols import Launch, LogChunk, Observation, ProgressReport, ReplicaId
from muster_service.logs import fields

log = logging.getLogger(__name__)

_TICK_S = 1.0
_LEAST_GRACE_S = 1


class KubernetesOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``namespace`` confines the launcher to one (empty: all). ``node_selector`` says which nodes are the pool's (empty: all).

    ``cluster_domain`` ends the replicas' addresses (empty: it is left out). ``start_s`` is how long a container may fail to start before
    its gang is placed again, ``node_lost_s`` how long a node may be away before its replicas are given up.
    """

    pool: str
    namespace: str = ""
    node_selector: str = ""
    cluster_domain: str = ""
    start_s: float = 120.0
    node_lost_s: int = 60


class KubernetesRuntime:
    """The ``Runtime`` of a cluster. Everything but the constructor needs ``run`` to run."""

    def __init__(
        self, *, api: ApiClient, archive: LogArchive, clock: Callable[[], int], options: KubernetesOptions
    ) -> None:
        self._clock = clock
        self._options = options
        self._archive = archive
        self._nodes = NodeInformer(
            api=api, pool=options.pool, selector=options.node_selector, moved=self._node_moved
        )
        self._runs = ReplicaStore(
            clock=clock, node_unavailable=self._nodes.is_unavailable, start_s=options.start_s
        )
        self._writer = ObjectWriter(api=api, pool=options.pool)
        self._logs = PodLogReader(api=api, runs=self._runs, archive=archive)
        self._claims = VolumeClaims(api=api)
        self._progress = LogProgressReader(api=api, runs=self._runs)
        self.access = PodAccess(api=api, runs=self._runs)
        """The way into pods."""
        self._farewell = PodFinalizer(runs=self._runs, writer=self._writer, logs=self._logs)
        self._partitions = PartitionInformers(
            api=api, pool=options.pool, namespace=options.namespace, runs=self._runs
        )
        self._starts = GangStarter(
            clock=clock,
            nodes=self._nodes,
            runs=self._runs,
            partitions=self._partitions,
            writer=self._writer,
            claims=self._claims,
            pool=options.pool,
            node_lost_s=options.node_lost_s,
        )

    async def run(self) -> None:
        """Watch the cluster until cancelled; replicas go on after that."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._nodes.run())
                tasks.create_task(self._partitions.run())
                tasks.create_task(self._farewell.run())
                tasks.create_task(self._tick())
                tasks.create_task(self._sweep())
        finally:
            await self._partitions.aclose()
            await self._logs.aclose()
            await self._claims.aclose()

    async def acquire_partition(self, partition: int) -> None:
        """Look after the jobs of a partition; returns once every pod of theirs is known."""
        await self._nodes.synced()
        await self._partitions.take(partition)

    async def release_partition(self, partition: int) -> None:
        """Look after the jobs of a partition no more."""
        await self._partitions.release_partition(partition)
        self._starts.forget_partition(partition)

    def watch_job(self, job_id: str) -> AbstractAsyncContextManager[None]:
        """Know the replicas of a job while it is entered; those of other partitions are watched for it."""
        return self._partitions.watch_job(job_id)

    def register_job(self, job_id: str, job: Job) -> None:
        """What a job is; said before anything is asked for it."""
        self._starts.register_job(job_id, job)

    def nodes(self) -> Sequence[Node]:
        """The nodes of the pool, with what others use of each."""
        return self._nodes.nodes()

    def node_changes(self) -> AsyncIterator[None]:
        """Whenever ``nodes`` has changed, and once at the beginning."""
        return self._nodes.changes()

    def job_ids(self) -> Collection[str]:
        """The ids of the jobs of which anything is there, whether or not it ever ran."""
        return {*self._runs.job_ids(), *self._partitions.config_maps()}

    async def retain_build(self, job_id: str, build: str) -> None:
        """Images are kept by whoever keeps images: there is nothing to hold."""

    def observations(self) -> Sequence[Observation]:
        """Everything that is known."""
        return self._runs.observations()

    def job_observations(self, job_id: str) -> Sequence[Observation]:
        """The same for one job."""
        return self._runs.job_observations(job_id)

    def job_changes(self) -> AsyncIterator[str]:
        """The ids of jobs as they change."""
        return self._runs.subscribe()

    async def addresses(
        self, job_id: str, replicas: Sequence[tuple[str, int]], *, job: str, namespace: str
    ) -> Mapping[tuple[str, int], str]:
        """Names of services, the same for the job's whole life."""
        del job, namespace
        every = service_addresses(self._starts.job(job_id), cluster_domain=self._options.cluster_domain)
        return {key: every[key] for key in replicas}

    async def start(self, launch: Launch) -> Observation:
        """Have the pod of a run; what stands now. What no pod can be made of has EXITED, what the cluster does not take is REJECTED."""
        return await self._starts.start(launch)

    async def stop(self, replica: ReplicaId, *, grace_s: float) -> None:
        """Ask for the end of a run's pod; one that has none is REMOVED."""
        self._runs.ask(replica)
        pod = self._runs.pod(replica)
        if pod is not None:
            self._logs.capture(replica, pod)
            # Within 0 s the API server would not ask the node, and say that it is over while it still runs.
            await self._writer.delete_pod(pod.metadata, grace_s=max(int(grace_s), _LEAST_GRACE_S))
        elif self._runs.observation(replica) is None:
            words = "stopped before it ran"
            self._runs.record(
                Observation(replica=replica, state=ReplicaState.REMOVED, at=self._clock(), reason=words)
            )

    def confirm_recorded(self, job_id: str, replicas: Collection[ReplicaId]) -> None:
        """How these ended is on the bus: their pods may go, once their logs are kept."""
        for replica in replicas:
            self._farewell.bid(replica)

    async def remove_replicas(self, job_id: str) -> None:
        """Remove the pods and services of a job whose replicas have all ended; what they wrote stays readable."""
        namespaces = {pod.metadata.namespace for pod in self._runs.pods_of(job_id)}
        await self._farewell.done(job_id)
        for namespace in namespaces:
            await self._writer.delete_job_objects(job_id, namespace)

    async def write_members(self, job_id: str, content: bytes) -> str:
        """Have the job's config map say who its members are, or each of its pods; the path at which replicas find it."""
        await self._starts.write_members(job_id, content)
        return MEMBERS_PATH

    async def write_config(self, job_id: str, files: Mapping[str, ConfigFile]) -> None:
        """Have the job's config map hold these files."""
        await self._starts.write_config(job_id, files)

    def site(self, job_id: str, addresses: Addresses) -> Site:
        """Where the job's files are in each of its pods; its replicas meet on the pods' network."""
        del job_id
        return Site(
            addresses=addresses,
            members_path=MEMBERS_PATH,
            config_folder=FILES_DIRECTORY,
            remote_shell=RemoteShell(script=REMOTE_SHELL),
        )

    def logs(
        self, job_id: str, replicas: Sequence[ReplicaId], *, follow: bool, tail: int | None
    ) -> AsyncIterator[LogChunk]:
        """What the replicas of one job wrote; no replicas means all that are known."""
        chosen = replicas or sorted(seen.replica for seen in self._runs.job_observations(job_id))
        wanted = [replica for replica in chosen if replica.job_id == job_id]
        return self._logs.read(wanted, follow=follow, tail=tail)

    async def progress(self) -> Sequence[ProgressReport]:
        """What the programs of jobs whose size may change have said since the last time."""
        return await self._progress.read(self._starts.jobs())

    async def forget(self, job_id: str) -> None:
        """Remove everything of a job whose replicas have all ended. The config map goes last: it is how a job is found again."""
        config_map = self._partitions.config_map(job_id)
        known = self._starts.known(job_id)
        namespaces = {pod.metadata.namespace for pod in self._runs.pods_of(job_id)}
        namespaces |= {config_map.metadata.namespace} if config_map else set()
        namespaces |= {known.job.namespace} if known and known.uid else set()
        for seen in self._runs.job_observations(job_id):
            self._farewell.bid(seen.replica)
        await self._farewell.done(job_id)
        for namespace in namespaces:
            await self._writer.delete_job_objects(job_id, namespace)
        if config_map is not None:
            await self._writer.delete_config_map(config_map.metadata)
        elif known is not None and known.uid:
            await self._writer.delete_config_map(
                ObjectMeta(name=config_map_name(known.job.name), namespace=known.job.namespace, uid=known.uid)
            )
        await self._archive.forget(job_id)
        self._runs.forget(job_id)
        self._partitions.forget(job_id)
        self._starts.forget(job_id)

    def _node_moved(self, node: str) -> None:
        self._runs.recheck_node(node)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._runs.recheck_due()
            for replica, pod in self._runs.terminating():
                self._logs.capture(replica, pod)

    async def _sweep(self) -> None:
        """End the pods that are to go and have not been asked to: their deciding container has ended, they came late, they do not get to
        run, or they were asked in vain. And say that those are over of which nobody else will.
        """
        while True:
            await asyncio.sleep(_TICK_S)
            company = self._runs.main_ended()
            for replica, _ in company:
                self._runs.ask(replica)
            deletions = [self._end(pod, grace_s=_LEAST_GRACE_S) for _, pod in company]
            deletions += [self._end(pod, grace_s=None) for _, pod in self._runs.to_delete()]
            endings = [self._close(pod) for pod in self._runs.force_deleted_overdue()]
            await asyncio.gather(*deletions, *endings)

    async def _close(self, pod: Pod) -> None:
        try:
            await self._writer.close(pod.metadata)
        except KubernetesApiError as error:
            log.warning(
                "a pod deleted by force is not over yet: %s", error, extra=fields(pod=pod.metadata.name)
            )

    async def _end(self, pod: Pod, *, grace_s: int | None) -> None:
        try:
            await self._writer.delete_pod(pod.metadata, grace_s=grace_s)
        except KubernetesApiError as error:
            log.warning("a pod does not end yet: %s", error, extra=fields(pod=pod.metadata.name))
