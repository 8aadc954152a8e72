"""The pods and config maps of the jobs that this copy looks after: a watch of each for every partition."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from muster_events.subjects import partition_of
from muster_runtimes.kubernetes import labels
from muster_runtimes.kubernetes.api import METADATA_LIST_ONLY, METADATA_ONLY, Api
from muster_runtimes.kubernetes.events import PROTOBUF_EVENTS
from muster_runtimes.kubernetes.objects import Anchor, Pod
from muster_runtimes.kubernetes.reflector import Collection as Watched
from muster_runtimes.kubernetes.reflector import Reflector
from muster_runtimes.kubernetes.runs import Runs
from muster_runtimes.kubernetes.writer import collection

_STRANGE_S = 5.0


class _Partition(msgspec.Struct, frozen=True):
    pods: Reflector[Pod]
    anchors: Reflector[Anchor]
    tasks: list[asyncio.Task[None]]


class Partitions:
    """Watches what is Muster's in ``namespace`` (empty: in all), and tells ``runs``."""

    def __init__(self, *, api: Api, pool: str, namespace: str, runs: Runs) -> None:
        self._api = api
        self._pool = pool
        self._namespace = namespace
        self._runs = runs
        self._partitions: dict[int, _Partition] = {}
        self._anchors: dict[str, Anchor] = {}
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
        await there.anchors.synced.wait()

    async def give_up(self, partition: int) -> None:
        """Watch a partition no more, and know nothing of it."""
        await self._end(partition)
        self._runs.give_up(partition)
        for job_id in [job_id for job_id in self._anchors if partition_of(job_id) == partition]:
            del self._anchors[job_id]

    @asynccontextmanager
    async def visit(self, job_id: str) -> AsyncGenerator[None]:
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

    def anchors(self) -> Collection[str]:
        """The jobs that have a config map."""
        return self._anchors.keys()

    def anchor(self, job_id: str) -> Anchor | None:
        """The config map of a job."""
        return self._anchors.get(job_id)

    def forget(self, job_id: str) -> None:
        """The config map of a job has been removed."""
        self._anchors.pop(job_id, None)

    def _watch(self, partition: int) -> _Partition:
        selector = labels.of_partition(self._pool, partition)
        pods = self._pods(selector)
        anchors = Reflector(
            api=self._api,
            collection=Watched(
                path=collection(self._namespace, "configmaps"),
                labels=selector,
                list_type=METADATA_LIST_ONLY,
                event_type=METADATA_ONLY,
            ),
            kind=Anchor,
            changed=self._anchor_changed,
        )
        return _Partition(pods, anchors, [self._task(pods.run), self._task(anchors.run)])

    def _pods(self, selector: str) -> Reflector[Pod]:
        return Reflector(
            api=self._api,
            collection=Watched(
                path=collection(self._namespace, "pods"), labels=selector, event_type=PROTOBUF_EVENTS
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

    def _anchor_changed(self, before: Anchor | None, after: Anchor | None) -> None:
        found = after or before
        job_id = found.metadata.labels.get(labels.JOB_ID, "") if found else ""
        if after is not None:
            self._anchors[job_id] = after
            if before is None:
                # It may have come by a write that was long under way, when its job was forgotten.
                asyncio.get_running_loop().call_later(_STRANGE_S, self._runs.tell, job_id)
        else:
            self._anchors.pop(job_id, None)
