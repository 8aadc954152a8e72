"""Replicas as pods of a cluster, written with their node's name: the truth is in the API server, and what is kept here is a view of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec

from muster_core.frameworks import Addresses, ConfigFile, RemoteShell, Site, service_addresses
from muster_core.models import Job, Node, ReplicaState
from muster_runtimes.kubernetes.api import Api
from muster_runtimes.kubernetes.archive import Archive
from muster_runtimes.kubernetes.claims import Claims
from muster_runtimes.kubernetes.config import (
    FILES_FOLDER,
    MEMBERS_PATH,
    REMOTE_SHELL,
    config_name,
)
from muster_runtimes.kubernetes.errors import ApiError
from muster_runtimes.kubernetes.farewell import Farewell
from muster_runtimes.kubernetes.logs import LogReader
from muster_runtimes.kubernetes.node_watch import NodeWatch
from muster_runtimes.kubernetes.objects import Metadata, Pod
from muster_runtimes.kubernetes.partitions import Partitions
from muster_runtimes.kubernetes.progress import ProgressLines
from muster_runtimes.kubernetes.reach import PodReach
from muster_runtimes.kubernetes.runs import Runs
from muster_runtimes.kubernetes.starts import Starts
from muster_runtimes.kubernetes.writer import Writer
from muster_runtimes.ports import Launch, LogChunk, Observation, ProgressSeen, ReplicaId
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
        self, *, api: Api, archive: Archive, clock: Callable[[], int], options: KubernetesOptions
    ) -> None:
        self._clock = clock
        self._options = options
        self._archive = archive
        self._nodes = NodeWatch(
            api=api, pool=options.pool, selector=options.node_selector, moved=self._node_moved
        )
        self._runs = Runs(clock=clock, node_away=self._nodes.is_away, start_s=options.start_s)
        self._writer = Writer(api=api, pool=options.pool)
        self._logs = LogReader(api=api, runs=self._runs, archive=archive)
        self._claims = Claims(api=api)
        self._progress = ProgressLines(api=api, runs=self._runs)
        self.reach = PodReach(api=api, runs=self._runs)
        """The way into pods."""
        self._farewell = Farewell(runs=self._runs, writer=self._writer, logs=self._logs)
        self._partitions = Partitions(
            api=api, pool=options.pool, namespace=options.namespace, runs=self._runs
        )
        self._starts = Starts(
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

    async def take(self, partition: int) -> None:
        """Look after the jobs of a partition; returns once every pod of theirs is known."""
        await self._nodes.synced()
        await self._partitions.take(partition)

    async def give_up(self, partition: int) -> None:
        """Look after the jobs of a partition no more."""
        await self._partitions.give_up(partition)
        self._starts.forget_partition(partition)

    def visit(self, job_id: str) -> AbstractAsyncContextManager[None]:
        """Know the replicas of a job while it is entered; those of other partitions are watched for it."""
        return self._partitions.visit(job_id)

    def know(self, job_id: str, job: Job) -> None:
        """What a job is; said before anything is asked for it."""
        self._starts.know(job_id, job)

    def nodes(self) -> Sequence[Node]:
        """The nodes of the pool, with what others use of each."""
        return self._nodes.nodes()

    def node_changes(self) -> AsyncIterator[None]:
        """Whenever ``nodes`` has changed, and once at the beginning."""
        return self._nodes.changes()

    def jobs(self) -> Collection[str]:
        """The ids of the jobs of which anything is there, whether or not it ever ran."""
        return {*self._runs.job_ids(), *self._partitions.anchors()}

    async def hold_build(self, job_id: str, build: str) -> None:
        """Images are kept by whoever keeps images: there is nothing to hold."""

    def observed(self) -> Sequence[Observation]:
        """Everything that is known."""
        return self._runs.observed()

    def observed_of(self, job_id: str) -> Sequence[Observation]:
        """The same for one job."""
        return self._runs.observed_of(job_id)

    def changes(self) -> AsyncIterator[str]:
        """The ids of jobs as they change."""
        return self._runs.listen()

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
            self._runs.settle(
                Observation(replica=replica, state=ReplicaState.REMOVED, at=self._clock(), reason=words)
            )

    def recorded(self, job_id: str, replicas: Collection[ReplicaId]) -> None:
        """How these ended is on the bus: their pods may go, once their logs are kept."""
        for replica in replicas:
            self._farewell.bid(replica)

    async def clean(self, job_id: str) -> None:
        """Remove the pods and services of a job whose replicas have all ended; what they wrote stays readable."""
        namespaces = {pod.metadata.namespace for pod in self._runs.pods_of(job_id)}
        await self._farewell.done(job_id)
        for namespace in namespaces:
            await self._writer.remove_all(job_id, namespace)

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
            config_folder=FILES_FOLDER,
            remote_shell=RemoteShell(script=REMOTE_SHELL),
        )

    def logs(
        self, job_id: str, replicas: Sequence[ReplicaId], *, follow: bool, tail: int | None
    ) -> AsyncIterator[LogChunk]:
        """What the replicas of one job wrote; no replicas means all that are known."""
        chosen = replicas or sorted(seen.replica for seen in self._runs.observed_of(job_id))
        wanted = [replica for replica in chosen if replica.job_id == job_id]
        return self._logs.read(wanted, follow=follow, tail=tail)

    async def progress(self) -> Sequence[ProgressSeen]:
        """What the programs of jobs whose size may change have said since the last time."""
        return await self._progress.read(self._starts.jobs())

    async def forget(self, job_id: str) -> None:
        """Remove everything of a job whose replicas have all ended. The config map goes last: it is how a job is found again."""
        anchor = self._partitions.anchor(job_id)
        known = self._starts.known(job_id)
        namespaces = {pod.metadata.namespace for pod in self._runs.pods_of(job_id)}
        namespaces |= {anchor.metadata.namespace} if anchor else set()
        namespaces |= {known.job.namespace} if known and known.uid else set()
        for seen in self._runs.observed_of(job_id):
            self._farewell.bid(seen.replica)
        await self._farewell.done(job_id)
        for namespace in namespaces:
            await self._writer.remove_all(job_id, namespace)
        if anchor is not None:
            await self._writer.remove_config(anchor.metadata)
        elif known is not None and known.uid:
            await self._writer.remove_config(
                Metadata(name=config_name(known.job.name), namespace=known.job.namespace, uid=known.uid)
            )
        await self._archive.forget(job_id)
        self._runs.forget(job_id)
        self._partitions.forget(job_id)
        self._starts.forget(job_id)

    def _node_moved(self, node: str) -> None:
        self._runs.look_at_node(node)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._runs.look_again()
            for replica, pod in self._runs.leaving():
                self._logs.capture(replica, pod)

    async def _sweep(self) -> None:
        """End the pods that are to go and have not been asked to: their deciding container has ended, they came late, they do not get to
        run, or they were asked in vain. And say that those are over of which nobody else will.
        """
        while True:
            await asyncio.sleep(_TICK_S)
            company = self._runs.half_over()
            for replica, _ in company:
                self._runs.ask(replica)
            deletions = [self._end(pod, grace_s=_LEAST_GRACE_S) for _, pod in company]
            deletions += [self._end(pod, grace_s=None) for _, pod in self._runs.unwanted()]
            endings = [self._close(pod) for pod in self._runs.orphaned()]
            await asyncio.gather(*deletions, *endings)

    async def _close(self, pod: Pod) -> None:
        try:
            await self._writer.close(pod.metadata)
        except ApiError as error:
            log.warning(
                "a pod deleted by force is not over yet: %s", error, extra=fields(pod=pod.metadata.name)
            )

    async def _end(self, pod: Pod, *, grace_s: int | None) -> None:
        try:
            await self._writer.delete_pod(pod.metadata, grace_s=grace_s)
        except ApiError as error:
            log.warning("a pod does not end yet: %s", error, extra=fields(pod=pod.metadata.name))
