"""The history of every pod as the API server stored it, ordered by resource version, and checks on it.

The checks use only what the API server has stored, not Muster's own reports. Only the times of placements come from the scheduler's log.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

import aiohttp
import msgspec

from muster_core.models import Resources
from muster_runtimes import ReplicaId
from muster_runtimes.kubernetes.labels import JOB_ID, POOL, replica_of
from muster_runtimes.kubernetes.nodes import pod_requests
from muster_runtimes.kubernetes.objects import ObjectList, Pod, Status, WatchEvent
from muster_testing.cluster import Cluster

_ENDED = ("Succeeded", "Failed")
_PAUSE_S = 0.2


class PodEvent(msgspec.Struct, frozen=True):
    """A pod at one resource version; ``gone`` if it was deleted. ``at`` is when this process received it (Unix seconds)."""

    version: int
    at: float
    pod: Pod
    gone: bool

    @property
    def holds(self) -> bool:
        """Whether the pod holds its node's resources after this event."""
        return not self.gone and bool(self.pod.spec.node_name) and self.pod.status.phase not in _ENDED

    @property
    def is_ours(self) -> bool:
        return POOL in self.pod.metadata.labels


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """A placement in the scheduler's log."""

    ts: datetime
    msg: str
    job_id: str = ""
    attempt: int = 0


Placements = Mapping[tuple[str, int], Sequence[float]]
"""The placement times of each attempt of each job (Unix seconds, ascending)."""


def placements_in(log: str) -> Placements:
    """Read the placements from the log of all services."""
    found: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for line in log.splitlines():
        service, _, message = line.partition(" ")
        if service == "scheduler" and '"msg":"placed"' in message:
            placement = msgspec.json.decode(message, type=Placement)
            found[placement.job_id, placement.attempt].append(placement.ts.timestamp())
    return {key: sorted(times) for key, times in found.items()}


class PodHistory:
    """All events of all pods since ``kept`` began."""

    def __init__(self) -> None:
        self.events: list[PodEvent] = []
        self._there: dict[str, Pod] = {}

    @classmethod
    @asynccontextmanager
    async def kept(cls, cluster: Cluster) -> AsyncGenerator[PodHistory]:
        """Watch all pods of the cluster until the end of the block, also across failures of the API server."""
        history = cls()
        begun = asyncio.Event()
        task = asyncio.create_task(history._keep(cluster, begun))
        try:
            await asyncio.wait_for(begun.wait(), 30)
            yield history
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def pods_of_runs(self) -> dict[ReplicaId, set[str]]:
        """The uids of all pods of each run."""
        found: defaultdict[ReplicaId, set[str]] = defaultdict(set)
        for event in self.events:
            replica = replica_of(event.pod.metadata)
            if replica is not None:
                found[replica].add(event.pod.metadata.uid)
        return dict(found)

    def runs_with_several_pods(self) -> dict[ReplicaId, set[str]]:
        """The runs that had more than one pod."""
        return {replica: uids for replica, uids in self.pods_of_runs().items() if len(uids) > 1}

    def attempts(self) -> dict[str, int]:
        """The last attempt of each job that had a pod."""
        last: dict[str, int] = {}
        for replica in self.pods_of_runs():
            last[replica.job_id] = max(last.get(replica.job_id, 0), replica.attempt)
        return last

    def overcommitted(
        self,
        offered: Mapping[str, Resources],
        *,
        known_after_s: float | None,
        placed: Placements | None = None,
    ) -> list[str]:
        """Describe each time that one of Muster's pods was created on a node without enough free capacity.

        Foreign pods count if they existed for ``known_after_s`` at the placement in ``placed`` (by default, at the creation of our pod);
        None ignores foreign pods, because a placement cannot know of pods that are created at the same time.
        """
        standing: defaultdict[str, dict[str, PodEvent]] = defaultdict(dict)
        wrong: list[str] = []
        for event in sorted(self.events, key=lambda event: event.version):
            uid, node = event.pod.metadata.uid, event.pod.spec.node_name
            before = standing[node].get(uid)
            if not event.holds:
                standing[node].pop(uid, None)
                continue
            # A pod counts from its first event, not from its last.
            standing[node][uid] = before or event
            if before is None and event.is_ours and node in offered:
                decided = _decided(event, placed or {})
                there = [
                    other
                    for other in standing[node].values()
                    if other.is_ours or (known_after_s is not None and decided - other.at >= known_after_s)
                ]
                used = sum((pod_requests(other.pod.spec) for other in there), Resources())
                if not used.fits_in(offered[node]):
                    names = sorted(other.pod.metadata.name for other in there)
                    wrong.append(f"{event.version}: {node} offers {offered[node]}, {names} use {used}")
        return wrong

    def most_at_once(self) -> int:
        """The largest number of Muster's pods that held resources at the same time."""
        holding: set[str] = set()
        most = 0
        for event in sorted(self.events, key=lambda event: event.version):
            if event.is_ours:
                (holding.add if event.holds else holding.discard)(event.pod.metadata.uid)
                most = max(most, len(holding))
        return most

    def jobs(self) -> set[str]:
        """The ids of all jobs with a pod."""
        return {event.pod.metadata.labels[JOB_ID] for event in self.events if event.is_ours}

    async def _keep(self, cluster: Cluster, begun: asyncio.Event) -> None:
        version = ""
        headers = {"Authorization": f"Bearer {cluster.token}"} if cluster.token else {}
        connector = aiohttp.TCPConnector(ssl=cluster.access.context())
        async with aiohttp.ClientSession(
            cluster.url, connector=connector, headers=headers, read_bufsize=2**22
        ) as session:
            while True:
                try:
                    if not version:
                        version = await self._list(session)
                        begun.set()
                    version = await self._watch(session, version)
                except (aiohttp.ClientError, TimeoutError):
                    await asyncio.sleep(_PAUSE_S)

    async def _list(self, session: aiohttp.ClientSession) -> str:
        async with session.get("/api/v1/pods", raise_for_status=True) as answer:
            found = msgspec.json.decode(await answer.read(), type=ObjectList[Pod])
        pods = {pod.metadata.uid: pod for pod in found.items or ()}
        for uid in self._there.keys() - pods.keys():
            self._note(self._there[uid], gone=True, version=int(found.metadata.resource_version))
        for pod in pods.values():
            if self._there.get(pod.metadata.uid) != pod:
                self._note(pod, gone=False)
        return found.metadata.resource_version

    async def _watch(self, session: aiohttp.ClientSession, version: str) -> str:
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "600"}
        timeout = aiohttp.ClientTimeout(total=None)
        async with session.get("/api/v1/pods", params=query, timeout=timeout) as answer:
            if answer.status == 410:
                return ""
            answer.raise_for_status()
            async for line in answer.content:
                event = msgspec.json.decode(line, type=WatchEvent)
                if event.type == "ERROR":
                    gone = msgspec.json.decode(event.object, type=Status).code == 410
                    return "" if gone else version
                pod = msgspec.json.decode(event.object, type=Pod)
                self._note(pod, gone=event.type == "DELETED")
                version = pod.metadata.resource_version
        return version

    def _note(self, pod: Pod, *, gone: bool, version: int = 0) -> None:
        if gone:
            self._there.pop(pod.metadata.uid, None)
        else:
            self._there[pod.metadata.uid] = pod
        self.events.append(PodEvent(version or pod.metadata.version, time.time(), pod, gone))


def _decided(event: PodEvent, placed: Placements) -> float:
    """The time of the placement of the pod."""
    replica = replica_of(event.pod.metadata)
    times = placed.get((replica.job_id, replica.attempt), ()) if replica is not None else ()
    return max((at for at in times if at <= event.at), default=event.at)
