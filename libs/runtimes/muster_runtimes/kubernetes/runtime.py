"""The Kubernetes runtime: replicas as pods with a node name. The state is in the API server; this process has only a view of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec

from muster_core.frameworks import Addresses, ConfigFile, RemoteShell, RuntimeContext, service_addresses
from muster_core.lifecycle import HeldJob, OrphanMark, RetainedJob
from muster_core.models import Job, Node, ReplicaState
from muster_runtimes.kubernetes import labels
from muster_runtimes.kubernetes.access import PodAccess
from muster_runtimes.kubernetes.api_client import (
    METADATA_LIST_ONLY,
    ApiClient,
    collection_path,
)
from muster_runtimes.kubernetes.errors import KubernetesApiError, ObjectNotFound
from muster_runtimes.kubernetes.gang_starter import GangStarter
from muster_runtimes.kubernetes.held_jobs import held_job, mark_of
from muster_runtimes.kubernetes.informers import PartitionInformers, ReplicaStore
from muster_runtimes.kubernetes.logs import LogArchive, LogProgressReader, PodLogReader
from muster_runtimes.kubernetes.manifests import FILES_DIRECTORY, MEMBERS_PATH, REMOTE_SHELL, config_map_name
from muster_runtimes.kubernetes.nodes import NodeInformer
from muster_runtimes.kubernetes.objects import ConfigMap, ObjectList, ObjectMeta, PartialObjectMetadata
from muster_runtimes.kubernetes.permissions import missing_permissions
from muster_runtimes.kubernetes.pod_cleanup import MIN_GRACE_S, PodCleaner
from muster_runtimes.kubernetes.volume_claims import VolumeClaims
from muster_runtimes.kubernetes.writer import ObjectWriter
from muster_runtimes.protocols import (
    Launch,
    LogChunk,
    Observation,
    ProgressReport,
    ReplicaId,
    RuntimeCheck,
)


class KubernetesOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the Kubernetes runtime.

    Attributes:
        pool: The name of the pool.
        namespace: The only namespace to use; empty for all.
        node_selector: The label selector of the pool's nodes; empty for all.
        cluster_domain: The suffix of replica addresses; empty for none.
        start_s: How long a container may fail to start before its gang is placed again, in seconds.
        node_lost_s: How long a node may be unavailable before its replicas are given up, in seconds.
    """

    pool: str
    namespace: str = ""
    node_selector: str = ""
    cluster_domain: str = ""
    start_s: float = 120.0
    node_lost_s: int = 60


class KubernetesRuntime:
    """The ``Runtime`` of a cluster; its methods need ``run`` to be running."""

    def __init__(
        self, *, api: ApiClient, archive: LogArchive, clock: Callable[[], int], options: KubernetesOptions
    ) -> None:
        self._api = api
        self._clock = clock
        self._options = options
        self._archive = archive
        self._nodes = NodeInformer(
            api=api,
            pool=options.pool,
            selector=options.node_selector,
            on_availability_change=self._recheck_node,
        )
        self._store = ReplicaStore(
            clock=clock, node_unavailable=self._nodes.is_unavailable, start_s=options.start_s
        )
        self._writer = ObjectWriter(api=api, pool=options.pool)
        self._logs = PodLogReader(api=api, store=self._store, archive=archive)
        self._claims = VolumeClaims(api=api)
        self._progress = LogProgressReader(api=api, store=self._store)
        self.access = PodAccess(api=api, store=self._store)
        """Commands in, and connections to, running pods."""
        self._cleaner = PodCleaner(store=self._store, writer=self._writer, logs=self._logs)
        self._informers = PartitionInformers(
            api=api, pool=options.pool, namespace=options.namespace, store=self._store
        )
        self._starter = GangStarter(
            clock=clock,
            nodes=self._nodes,
            store=self._store,
            informers=self._informers,
            writer=self._writer,
            claims=self._claims,
            pool=options.pool,
            node_lost_s=options.node_lost_s,
        )

    async def run(self) -> None:
        """Watch the cluster until cancelled; replicas continue to run after that."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._nodes.run())
                tasks.create_task(self._informers.run())
                tasks.create_task(self._cleaner.run())
        finally:
            await self._informers.aclose()
            await self._logs.aclose()
            await self._claims.aclose()

    async def check(self) -> RuntimeCheck:
        """Ask the API server for the permissions of this service account."""
        try:
            missing = await missing_permissions(self._api, namespace=self._options.namespace)
        except KubernetesApiError as error:
            return RuntimeCheck(name="kubernetes", problem=str(error))
        return RuntimeCheck(name="kubernetes", missing_permissions=tuple(map(str, missing)))

    async def acquire_partition(self, partition: int) -> None:
        """See ``ReplicaObserver``."""
        await self._nodes.synced()
        await self._informers.acquire(partition)

    async def release_partition(self, partition: int) -> None:
        """See ``ReplicaObserver``."""
        await self._informers.release(partition)
        self._starter.forget_partition(partition)

    async def refresh_job(self, job_id: str) -> None:
        """See ``ReplicaObserver``."""
        await self._informers.refresh_job(job_id)

    def watch_job(self, job_id: str) -> AbstractAsyncContextManager[None]:
        """See ``ReplicaObserver``."""
        return self._informers.watch_job(job_id)

    def register_job(self, job_id: str, job: Job) -> None:
        """See ``ReplicaControl``."""
        self._starter.register_job(job_id, job)

    def nodes(self) -> Sequence[Node]:
        """Return the nodes of the pool, with what others use of each."""
        return self._nodes.nodes()

    def node_changes(self) -> AsyncIterator[None]:
        """See ``NodeSource``."""
        return self._nodes.changes()

    def job_ids(self) -> Collection[str]:
        """Return the jobs that have pods or a config map."""
        return {*self._store.job_ids(), *self._informers.config_map_job_ids()}

    async def archived_job_ids(self) -> Collection[str]:
        """Return none, see ``archive_job``."""
        return ()

    async def retain_build(self, job_id: str, build: str) -> None:
        """Do nothing: images are in a registry."""

    async def retain_job(self, job_id: str, retained: RetainedJob) -> None:
        """Keep it for the job's config map or the annotations of its pods, which are written next."""
        self._starter.retain_job(job_id, msgspec.json.encode(retained))

    async def held_job(self, job_id: str) -> HeldJob:
        """See ``JobHolder``."""
        async with self._informers.watch_job(job_id):
            pods = {
                seen.replica: pod
                for seen in self._store.job_observations(job_id)
                if (pod := self._store.pod(seen.replica)) is not None
            }
            namespaces = {pod.metadata.namespace for pod in pods.values()}
            found = [await self._config_map(job_id, namespace) for namespace in namespaces]
            return held_job(
                job_id,
                self._store.job_observations(job_id),
                pods,
                next((config_map for config_map in found if config_map is not None), None),
            )

    async def orphans(self) -> Sequence[HeldJob]:
        """See ``JobHolder``."""
        found = await self._list_metadata(
            "pods", self._options.namespace, labels.of_orphans(self._options.pool)
        )
        job_ids = {metadata.labels[labels.JOB_ID] for metadata in found}
        return [await self.held_job(job_id) for job_id in sorted(job_ids)]

    def orphan_mark(self, job_id: str) -> OrphanMark | None:
        """See ``JobHolder``."""
        return mark_of(pod.metadata for pod in self._store.job_pods(job_id))

    async def mark_orphan(self, job_id: str, mark: OrphanMark | None) -> None:
        """Label the config map of the job, then its pods."""
        async with self._informers.watch_job(job_id):
            pods = [pod.metadata for pod in self._store.job_pods(job_id)]
            for namespace in {pod.namespace for pod in pods}:
                for metadata in await self._list_metadata("configmaps", namespace, labels.of_job(job_id)):
                    await self._writer.mark_orphan(metadata, "configmaps", mark)
            await asyncio.gather(*(self._writer.mark_orphan(pod, "pods", mark) for pod in pods))
        await self._informers.refresh_job(job_id)

    def observations(self) -> Sequence[Observation]:
        """See ``ReplicaObserver``."""
        return self._store.observations()

    def job_observations(self, job_id: str) -> Sequence[Observation]:
        """See ``ReplicaObserver``."""
        return self._store.job_observations(job_id)

    def job_changes(self) -> AsyncIterator[str]:
        """See ``ReplicaObserver``."""
        return self._store.subscribe()

    async def addresses(
        self, job_id: str, replicas: Sequence[tuple[str, int]], *, job: str, namespace: str
    ) -> Mapping[tuple[str, int], str]:
        """Return the addresses of the replicas' headless services."""
        del job, namespace
        every = service_addresses(self._starter.job(job_id), cluster_domain=self._options.cluster_domain)
        return {key: every[key] for key in replicas}

    async def start(self, launch: Launch) -> Observation:
        """Create the pod of a run, see ``GangStarter.start``."""
        return await self._starter.start(launch)

    async def stop(self, replica: ReplicaId, *, grace_s: float) -> None:
        """Delete the pod of a run; a run without a pod becomes REMOVED."""
        self._store.request_stop(replica)
        pod = self._store.pod(replica)
        if pod is not None:
            self._logs.start_capture(replica, pod)
            await self._writer.delete_pod(pod.metadata, grace_s=max(int(grace_s), MIN_GRACE_S))
        elif self._store.observation(replica) is None:
            self._store.record(
                Observation(
                    replica=replica,
                    state=ReplicaState.REMOVED,
                    at=self._clock(),
                    reason="stopped before it started",
                )
            )

    def confirm_recorded(self, job_id: str, replicas: Collection[ReplicaId]) -> None:
        """Release the pods of ended replicas, after their logs are archived."""
        for replica in replicas:
            self._cleaner.release(replica)

    async def archive_job(self, job_id: str) -> bool:
        """Do nothing: what is left of the job are objects of the cluster, which are deleted with it."""
        return True

    async def remove_replicas(self, job_id: str) -> None:
        """Delete the pods and services of a job whose replicas have all ended; their logs stay readable."""
        namespaces = {pod.metadata.namespace for pod in self._store.job_pods(job_id)}
        await self._cleaner.wait_released(job_id)
        for namespace in namespaces:
            await self._writer.delete_job_objects(job_id, namespace)

    async def write_members(self, job_id: str, content: bytes) -> str:
        """Write the list of members to the job's config map or to the annotations of its pods."""
        await self._starter.write_members(job_id, content)
        return MEMBERS_PATH

    async def write_config(self, job_id: str, files: Mapping[str, ConfigFile]) -> None:
        """Write the files to the job's config map."""
        await self._starter.write_config(job_id, files)

    def context(self, job_id: str, addresses: Addresses) -> RuntimeContext:
        """Return where the job's files are in each pod; replicas communicate over the pod network."""
        del job_id
        return RuntimeContext(
            addresses=addresses,
            members_path=MEMBERS_PATH,
            config_folder=FILES_DIRECTORY,
            remote_shell=RemoteShell(script=REMOTE_SHELL),
        )

    def logs(
        self, job_id: str, replicas: Sequence[ReplicaId], *, follow: bool, tail: int | None
    ) -> AsyncGenerator[LogChunk]:
        """See ``LogSource``."""
        chosen = replicas or sorted(seen.replica for seen in self._store.job_observations(job_id))
        wanted = [replica for replica in chosen if replica.job_id == job_id]
        return self._logs.read(wanted, follow=follow, tail=tail)

    async def progress(self) -> Sequence[ProgressReport]:
        """Return the new progress reports of elastic jobs."""
        return await self._progress.read(self._starter.jobs())

    async def forget(self, job_id: str) -> None:
        """Delete everything of a job whose replicas have all ended. The config map is last, because it identifies the job until then."""
        config_map = self._informers.config_map(job_id)
        registered = self._starter.registered(job_id)
        owner = config_map.metadata if config_map else None
        if owner is None and registered is not None and registered.uid:
            job = registered.job
            owner = ObjectMeta(name=config_map_name(job.name), namespace=job.namespace, uid=registered.uid)
        namespaces = {pod.metadata.namespace for pod in self._store.job_pods(job_id)}
        namespaces |= {owner.namespace} if owner else set()
        for seen in self._store.job_observations(job_id):
            self._cleaner.release(seen.replica)
        await self._cleaner.wait_released(job_id)
        for namespace in namespaces:
            await self._writer.delete_job_objects(job_id, namespace)
        if owner is not None:
            await self._writer.delete_config_map(owner)
        await self._archive.delete_job(job_id)
        self._store.forget(job_id)
        self._informers.forget(job_id)
        self._starter.forget(job_id)

    async def _config_map(self, job_id: str, namespace: str) -> ConfigMap | None:
        for metadata in await self._list_metadata("configmaps", namespace, labels.of_job(job_id)):
            path = f"{collection_path(namespace, 'configmaps')}/{metadata.name}"
            try:
                return await self._api.get(path, ConfigMap)
            except ObjectNotFound:
                continue
        return None

    async def _list_metadata(self, kind: str, namespace: str, selector: str) -> list[ObjectMeta]:
        found = await self._api.get(
            collection_path(namespace, kind),
            ObjectList[PartialObjectMetadata],
            query={"labelSelector": selector},
            accept=METADATA_LIST_ONLY,
        )
        return [item.metadata for item in found.items or ()]

    def _recheck_node(self, node: str) -> None:
        self._store.recheck_node(node)
