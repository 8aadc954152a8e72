"""What replicas wrote: from their nodes while their pods are there, from the archive after that."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from muster_core.models import ENDED_STATES, ReplicaState
from muster_runtimes.kubernetes.api import Api
from muster_runtimes.kubernetes.archive import Archive
from muster_runtimes.kubernetes.errors import ApiError, NotFound
from muster_runtimes.kubernetes.labels import MAIN_CONTAINER
from muster_runtimes.kubernetes.objects import Pod
from muster_runtimes.kubernetes.runs import Runs
from muster_runtimes.kubernetes.states import is_over, main_ended
from muster_runtimes.kubernetes.writer import collection
from muster_runtimes.ports import LogChunk, ReplicaId
from muster_runtimes.process.logs import Tap
from muster_service.logs import fields

log = logging.getLogger(__name__)

_LOOK_S = 0.3
_NODE_REST_S = 30.0
_PATIENCE_S = 10.0
_LOOKS = 15
_MOST_CAPTURES = 256
_LOST = b"unable to retrieve container logs for "
_WAITING = frozenset({None, ReplicaState.PLACED, ReplicaState.LAUNCHED})


class LogReader:
    """Reads the logs of many replicas, and copies them into the archive."""

    def __init__(self, *, api: Api, runs: Runs, archive: Archive) -> None:
        self._api = api
        self._runs = runs
        self._archive = archive
        self._silent_nodes: dict[str, float] = {}
        self._captures: dict[ReplicaId, asyncio.Task[None]] = {}

    async def aclose(self) -> None:
        """Copy no more; what was not copied whole is copied by a successor."""
        captures = list(self._captures.values())
        for capture in captures:
            capture.cancel()
        await asyncio.gather(*captures, return_exceptions=True)

    async def read(
        self, replicas: Sequence[ReplicaId], *, follow: bool, tail: int | None
    ) -> AsyncIterator[LogChunk]:
        """Each replica's bytes in order, its runs one after the other; with ``follow`` until all have ended, side by side."""
        if not follow:
            for replica in replicas:
                async with aclosing(self._one(replica, follow=False, tail=tail)) as chunks:
                    async for data in chunks:
                        yield LogChunk(replica=replica, data=data)
            return
        queue: asyncio.Queue[LogChunk | None] = asyncio.Queue(maxsize=64)
        partitions: dict[tuple[str, int], list[ReplicaId]] = {}
        for replica in replicas:
            partitions.setdefault((replica.role, replica.index), []).append(replica)

        async def pump(runs: Sequence[ReplicaId]) -> None:
            try:
                for replica in runs:
                    async for data in self._one(replica, follow=True, tail=tail):
                        await queue.put(LogChunk(replica=replica, data=data))
            finally:
                await queue.put(None)

        tasks = [asyncio.create_task(pump(runs)) for runs in partitions.values()]
        try:
            left = len(tasks)
            while left:
                chunk = await queue.get()
                if chunk is None:
                    left -= 1
                else:
                    yield chunk
        finally:
            for task in tasks:
                task.cancel()

    def capture(self, replica: ReplicaId, pod: Pod) -> None:
        """Copy the log of a run that is about to be ended, while its node still has it: it goes with the container."""
        if not self._archive.keeps or replica in self._captures or self._is_silent(pod):
            return
        is_new = pod.status.container_statuses and not self._archive.has(replica)
        if is_new and len(self._captures) < _MOST_CAPTURES:
            task = asyncio.create_task(self._keep(replica, pod, follow=True))
            self._captures[replica] = task
            task.add_done_callback(lambda _: self._captures.pop(replica, None))

    async def archive(self, replica: ReplicaId, pod: Pod) -> None:
        """Copy the log of a run that has ended; a node that does not answer is not asked again for a while."""
        if (capture := self._captures.get(replica)) is not None:
            await asyncio.wait([capture], timeout=_PATIENCE_S)
            capture.cancel()
        never_ran = not pod.status.container_statuses
        if not self._archive.keeps or never_ran or self._archive.has(replica):
            return
        if not self._is_silent(pod):
            await self._keep(replica, pod, follow=False)

    def _is_silent(self, pod: Pod) -> bool:
        return self._silent_nodes.get(pod.spec.node_name, 0.0) > time.monotonic()

    async def _keep(self, replica: ReplicaId, pod: Pod, *, follow: bool) -> None:
        node = pod.spec.node_name
        try:
            async with asyncio.timeout(None if follow else _PATIENCE_S):
                await self._archive.keep(replica, self._of_pod(pod, follow=follow, tail=None, since_s=None))
        except (ApiError, TimeoutError) as error:
            self._silent_nodes[node] = time.monotonic() + _NODE_REST_S
            log.warning(
                "a log is not kept: %s",
                error,
                extra=fields(job_id=replica.job_id, pod=pod.metadata.name, node=node),
            )

    async def _is_all(self, replica: ReplicaId) -> bool:
        """Whether a log whose stream has come to its end is complete: its container has ended, or is about to."""
        for _ in range(_LOOKS):
            pod = self._runs.pod(replica)
            if pod is None or pod.metadata.deletion_timestamp or main_ended(pod) or is_over(pod):
                return True
            await asyncio.sleep(_LOOK_S)
        return False

    async def _one(self, replica: ReplicaId, *, follow: bool, tail: int | None) -> AsyncGenerator[bytes]:
        began: float | None = None
        while True:
            if self._archive.has(replica):
                if began is None:
                    for data in _kept(replica, self._archive, tail):
                        yield data
                return
            seen = self._runs.observation(replica)
            ended = seen is None or seen.state in ENDED_STATES
            pod = self._runs.pod(replica)
            if pod is not None and (seen.state if seen else None) not in _WAITING:
                since_s = None if began is None else max(int(time.monotonic() - began), 1)
                try:
                    async for data in self._of_pod(pod, follow=follow, tail=tail, since_s=since_s):
                        began = time.monotonic()
                        yield data
                    if not follow or ended or await self._is_all(replica):
                        return
                except ApiError as error:
                    if not follow or ended:
                        yield f"[muster: the log cannot be read: {error}]\n".encode()
                        return
                began = began or time.monotonic()
            if not follow or ended:
                return
            await asyncio.sleep(_LOOK_S)

    async def _of_pod(
        self, pod: Pod, *, follow: bool, tail: int | None, since_s: int | None
    ) -> AsyncIterator[bytes]:
        query = {"container": pod.metadata.annotations.get(MAIN_CONTAINER, "")}
        if follow:
            query["follow"] = "true"
        if since_s is not None:
            query["sinceSeconds"] = str(since_s)
        elif tail is not None:
            query["tailLines"] = str(tail)
        path = f"{collection(pod.metadata.namespace, 'pods')}/{pod.metadata.name}/log"
        async with self._api.stream(path, query=query, quiet_s=None, accept="*/*") as stream:
            begun = False
            async for chunk in stream.chunks:
                # A node that has it no more says so in place of it.
                if not begun and chunk.startswith(_LOST):
                    raise NotFound(chunk.decode(errors="replace").strip())
                begun = True
                yield chunk


def _kept(replica: ReplicaId, archive: Archive, tail: int | None) -> list[bytes]:
    tap = Tap(replica, archive.path(replica), tail=tail)
    try:
        data: list[bytes] = []
        while chunk := tap.read():
            data.append(chunk)
        return data
    finally:
        tap.close()
