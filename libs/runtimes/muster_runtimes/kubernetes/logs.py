"""Logs of replicas: read from their nodes while the pods exist, and from an archive after that; and progress reports in them.

A node keeps a container's log as long as its pod, so the log is archived after the container has ended and before the pod is released.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from muster_core.frameworks import computes
from muster_core.models import ENDED_STATES, Job, JobKind, ReplicaState
from muster_runtimes.kubernetes.api_client import ApiClient, collection_path
from muster_runtimes.kubernetes.errors import KubernetesApiError, ObjectNotFound
from muster_runtimes.kubernetes.informers import ReplicaStore
from muster_runtimes.kubernetes.labels import MAIN_CONTAINER
from muster_runtimes.kubernetes.objects import Pod
from muster_runtimes.kubernetes.pod_status import is_terminated, main_container_ended
from muster_runtimes.merging import merged
from muster_runtimes.process.logs import RecentLogLines, parse_progress
from muster_runtimes.protocols import LogChunk, ProgressReport, ReplicaId
from muster_service.logs import fields

log = logging.getLogger(__name__)

PROGRESS_PREFIX = b"muster-progress: "
"""The beginning of a progress line; the rest of the line has the format of a progress file."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_AHEAD = 64
_POLL_S = 0.3
_COMPLETE_POLLS = 15
_NODE_BACKOFF_S = 30.0
_ARCHIVE_S = 10.0
_MAX_CAPTURES = 256
_LOST = b"unable to retrieve container logs for "
_NOT_STARTED = frozenset({None, ReplicaState.PLACED, ReplicaState.LAUNCHED})
_PROGRESS_LINES = "2000"
_PROGRESS_BYTES = 1024 * 1024
_PROGRESS_IDLE_S = 5.0
_PROGRESS_CONCURRENCY = 16


class LogArchive:
    """One file per run under ``root``, with at most the newest ``max_bytes`` of its log; with 0 nothing is kept."""

    def __init__(self, *, root: Path, max_bytes: int) -> None:
        self._root = root
        self._half = max_bytes // 2
        if self._half:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def is_enabled(self) -> bool:
        """Whether logs are kept."""
        return self._half > 0

    def path(self, replica: ReplicaId) -> Path:
        """Return the path of a run's log. Raises ``ValueError`` for names that could lead out of the archive."""
        for name in (replica.job_id, replica.role):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a valid name")
        leaf = f"{replica.attempt}.{replica.role}-{replica.index}.{replica.restart}.log"
        return self._root / replica.job_id / leaf

    def has(self, replica: ReplicaId) -> bool:
        """Whether the complete log of a run is archived."""
        return self.is_enabled and self.path(replica).exists()

    async def store(self, replica: ReplicaId, chunks: AsyncIterator[bytes]) -> None:
        """Archive a log; ``has`` is true when all of it is stored."""
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

    async def delete_job(self, job_id: str) -> None:
        """Delete the logs of a job."""
        if self.is_enabled and _NAME.fullmatch(job_id):
            await asyncio.to_thread(shutil.rmtree, self._root / job_id, ignore_errors=True)


def _join(older: Path, newer: Path, path: Path) -> None:
    if older.exists():
        with older.open("ab") as file, newer.open("rb") as rest:
            shutil.copyfileobj(rest, file)
        newer.unlink()
        older.replace(path)
    else:
        newer.replace(path)


class PodLogReader:
    """Reads the logs of replicas, and copies them to the archive."""

    def __init__(self, *, api: ApiClient, store: ReplicaStore, archive: LogArchive) -> None:
        self._api = api
        self._store = store
        self._archive = archive
        self._failing_nodes: dict[str, float] = {}
        self._captures: dict[ReplicaId, asyncio.Task[None]] = {}

    async def aclose(self) -> None:
        """Stop copying; the next instance copies incomplete logs again."""
        captures = list(self._captures.values())
        for capture in captures:
            capture.cancel()
        await asyncio.gather(*captures, return_exceptions=True)

    async def read(
        self, replicas: Sequence[ReplicaId], *, follow: bool, tail: int | None
    ) -> AsyncGenerator[LogChunk]:
        """Yield the logs of replicas, see ``LogSource.logs``; the runs of a replica come one after another."""
        if not follow:
            for replica in replicas:
                async with aclosing(self._read_one(replica, follow=False, tail=tail)) as chunks:
                    async for data in chunks:
                        yield LogChunk(replica=replica, data=data)
            return
        runs_of: dict[tuple[str, int], list[ReplicaId]] = {}
        for replica in replicas:
            runs_of.setdefault((replica.role, replica.index), []).append(replica)

        async def follow_runs(runs: Sequence[ReplicaId]) -> AsyncGenerator[LogChunk]:
            for replica in runs:
                async with aclosing(self._read_one(replica, follow=True, tail=tail)) as chunks:
                    async for data in chunks:
                        yield LogChunk(replica=replica, data=data)

        async with aclosing(merged([*map(follow_runs, runs_of.values())], ahead=_AHEAD)) as chunks:
            async for chunk in chunks:
                yield chunk

    def start_capture(self, replica: ReplicaId, pod: Pod) -> None:
        """Start to copy the log of a run that is about to end, because the node may delete it with the container."""
        if not self._archive.is_enabled or replica in self._captures or self._is_node_failing(pod):
            return
        is_new = pod.status.container_statuses and not self._archive.has(replica)
        if is_new and len(self._captures) < _MAX_CAPTURES:
            task = asyncio.create_task(self._copy(replica, pod, follow=True))
            self._captures[replica] = task
            task.add_done_callback(lambda _: self._captures.pop(replica, None))

    async def archive(self, replica: ReplicaId, pod: Pod) -> None:
        """Copy the log of an ended run; a node that does not answer is skipped for a while."""
        if (capture := self._captures.get(replica)) is not None:
            await asyncio.wait([capture], timeout=_ARCHIVE_S)
            capture.cancel()
        never_ran = not pod.status.container_statuses
        if not self._archive.is_enabled or never_ran or self._archive.has(replica):
            return
        if not self._is_node_failing(pod):
            await self._copy(replica, pod, follow=False)

    def _is_node_failing(self, pod: Pod) -> bool:
        return self._failing_nodes.get(pod.spec.node_name, 0.0) > time.monotonic()

    async def _copy(self, replica: ReplicaId, pod: Pod, *, follow: bool) -> None:
        node = pod.spec.node_name
        try:
            async with asyncio.timeout(None if follow else _ARCHIVE_S):
                await self._archive.store(
                    replica, self._read_pod(pod, follow=follow, tail=None, since_s=None)
                )
        except (KubernetesApiError, TimeoutError) as error:
            self._failing_nodes[node] = time.monotonic() + _NODE_BACKOFF_S
            log.warning(
                "cannot archive a log: %s",
                error,
                extra=fields(job_id=replica.job_id, pod=pod.metadata.name, node=node),
            )

    async def _is_complete(self, replica: ReplicaId) -> bool:
        """Whether a log whose stream has ended is complete, because its container has ended or is ending."""
        for _ in range(_COMPLETE_POLLS):
            pod = self._store.pod(replica)
            if (
                pod is None
                or pod.metadata.deletion_timestamp
                or main_container_ended(pod)
                or is_terminated(pod)
            ):
                return True
            await asyncio.sleep(_POLL_S)
        return False

    async def _read_one(self, replica: ReplicaId, *, follow: bool, tail: int | None) -> AsyncGenerator[bytes]:
        last_read: float | None = None
        while True:
            if self._archive.has(replica):
                if last_read is None:
                    for data in _archived(replica, self._archive, tail):
                        yield data
                return
            observation = self._store.observation(replica)
            state = observation.state if observation else None
            ended = state is None or state in ENDED_STATES
            pod = self._store.pod(replica)
            if pod is not None and state not in _NOT_STARTED:
                since_s = None if last_read is None else max(int(time.monotonic() - last_read), 1)
                try:
                    pod_log = self._read_pod(pod, follow=follow, tail=tail, since_s=since_s)
                    async with aclosing(pod_log) as chunks:
                        async for data in chunks:
                            last_read = time.monotonic()
                            yield data
                    if not follow or ended or await self._is_complete(replica):
                        return
                except KubernetesApiError as error:
                    if not follow or ended:
                        yield f"[muster: the log cannot be read: {error}]\n".encode()
                        return
                last_read = last_read or time.monotonic()
            if not follow or ended:
                return
            await asyncio.sleep(_POLL_S)

    async def _read_pod(
        self, pod: Pod, *, follow: bool, tail: int | None, since_s: int | None
    ) -> AsyncGenerator[bytes]:
        query: dict[str, str] = {}
        if follow:
            query["follow"] = "true"
        if since_s is not None:
            query["sinceSeconds"] = str(since_s)
        elif tail is not None:
            query["tailLines"] = str(tail)
        async with aclosing(_log_chunks(self._api, pod, query)) as chunks:
            begun = False
            async for chunk in chunks:
                # A node that has lost the log sends this message in its place.
                if not begun and chunk.startswith(_LOST):
                    raise ObjectNotFound(chunk.decode(errors="replace").strip())
                begun = True
                yield chunk


class LogProgressReader:
    """Reads progress reports from log lines, for programs without a progress file that the runtime could read.

    Only elastic jobs are read, one replica of each at a time, because each request goes through the API server to a kubelet. A replica
    without a report is not read again before its peers, so that the replica that reports for the job is found.
    """

    def __init__(self, *, api: ApiClient, store: ReplicaStore) -> None:
        self._api = api
        self._store = store
        self._last_read: dict[str, ReplicaId] = {}
        self._last_report: dict[str, ProgressReport] = {}
        self._slots = asyncio.Semaphore(_PROGRESS_CONCURRENCY)

    async def read(self, jobs: Mapping[str, Job]) -> list[ProgressReport]:
        """Return the new reports of ``jobs``, given by id."""
        chosen = {job_id: replica for job_id, job in jobs.items() if (replica := self._choose(job_id, job))}
        for kept in (self._last_read, self._last_report):
            for job_id in kept.keys() - chosen.keys():
                del kept[job_id]
        found = await asyncio.gather(*(self._read_one(replica) for replica in chosen.values()))
        new: list[ProgressReport] = []
        for (job_id, replica), report in zip(chosen.items(), found, strict=True):
            self._last_read[job_id] = replica
            if report is None or report == self._last_report.get(job_id):
                continue
            self._last_report[job_id] = report
            new.append(report)
        return new

    def _choose(self, job_id: str, job: Job) -> ReplicaId | None:
        """Return the replica to read next: the one that has reported, otherwise the successor of the last one."""
        elastic = job.kind is JobKind.BATCH and any(role.min < role.max for role in job.roles)
        running = [
            seen.replica
            for seen in (self._store.job_observations(job_id) if elastic else ())
            if seen.state is ReplicaState.RUNNING and computes(seen.replica.role)
        ]
        if not running:
            return None
        attempt = max(replica.attempt for replica in running)
        peers = sorted(replica for replica in running if replica.attempt == attempt)
        report = self._last_report.get(job_id)
        if report is not None and report.replica in peers:
            return report.replica
        last = self._last_read.get(job_id)
        return next((replica for replica in peers if last is not None and replica > last), peers[0])

    async def _read_one(self, replica: ReplicaId) -> ProgressReport | None:
        pod = self._store.pod(replica)
        if pod is None:
            return None
        query = {"tailLines": _PROGRESS_LINES, "limitBytes": str(_PROGRESS_BYTES)}
        async with self._slots:
            try:
                async with aclosing(
                    _log_chunks(self._api, pod, query, idle_timeout_s=_PROGRESS_IDLE_S)
                ) as chunks:
                    written = b"".join([chunk async for chunk in chunks])
            except KubernetesApiError as error:
                log.debug("cannot read the progress of %s: %s", pod.metadata.name, error)
                return None
        lines = (
            line.removeprefix(PROGRESS_PREFIX)
            for line in written.splitlines()[::-1]
            if line.startswith(PROGRESS_PREFIX)
        )
        # A report without its own time says nothing about the speed, and is not valid here.
        reports = (parse_progress(replica, line, changed_at=0) for line in lines)
        return next((report for report in reports if report is not None), None)


async def _log_chunks(
    api: ApiClient, pod: Pod, query: Mapping[str, str], *, idle_timeout_s: float | None = None
) -> AsyncGenerator[bytes]:
    query = {"container": pod.metadata.annotations.get(MAIN_CONTAINER, ""), **query}
    path = f"{collection_path(pod.metadata.namespace, 'pods')}/{pod.metadata.name}/log"
    async with api.stream(path, query=query, idle_timeout_s=idle_timeout_s, accept="*/*") as stream:
        async for chunk in stream.chunks:
            yield chunk


def _archived(replica: ReplicaId, archive: LogArchive, tail: int | None) -> list[bytes]:
    log_tail = RecentLogLines(replica, archive.path(replica), tail=tail)
    try:
        data: list[bytes] = []
        while chunk := log_tail.read():
            data.append(chunk)
        return data
    finally:
        log_tail.close()
