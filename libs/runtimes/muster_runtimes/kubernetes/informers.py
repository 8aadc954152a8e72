"""DOC."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from muster_core.models import ENDED_STATES
from muster_events.subjects import partition_of
from muster_runtimes.kubernetes import labels
from muster_runtimes.kubernetes.api_client import METADATA_LIST_ONLY, METADATA_ONLY, ApiClient
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
from muster_runtimes.kubernetes.writer import collection_path
from muster_runtimes.notifier import ChangeListener, ChangeNotifier
from muster_runtimes.protocols import Observation, ReplicaId

_REMEMBERED = 10_000
_LAST_WORD_US = 5_000_000
"""How long a kubelet may take to say how a pod has ended that was deleted by force."""


class ReplicaEntry(msgspec.Struct, kw_only=True):
    """One run: its pod while there is one, what stands of it, whether Muster asked for its end, or why it takes it away.

    ``forced_at`` is when its pod was first seen without any grace left (µs), 0 while it has some.
    """

    pod: Pod | None = None
    forced_at: int = 0
    seen: Observation | None = None
    stop_requested: bool = False
    removal_reason: str = ""

    @property
    def is_unwanted(self) -> bool:
        """Whether its pod is to go: also one that came when its run had ended already, by a write that was long under way."""
        return self.stop_requested or bool(self.removal_reason) or self.has_ended

    @property
    def has_ended(self) -> bool:
        """Whether an end is known."""
        return self.seen is not None and self.seen.state in ENDED_STATES


class ReplicaStore:
    """The runs of the jobs that this copy looks after. ``node_unavailable`` says whether a node is gone or not heard of."""

    def __init__(
        self, *, clock: Callable[[], int], node_unavailable: Callable[[str], bool], start_s: float
    ) -> None:
        self._clock = clock
        self._node_away = node_unavailable
        self._start_s = start_s
        self._runs: dict[str, dict[ReplicaId, ReplicaEntry]] = {}
        self._forgotten: dict[str, frozenset[str]] = {}
        self._looks: list[tuple[int, ReplicaId]] = []
        self._changes = ChangeNotifier()

    def observations(self) -> list[Observation]:
        """Everything known."""
        return [run.seen for runs in self._runs.values() for run in runs.values() if run.seen is not None]

    def job_observations(self, job_id: str) -> list[Observation]:
        """Everything known of one job."""
        return [run.seen for run in self._runs.get(job_id, {}).values() if run.seen is not None]

    def observation(self, replica: ReplicaId) -> Observation | None:
        """What stands of one run."""
        run = self._runs.get(replica.job_id, {}).get(replica)
        return run.seen if run else None

    def pod(self, replica: ReplicaId) -> Pod | None:
        """The pod of a run, while there is one."""
        run = self._runs.get(replica.job_id, {}).get(replica)
        return run.pod if run else None

    def pods_of(self, job_id: str) -> list[Pod]:
        """The pods of a job."""
        return [run.pod for run in self._runs.get(job_id, {}).values() if run.pod is not None]

    def pods_on_node(self, node: str) -> list[Pod]:
        """The pods on a node that have not ended."""
        return [
            run.pod
            for runs in self._runs.values()
            for run in runs.values()
            if run.pod is not None and run.pod.spec.node_name == node and not is_terminated(run.pod)
        ]

    def has_terminating_predecessor(self, replica: ReplicaId) -> bool:
        """Whether an earlier run of the same replica has a pod that is on its way out: the name is free once that has gone."""
        return any(
            run.pod is not None and bool(run.pod.metadata.deletion_timestamp)
            for other, run in self._runs.get(replica.job_id, {}).items()
            if other.index == replica.index and other.role == replica.role and other != replica
        )

    def terminating(self) -> list[tuple[ReplicaId, Pod]]:
        """The runs whose pods somebody has asked to end, and which have not."""
        return [
            (replica, run.pod)
            for runs in self._runs.values()
            for replica, run in runs.items()
            if run.pod is not None and run.pod.metadata.deletion_timestamp and not is_terminated(run.pod)
        ]

    def to_delete(self) -> list[tuple[ReplicaId, Pod]]:
        """The runs whose pods are to go, and which nobody has been asked to end."""
        return [
            (replica, run.pod)
            for runs in self._runs.values()
            for replica, run in runs.items()
            if run.pod is not None
            and run.is_unwanted
            and not run.pod.metadata.deletion_timestamp
            and not is_terminated(run.pod)
        ]

    def force_deleted_overdue(self) -> list[Pod]:
        """The pods that were deleted by force, and whose kubelets have had the time to say that they are over, and have not."""
        before = self._clock() - _LAST_WORD_US
        return [
            run.pod
            for runs in self._runs.values()
            for run in runs.values()
            if run.pod is not None and 0 < run.forced_at <= before and is_force_deleted(run.pod)
        ]

    def main_ended(self) -> list[tuple[ReplicaId, Pod]]:
        """The runs whose deciding container has ended, while other containers of the pod go on and nobody has asked for their end."""
        return [
            (replica, run.pod)
            for runs in self._runs.values()
            for replica, run in runs.items()
            if run.pod is not None
            and not run.pod.metadata.deletion_timestamp
            and main_container_ended(run.pod)
        ]

    def job_ids(self) -> Sequence[str]:
        """The jobs of which a run is known."""
        return list(self._runs)

    def subscribe(self) -> ChangeListener:
        """Ids of jobs as they change, those that are known already first."""
        return self._changes.subscribe(self._runs)

    def notify(self, job_id: str) -> None:
        """Have the job looked at."""
        self._changes.notify(job_id)

    def ask(self, replica: ReplicaId) -> None:
        """Muster asks for the end of a run."""
        self._run(replica).stop_requested = True

    def mark_for_removal(self, replica: ReplicaId, removal_reason: str) -> None:
        """Muster takes a run away that has not ended, for this reason."""
        run = self._run(replica)
        if not run.has_ended:
            run.removal_reason = removal_reason

    def is_lost(self, replica: ReplicaId) -> bool:
        """Whether the pod of a run was to have ended by now, and its node is away."""
        run = self._runs.get(replica.job_id, {}).get(replica)
        return run is not None and run.pod is not None and is_lost(run.pod, self._view(run, run.pod))

    def record(self, seen: Observation) -> Observation:
        """What stands of a run that never became a pod."""
        self._run(seen.replica).seen = seen
        self._changes.notify(seen.replica.job_id)
        return seen

    def changed(self, before: Pod | None, after: Pod | None) -> None:
        """A pod was ``before`` and is ``after``."""
        pod = after or before
        replica = replica_of(pod.metadata) if pod else None
        if pod is None or replica is None:
            return
        if pod.metadata.uid in self._forgotten.get(replica.job_id, ()):
            return
        run = self._run(replica)
        if after is None:
            if run.pod is not None and run.pod.metadata.uid != pod.metadata.uid:
                return
            run.pod = None
            if not run.has_ended:
                run.seen = observe_deleted(pod, replica, self._view(run, pod))
            self._changes.notify(replica.job_id)
            return
        was_over = run.pod is not None and is_terminated(run.pod)
        run.pod = after
        if is_force_deleted(after):
            # By this clock: what the object says may be the instant of an earlier, gentle deletion.
            run.forced_at = run.forced_at or self._clock()
        if not run.has_ended:
            self._look(replica, run, after)
        elif is_terminated(after) and not was_over:
            # Its end is known, but only now may it be let go.
            self._changes.notify(replica.job_id)

    def recheck_due(self) -> None:
        """Look at those runs of which something was due although their pods have not changed."""
        now = self._clock()
        while self._looks and self._looks[0][0] <= now:
            _, replica = heapq.heappop(self._looks)
            self._look_at(replica)

    def recheck_node(self, node: str) -> None:
        """Look at the runs on a node again, of which something has changed."""
        for runs in list(self._runs.values()):
            for replica, run in list(runs.items()):
                if run.pod is not None and run.pod.spec.node_name == node:
                    self._look_at(replica)

    def forget(self, job_id: str) -> None:
        """Know nothing of the job any more, whatever is still said of the pods that it has now: but for those that have not ended yet."""
        runs = self._runs.pop(job_id, {})
        late = {
            replica: run
            for replica, run in runs.items()
            if run.pod is not None and not is_terminated(run.pod)
        }
        if late:
            # They came when their runs had ended already: the end of each has its job looked at again, and then they are let go.
            self._runs[job_id] = late
        going = {
            run.pod.metadata.uid
            for replica, run in runs.items()
            if run.pod is not None and replica not in late
        }
        self._forgotten[job_id] = self._forgotten.pop(job_id, frozenset()) | going
        if len(self._forgotten) > _REMEMBERED:
            del self._forgotten[next(iter(self._forgotten))]

    def drop(self, job_id: str) -> None:
        """Know nothing of the job until something is said of its pods again."""
        self._runs.pop(job_id, None)

    def release_partition(self, partition: int) -> None:
        """Know nothing of the jobs of a partition any more: others look after them."""
        for job_id in [job_id for job_id in self._runs if partition_of(job_id) == partition]:
            del self._runs[job_id]

    def _run(self, replica: ReplicaId) -> ReplicaEntry:
        return self._runs.setdefault(replica.job_id, {}).setdefault(replica, ReplicaEntry())

    def _look_at(self, replica: ReplicaId) -> None:
        run = self._runs.get(replica.job_id, {}).get(replica)
        if run is None or run.pod is None or run.has_ended:
            return
        self._look(replica, run, run.pod)

    def _look(self, replica: ReplicaId, run: ReplicaEntry, pod: Pod) -> None:
        view = self._view(run, pod)
        run.removal_reason = run.removal_reason or startup_failure(pod, view)
        seen = observe(pod, replica, view)
        due = next_check(pod, view)
        if due is not None:
            heapq.heappush(self._looks, (due, replica))
        if run.seen != seen:
            run.seen = seen
            self._changes.notify(replica.job_id)

    def _view(self, run: ReplicaEntry, pod: Pod) -> PodContext:
        return PodContext(
            now=self._clock(),
            stop_requested=run.stop_requested,
            removal_reason=run.removal_reason,
            node_unavailable=self._node_away(pod.spec.node_name),
            start_s=self._start_s,
        )


_STRANGE_S = 5.0


class _Partition(msgspec.Struct, frozen=True):
    pods: Reflector[Pod]
    config_maps: Reflector[PartialObjectMetadata]
    tasks: list[asyncio.Task[None]]


class PartitionInformers:
    """Watches what is Muster's in ``namespace`` (empty: in all), and tells ``runs``."""

    def __init__(self, *, api: ApiClient, pool: str, namespace: str, runs: ReplicaStore) -> None:
        self._api = api
        self._pool = pool
        self._namespace = namespace
        self._runs = runs
        self._partitions: dict[int, _Partition] = {}
        self._anchors: dict[str, PartialObjectMetadata] = {}
        self._visits: Counter[str] = Counter()
        self._failed: asyncio.Queue[BaseException] = asyncio.Queue()

    async def run(self) -> None:
        """Raise what a watch could not cope with; never returns."""
        raise await self._failed.get()

    async def aclose(self) -> None:
        """Watch no more."""
        for partition in list(self._partitions):
            await self._end(partition)

    async def take(self, partition: int) -> None:
        """Watch a partition; returns once everything of it is known."""
        if partition not in self._partitions:
            self._partitions[partition] = self._watch(partition)
        there = self._partitions[partition]
        await there.pods.synced.wait()
        await there.config_maps.synced.wait()

    async def release_partition(self, partition: int) -> None:
        """Watch a partition no more, and know nothing of it."""
        await self._end(partition)
        self._runs.release_partition(partition)
        for job_id in [job_id for job_id in self._anchors if partition_of(job_id) == partition]:
            del self._anchors[job_id]

    @asynccontextmanager
    async def watch_job(self, job_id: str) -> AsyncGenerator[None]:
        """Know the pods of a job while it is entered, whoever looks after it."""
        if partition_of(job_id) in self._partitions:
            yield
            return
        pods = self._pods(labels.of_job(job_id))
        task = asyncio.create_task(pods.run())
        self._visits[job_id] += 1
        try:
            await pods.synced.wait()
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._visits[job_id] -= 1
            if not self._visits[job_id]:
                del self._visits[job_id]
                if partition_of(job_id) not in self._partitions:
                    self._runs.drop(job_id)

    def put(self, job_id: str, pod: Pod) -> None:
        """Take a pod that was just written; its watch will say so, too, a little later."""
        if (partition := self._partitions.get(partition_of(job_id))) is not None:
            partition.pods.put(pod)

    def config_maps(self) -> Collection[str]:
        """The jobs that have a config map."""
        return self._anchors.keys()

    def config_map(self, job_id: str) -> PartialObjectMetadata | None:
        """The config map of a job."""
        return self._anchors.get(job_id)

    def forget(self, job_id: str) -> None:
        """The config map of a job has been removed."""
        self._anchors.pop(job_id, None)

    def _watch(self, partition: int) -> _Partition:
        selector = labels.of_partition(self._pool, partition)
        pods = self._pods(selector)
        config_maps = Reflector(
            api=self._api,
            target=WatchTarget(
                path=collection_path(self._namespace, "configmaps"),
                labels=selector,
                list_type=METADATA_LIST_ONLY,
                event_type=METADATA_ONLY,
            ),
            kind=PartialObjectMetadata,
            changed=self._anchor_changed,
        )
        return _Partition(pods, config_maps, [self._task(pods.run), self._task(config_maps.run)])

    def _pods(self, selector: str) -> Reflector[Pod]:
        return Reflector(
            api=self._api,
            target=WatchTarget(
                path=collection_path(self._namespace, "pods"), labels=selector, event_type=PROTOBUF_EVENTS
            ),
            kind=Pod,
            changed=self._runs.changed,
        )

    def _task(self, run: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        task = asyncio.create_task(run())
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed.put_nowait(error)

    async def _end(self, partition: int) -> None:
        there = self._partitions.pop(partition, None)
        if there is not None:
            for task in there.tasks:
                task.cancel()
            await asyncio.gather(*there.tasks, return_exceptions=True)

    def _anchor_changed(
        self, before: PartialObjectMetadata | None, after: PartialObjectMetadata | None
    ) -> None:
        found = after or before
        job_id = found.metadata.labels.get(labels.JOB_ID, "") if found else ""
        if after is not None:
            self._anchors[job_id] = after
            if before is None:
                # It may have come by a write that was long under way, when its job was forgotten.
                asyncio.get_running_loop().call_later(_STRANGE_S, self._runs.notify, job_id)
        else:
            self._anchors.pop(job_id, None)
