"""The local view of the pods and config maps of the owned partitions: informers that watch them, and the store of every run of a replica.

An end is final. It stays in the store after its pod is deleted, until the job is forgotten, so that a later comparison does not take
the replica for lost.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from muster_core.models import ENDED_STATES
from muster_events.subjects import partition_of
from muster_runtimes.kubernetes import labels
from muster_runtimes.kubernetes.api_client import (
    METADATA_LIST_ONLY,
    METADATA_ONLY,
    ApiClient,
    collection_path,
)
from muster_runtimes.kubernetes.labels import replica_of
from muster_runtimes.kubernetes.objects import PartialObjectMetadata, Pod
from muster_runtimes.kubernetes.pod_status import (
    PodContext,
    is_force_deleted,
    is_lost,
    is_terminated,
    main_container_ended,
    next_check,
    observe,
    observe_deleted,
    startup_failure,
)
from muster_runtimes.kubernetes.reflector import PROTOBUF_EVENTS, Reflector, WatchTarget
from muster_runtimes.notifier import ChangeListener, ChangeNotifier
from muster_runtimes.protocols import Observation, ReplicaId

_FORGOTTEN_JOBS = 10_000
_KUBELET_REPORT_US = 5_000_000
"""How long a kubelet may take to report the end of a force-deleted pod."""

_NEW_CONFIG_MAP_S = 5.0


class ReplicaEntry(msgspec.Struct, kw_only=True):
    """One run of a replica.

    Attributes:
        pod: Its pod, while there is one.
        force_deleted_at: When its pod was first seen without a grace period (µs); 0 if it has one.
        observation: The latest observation; None before the first.
        stop_requested: Muster asked for its end.
        removal_reason: Why Muster removes its pod although it is wanted; empty otherwise.
    """

    pod: Pod | None = None
    force_deleted_at: int = 0
    observation: Observation | None = None
    stop_requested: bool = False
    removal_reason: str = ""

    @property
    def is_unwanted(self) -> bool:
        """Whether its pod is to be deleted; also true for a pod that a delayed write created after the end of the run."""
        return self.stop_requested or bool(self.removal_reason) or self.has_ended

    @property
    def has_ended(self) -> bool:
        """Whether its end is observed."""
        return self.observation is not None and self.observation.state in ENDED_STATES


class ReplicaStore:
    """The runs of the jobs that this instance owns. ``node_unavailable`` tells whether a node is deleted or not ready."""

    def __init__(
        self, *, clock: Callable[[], int], node_unavailable: Callable[[str], bool], start_s: float
    ) -> None:
        self._clock = clock
        self._node_unavailable = node_unavailable
        self._start_s = start_s
        self._jobs: dict[str, dict[ReplicaId, ReplicaEntry]] = {}
        self._forgotten: dict[str, frozenset[str]] = {}
        self._checks: list[tuple[int, ReplicaId]] = []
        self._notifier = ChangeNotifier()

    def observations(self) -> list[Observation]:
        """Return all observations."""
        return [seen for job_id in self._jobs for seen in self.job_observations(job_id)]

    def job_observations(self, job_id: str) -> list[Observation]:
        """Return the observations of a job."""
        entries = self._jobs.get(job_id, {}).values()
        return [entry.observation for entry in entries if entry.observation is not None]

    def observation(self, replica: ReplicaId) -> Observation | None:
        """Return the observation of one run."""
        entry = self._find(replica)
        return entry.observation if entry else None

    def pod(self, replica: ReplicaId) -> Pod | None:
        """Return the pod of one run, while there is one."""
        entry = self._find(replica)
        return entry.pod if entry else None

    def job_pods(self, job_id: str) -> list[Pod]:
        """Return the pods of a job."""
        return [entry.pod for entry in self._jobs.get(job_id, {}).values() if entry.pod is not None]

    def pods_on_node(self, node: str) -> list[Pod]:
        """Return the pods on a node that are not terminated, without those of orphans, which count as foreign."""
        return [
            pod
            for _, _, pod in self._pods()
            if pod.spec.node_name == node
            and not is_terminated(pod)
            and labels.ORPHAN not in pod.metadata.labels
        ]

    def has_terminating_predecessor(self, replica: ReplicaId) -> bool:
        """Whether a terminating pod of another run of the same replica still holds the pod's name."""
        return any(
            entry.pod is not None and bool(entry.pod.metadata.deletion_timestamp)
            for other, entry in self._jobs.get(replica.job_id, {}).items()
            if other.index == replica.index and other.role == replica.role and other != replica
        )

    def terminating(self) -> list[tuple[ReplicaId, Pod]]:
        """Return the runs whose pods are being deleted and are not terminated yet."""
        return [
            (replica, pod)
            for replica, _, pod in self._pods()
            if pod.metadata.deletion_timestamp and not is_terminated(pod)
        ]

    def to_delete(self) -> list[Pod]:
        """Return the unwanted pods that no client has deleted yet."""
        return [
            pod
            for _, entry, pod in self._pods()
            if entry.is_unwanted and not pod.metadata.deletion_timestamp and not is_terminated(pod)
        ]

    def force_deleted_overdue(self) -> list[Pod]:
        """Return the force-deleted pods whose end the kubelet has not reported in time."""
        before = self._clock() - _KUBELET_REPORT_US
        return [
            pod
            for _, entry, pod in self._pods()
            if 0 < entry.force_deleted_at <= before and is_force_deleted(pod)
        ]

    def main_ended(self) -> list[tuple[ReplicaId, Pod]]:
        """Return the runs whose main container has ended while the other containers of the pod continue."""
        return [
            (replica, pod)
            for replica, _, pod in self._pods()
            if not pod.metadata.deletion_timestamp and main_container_ended(pod)
        ]

    def job_ids(self) -> Collection[str]:
        """Return the jobs with a known run."""
        return list(self._jobs)

    def subscribe(self) -> ChangeListener:
        """Return the ids of jobs as they change, known jobs first."""
        return self._notifier.subscribe(self._jobs)

    def notify(self, job_id: str) -> None:
        """Report the job as changed."""
        self._notifier.notify(job_id)

    def request_stop(self, replica: ReplicaId) -> None:
        """Note that Muster asks for the end of a run."""
        self._entry(replica).stop_requested = True

    def mark_for_removal(self, replica: ReplicaId, reason: str) -> None:
        """Note that Muster removes the pod of a run that has not ended."""
        entry = self._entry(replica)
        if not entry.has_ended:
            entry.removal_reason = reason

    def is_lost(self, replica: ReplicaId) -> bool:
        """Whether the deadline of a run's deletion has passed and its node is unavailable."""
        entry = self._find(replica)
        return (
            entry is not None
            and entry.pod is not None
            and is_lost(entry.pod, self._context(entry, entry.pod))
        )

    def record(self, observation: Observation) -> Observation:
        """Store the observation of a run that never had a pod."""
        self._entry(observation.replica).observation = observation
        self.notify(observation.replica.job_id)
        return observation

    def on_pod_change(self, before: Pod | None, after: Pod | None) -> None:
        """Take over a pod that has changed, appeared (``before`` is None) or been deleted (``after`` is None)."""
        pod = after or before
        replica = replica_of(pod.metadata) if pod else None
        if pod is None or replica is None:
            return
        if pod.metadata.uid in self._forgotten.get(replica.job_id, ()):
            return
        entry = self._entry(replica)
        if after is None:
            if entry.pod is not None and entry.pod.metadata.uid != pod.metadata.uid:
                return
            entry.pod = None
            if not entry.has_ended:
                entry.observation = observe_deleted(pod, replica, self._context(entry, pod))
            self.notify(replica.job_id)
            return
        was_terminated = entry.pod is not None and is_terminated(entry.pod)
        if entry.pod is not None and labels.decode_mark(entry.pod.metadata) != labels.decode_mark(
            after.metadata
        ):
            self.notify(replica.job_id)
        entry.pod = after
        if is_force_deleted(after):
            # By this clock: the timestamp in the object may be that of an earlier, graceful deletion.
            entry.force_deleted_at = entry.force_deleted_at or self._clock()
        if not entry.has_ended:
            self._observe(replica, entry, after)
        elif is_terminated(after) and not was_terminated:
            # The end was known; now the pod can be released, too.
            self.notify(replica.job_id)

    def recheck_due(self) -> None:
        """Observe again the runs whose observation may change with time alone."""
        now = self._clock()
        while self._checks and self._checks[0][0] <= now:
            _, replica = heapq.heappop(self._checks)
            self._recheck(replica)

    def recheck_node(self, node: str) -> None:
        """Observe again the runs on a node whose availability has changed."""
        for replica, _, pod in list(self._pods()):
            if pod.spec.node_name == node:
                self._recheck(replica)

    def forget(self, job_id: str) -> None:
        """Drop a job and ignore later events of its pods, except for pods that are not terminated yet."""
        entries = self._jobs.pop(job_id, {})
        late = {
            replica: entry
            for replica, entry in entries.items()
            if entry.pod is not None and not is_terminated(entry.pod)
        }
        if late:
            # These pods appeared after the ends of their runs. Their termination notifies the job again, and then they are released.
            self._jobs[job_id] = late
        going = {
            entry.pod.metadata.uid
            for replica, entry in entries.items()
            if entry.pod is not None and replica not in late
        }
        self._forgotten[job_id] = self._forgotten.pop(job_id, frozenset()) | going
        if len(self._forgotten) > _FORGOTTEN_JOBS:
            del self._forgotten[next(iter(self._forgotten))]

    def drop_job(self, job_id: str) -> None:
        """Drop a job until the next event of one of its pods."""
        self._jobs.pop(job_id, None)

    def drop_partition(self, partition: int) -> None:
        """Drop the jobs of a partition that another instance owns now."""
        for job_id in [job_id for job_id in self._jobs if partition_of(job_id) == partition]:
            del self._jobs[job_id]

    def _pods(self) -> Iterator[tuple[ReplicaId, ReplicaEntry, Pod]]:
        for entries in self._jobs.values():
            for replica, entry in entries.items():
                if entry.pod is not None:
                    yield replica, entry, entry.pod

    def _find(self, replica: ReplicaId) -> ReplicaEntry | None:
        return self._jobs.get(replica.job_id, {}).get(replica)

    def _entry(self, replica: ReplicaId) -> ReplicaEntry:
        return self._jobs.setdefault(replica.job_id, {}).setdefault(replica, ReplicaEntry())

    def _recheck(self, replica: ReplicaId) -> None:
        entry = self._find(replica)
        if entry is not None and entry.pod is not None and not entry.has_ended:
            self._observe(replica, entry, entry.pod)

    def _observe(self, replica: ReplicaId, entry: ReplicaEntry, pod: Pod) -> None:
        context = self._context(entry, pod)
        entry.removal_reason = entry.removal_reason or startup_failure(pod, context)
        observation = observe(pod, replica, context)
        due = next_check(pod, context)
        if due is not None:
            heapq.heappush(self._checks, (due, replica))
        if entry.observation != observation:
            entry.observation = observation
            self.notify(replica.job_id)

    def _context(self, entry: ReplicaEntry, pod: Pod) -> PodContext:
        return PodContext(
            now=self._clock(),
            stop_requested=entry.stop_requested,
            removal_reason=entry.removal_reason,
            node_unavailable=self._node_unavailable(pod.spec.node_name),
            start_s=self._start_s,
        )


class _PartitionInformer(msgspec.Struct, frozen=True):
    pods: Reflector[Pod]
    config_maps: Reflector[PartialObjectMetadata]
    tasks: list[asyncio.Task[None]]


class PartitionInformers:
    """Watches the pool's pods and config maps in ``namespace`` (empty: all namespaces), one informer per partition, and feeds ``store``."""

    def __init__(self, *, api: ApiClient, pool: str, namespace: str, store: ReplicaStore) -> None:
        self._api = api
        self._pool = pool
        self._namespace = namespace
        self._store = store
        self._partitions: dict[int, _PartitionInformer] = {}
        self._config_maps: dict[str, PartialObjectMetadata] = {}
        self._watched_jobs: Counter[str] = Counter()
        self._failed: asyncio.Queue[BaseException] = asyncio.Queue()

    async def run(self) -> None:
        """Raise the first exception of an informer; never returns."""
        raise await self._failed.get()

    async def aclose(self) -> None:
        """Stop all informers."""
        for partition in list(self._partitions):
            await self._stop(partition)

    async def acquire(self, partition: int) -> None:
        """Watch a partition; returns when its informer has synced."""
        if partition not in self._partitions:
            self._partitions[partition] = self._start(partition)
        informer = self._partitions[partition]
        await informer.pods.synced.wait()
        await informer.config_maps.synced.wait()

    async def release(self, partition: int) -> None:
        """Stop watching a partition, and drop its jobs."""
        await self._stop(partition)
        self._store.drop_partition(partition)
        for job_id in [job_id for job_id in self._config_maps if partition_of(job_id) == partition]:
            del self._config_maps[job_id]

    async def refresh_job(self, job_id: str) -> None:
        """List the pods of a job of an owned partition; raises ``KubernetesApiError`` if the API server cannot be read."""
        if (informer := self._partitions.get(partition_of(job_id))) is not None:
            await informer.pods.refresh(labels.of_job(job_id))

    @asynccontextmanager
    async def watch_job(self, job_id: str) -> AsyncGenerator[None]:
        """Watch the pods of a job inside the context, also if another instance owns its partition."""
        if partition_of(job_id) in self._partitions:
            yield
            return
        pods = self._pod_reflector(labels.of_job(job_id))
        task = asyncio.create_task(pods.run())
        self._watched_jobs[job_id] += 1
        try:
            await pods.synced.wait()
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._watched_jobs[job_id] -= 1
            if not self._watched_jobs[job_id]:
                del self._watched_jobs[job_id]
                if partition_of(job_id) not in self._partitions:
                    self._store.drop_job(job_id)

    def put(self, job_id: str, pod: Pod) -> None:
        """Add a pod that was just written, ahead of its watch event."""
        if (informer := self._partitions.get(partition_of(job_id))) is not None:
            informer.pods.put(pod)

    def config_map_job_ids(self) -> Collection[str]:
        """Return the jobs that have a config map."""
        return self._config_maps.keys()

    def config_map(self, job_id: str) -> PartialObjectMetadata | None:
        """Return the config map of a job."""
        return self._config_maps.get(job_id)

    def forget(self, job_id: str) -> None:
        """Drop the config map of a job, which has been deleted."""
        self._config_maps.pop(job_id, None)

    def _start(self, partition: int) -> _PartitionInformer:
        selector = labels.of_partition(self._pool, partition)
        pods = self._pod_reflector(selector)
        config_maps = Reflector(
            api=self._api,
            target=WatchTarget(
                path=collection_path(self._namespace, "configmaps"),
                labels=selector,
                list_type=METADATA_LIST_ONLY,
                event_type=METADATA_ONLY,
            ),
            kind=PartialObjectMetadata,
            on_change=self._on_config_map_change,
        )
        return _PartitionInformer(pods, config_maps, [self._task(pods.run), self._task(config_maps.run)])

    def _pod_reflector(self, selector: str) -> Reflector[Pod]:
        return Reflector(
            api=self._api,
            target=WatchTarget(
                path=collection_path(self._namespace, "pods"), labels=selector, event_type=PROTOBUF_EVENTS
            ),
            kind=Pod,
            on_change=self._store.on_pod_change,
        )

    def _task(self, run: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        task = asyncio.create_task(run())
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed.put_nowait(error)

    async def _stop(self, partition: int) -> None:
        informer = self._partitions.pop(partition, None)
        if informer is not None:
            for task in informer.tasks:
                task.cancel()
            await asyncio.gather(*informer.tasks, return_exceptions=True)

    def _on_config_map_change(
        self, before: PartialObjectMetadata | None, after: PartialObjectMetadata | None
    ) -> None:
        config_map = after or before
        job_id = config_map.metadata.labels.get(labels.JOB_ID, "") if config_map else ""
        if after is not None:
            self._config_maps[job_id] = after
            if before is None:
                # A delayed write may have created it after its job was forgotten.
                asyncio.get_running_loop().call_later(_NEW_CONFIG_MAP_S, self._store.notify, job_id)
        else:
            self._config_maps.pop(job_id, None)
