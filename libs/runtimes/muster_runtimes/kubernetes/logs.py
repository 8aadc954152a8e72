"""DOC."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO

from muster_core.frameworks import computes
from muster_core.models import ENDED_STATES, Job, JobKind, ReplicaState
from muster_runtimes.kubernetes.api_client import ApiClient, KubernetesApiError, ObjectNotFound
from muster_runtimes.kubernetes.informers import ReplicaStore
from muster_runtimes.kubernetes.labels import MAIN_CONTAINER
from muster_runtimes.kubernetes.objects import Pod
from muster_runtimes.kubernetes.pod_status import is_terminated, main_container_ended
from muster_runtimes.kubernetes.writer import collection_path
from muster_runtimes.process.logs import LogTail, parse_progress
from muster_runtimes.protocols import LogChunk, ProgressReport, ReplicaId
from muster_service.logs import fields

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class LogArchive:
    """Files under ``root``, at most ``most_bytes`` of each log: the newest. With 0 nothing is kept."""

    def __init__(self, *, root: Path, most_bytes: int) -> None:
        self._root = root
        self._half = most_bytes // 2
        if self._half:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def keeps(self) -> bool:
        """Whether anything is kept."""
        return self._half > 0

    def path(self, replica: ReplicaId) -> Path:
        """Where the log of a run is, or would be. Raises ``ValueError`` for names that could lead elsewhere."""
        for name in (replica.job_id, replica.role):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a name")
        leaf = f"{replica.attempt}.{replica.role}-{replica.index}.{replica.restart}.log"
        return self._root / replica.job_id / leaf

    def has(self, replica: ReplicaId) -> bool:
        """Whether the log of a run is here, as a whole."""
        return self.keeps and self.path(replica).exists()

    async def keep(self, replica: ReplicaId, chunks: AsyncIterator[bytes]) -> None:
        """Keep a log; it is here once all of it is."""
        path = self.path(replica)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        draft, older = path.with_suffix(".draft"), path.with_suffix(".older")
        older.unlink(missing_ok=True)
        file = draft.open("wb")
        try:
            async for chunk in chunks:
                if file.tell() + len(chunk) > self._half and file.tell():
                    file.close()
                    draft.replace(older)
                    file = draft.open("wb")
                file.write(chunk)
        finally:
            file.close()
        await asyncio.to_thread(_join, older, draft, path)

    async def forget(self, job_id: str) -> None:
        """Remove the logs of a job."""
        if self.keeps and _NAME.fullmatch(job_id):
            await asyncio.to_thread(shutil.rmtree, self._root / job_id, ignore_errors=True)


def _join(older: Path, newer: Path, path: Path) -> None:
    if older.exists():
        with older.open("ab") as file, newer.open("rb") as rest:
            _copy(rest, file)
        newer.unlink()
        older.replace(path)
    else:
        newer.replace(path)


def _copy(source: BinaryIO, target: BinaryIO) -> None:
    shutil.copyfileobj(source, target)


log = logging.getLogger(__name__)

_LOOK_S = 0.3
_NODE_REST_S = 30.0
_PATIENCE_S = 10.0
_LOOKS = 15
_MOST_CAPTURES = 256
_LOST = b"unable to retrieve container logs for "
_WAITING = frozenset({None, ReplicaState.PLACED, ReplicaState.LAUNCHED})


class PodLogReader:
    """Reads the logs of many replicas, and copies them into the archive."""

    def __init__(self, *, api: ApiClient, runs: ReplicaStore, archive: LogArchive) -> None:
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
        except (KubernetesApiError, TimeoutError) as error:
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
            if (
                pod is None
                or pod.metadata.deletion_timestamp
                or main_container_ended(pod)
                or is_terminated(pod)
            ):
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
                except KubernetesApiError as error:
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
        path = f"{collection_path(pod.metadata.namespace, 'pods')}/{pod.metadata.name}/log"
        async with self._api.stream(path, query=query, idle_timeout_s=None, accept="*/*") as stream:
            begun = False
            async for chunk in stream.chunks:
                # A node that has it no more says so in place of it.
                if not begun and chunk.startswith(_LOST):
                    raise ObjectNotFound(chunk.decode(errors="replace").strip())
                begun = True
                yield chunk


def _kept(replica: ReplicaId, archive: LogArchive, tail: int | None) -> list[bytes]:
    tap = LogTail(replica, archive.path(replica), tail=tail)
    try:
        data: list[bytes] = []
        while chunk := tap.read():
            data.append(chunk)
        return data
    finally:
        tap.close()


PREFIX = b"muster-progress: "
"""What such a line begins with; the rest of it is what the file would hold."""

_LATEST_LINES = "2000"
_MOST_BYTES = 1024 * 1024
_QUIET_S = 5.0
_AT_ONCE = 16


class LogProgressReader:
    """Reads the last line of progress of each job, and answers those that are new."""

    def __init__(self, *, api: ApiClient, runs: ReplicaStore) -> None:
        self._api = api
        self._runs = runs
        self._asked: dict[str, ReplicaId] = {}
        self._said: dict[str, ProgressReport] = {}
        self._turn = asyncio.Semaphore(_AT_ONCE)

    async def read(self, jobs: Mapping[str, Job]) -> list[ProgressReport]:
        """What is new of ``jobs``, by their ids."""
        speakers = {job_id: one for job_id, job in jobs.items() if (one := self._speaker(job_id, job))}
        for kept in (self._asked, self._said):
            for job_id in kept.keys() - speakers.keys():
                del kept[job_id]
        found = await asyncio.gather(*(self._ask(replica) for replica in speakers.values()))
        news: list[ProgressReport] = []
        for (job_id, replica), seen in zip(speakers.items(), found, strict=True):
            self._asked[job_id] = replica
            if seen is None or seen == self._said.get(job_id):
                continue
            self._said[job_id] = seen
            news.append(seen)
        return news

    def _speaker(self, job_id: str, job: Job) -> ReplicaId | None:
        """Who is asked next: who has spoken, else the one after the one who was asked last."""
        elastic = job.kind is JobKind.BATCH and any(role.min < role.max for role in job.roles)
        running = [
            seen.replica
            for seen in (self._runs.job_observations(job_id) if elastic else ())
            if seen.state is ReplicaState.RUNNING and computes(seen.replica.role)
        ]
        if not running:
            return None
        attempt = max(replica.attempt for replica in running)
        peers = sorted(replica for replica in running if replica.attempt == attempt)
        said = self._said.get(job_id)
        if said is not None and said.replica in peers:
            return said.replica
        last = self._asked.get(job_id)
        return next((replica for replica in peers if last is not None and replica > last), peers[0])

    async def _ask(self, replica: ReplicaId) -> ProgressReport | None:
        pod = self._runs.pod(replica)
        if pod is None:
            return None
        async with self._turn:
            try:
                written = await self._tail(pod)
            except KubernetesApiError as error:
                log.debug("the progress of %s cannot be read: %s", pod.metadata.name, error)
                return None
        lines = (line.removeprefix(PREFIX) for line in written.splitlines()[::-1] if line.startswith(PREFIX))
        # Without an instant of its own nobody could tell how fast it was.
        said = (parse_progress(replica, line, changed_at=0) for line in lines)
        return next((seen for seen in said if seen is not None), None)

    async def _tail(self, pod: Pod) -> bytes:
        query = {
            "container": pod.metadata.annotations.get(MAIN_CONTAINER, ""),
            "tailLines": _LATEST_LINES,
            "limitBytes": str(_MOST_BYTES),
        }
        path = f"{collection_path(pod.metadata.namespace, 'pods')}/{pod.metadata.name}/log"
        async with self._api.stream(path, query=query, idle_timeout_s=_QUIET_S, accept="*/*") as stream:
            return b"".join([chunk async for chunk in stream.chunks])
