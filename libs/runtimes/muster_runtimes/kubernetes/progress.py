"""What training programs say of their progress, where they have no file that could be read: a line of the log.

Only jobs whose size may change are listened to, and of each one replica at a time: each question goes through the API server to a kubelet.
Who has said nothing is not asked again before its peers, so that whichever replica speaks for the job is found.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from muster_core.frameworks import computes
from muster_core.models import Job, JobKind, ReplicaState
from muster_runtimes.kubernetes.api import Api
from muster_runtimes.kubernetes.errors import ApiError
from muster_runtimes.kubernetes.labels import MAIN_CONTAINER
from muster_runtimes.kubernetes.objects import Pod
from muster_runtimes.kubernetes.runs import Runs
from muster_runtimes.kubernetes.writer import collection
from muster_runtimes.ports import ProgressSeen, ReplicaId
from muster_runtimes.process.progress import progress_of

log = logging.getLogger(__name__)

PREFIX = b"muster-progress: "
"""What such a line begins with; the rest of it is what the file would hold."""

_LATEST_LINES = "2000"
_MOST_BYTES = 1024 * 1024
_QUIET_S = 5.0
_AT_ONCE = 16


class ProgressLines:
    """Reads the last line of progress of each job, and answers those that are new."""

    def __init__(self, *, api: Api, runs: Runs) -> None:
        self._api = api
        self._runs = runs
        self._asked: dict[str, ReplicaId] = {}
        self._said: dict[str, ProgressSeen] = {}
        self._turn = asyncio.Semaphore(_AT_ONCE)

    async def read(self, jobs: Mapping[str, Job]) -> list[ProgressSeen]:
        """What is new of ``jobs``, by their ids."""
        speakers = {job_id: one for job_id, job in jobs.items() if (one := self._speaker(job_id, job))}
        for kept in (self._asked, self._said):
            for job_id in kept.keys() - speakers.keys():
                del kept[job_id]
        found = await asyncio.gather(*(self._ask(replica) for replica in speakers.values()))
        news: list[ProgressSeen] = []
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
            for seen in (self._runs.observed_of(job_id) if elastic else ())
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

    async def _ask(self, replica: ReplicaId) -> ProgressSeen | None:
        pod = self._runs.pod(replica)
        if pod is None:
            return None
        async with self._turn:
            try:
                written = await self._tail(pod)
            except ApiError as error:
                log.debug("the progress of %s cannot be read: %s", pod.metadata.name, error)
                return None
        lines = (line.removeprefix(PREFIX) for line in written.splitlines()[::-1] if line.startswith(PREFIX))
        # Without an instant of its own nobody could tell how fast it was.
        said = (progress_of(replica, line, changed_at=0) for line in lines)
        return next((seen for seen in said if seen is not None), None)

    async def _tail(self, pod: Pod) -> bytes:
        query = {
            "container": pod.metadata.annotations.get(MAIN_CONTAINER, ""),
            "tailLines": _LATEST_LINES,
            "limitBytes": str(_MOST_BYTES),
        }
        path = f"{collection(pod.metadata.namespace, 'pods')}/{pod.metadata.name}/log"
        async with self._api.stream(path, query=query, quiet_s=_QUIET_S, accept="*/*") as stream:
            return b"".join([chunk async for chunk in stream.chunks])
