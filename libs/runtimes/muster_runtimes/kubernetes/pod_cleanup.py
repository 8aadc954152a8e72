"""How a pod whose end is on record goes: its log is kept first, then its finalizer is taken off.

Until then the finalizer holds it, whoever deletes it: nobody can make an end unseen.
"""

from __future__ import annotations

import asyncio
import logging

from muster_runtimes.kubernetes.api_client import KubernetesApiError
from muster_runtimes.kubernetes.informers import ReplicaStore
from muster_runtimes.kubernetes.labels import FINALIZER
from muster_runtimes.kubernetes.logs import PodLogReader
from muster_runtimes.kubernetes.objects import Pod
from muster_runtimes.kubernetes.pod_status import is_terminated
from muster_runtimes.kubernetes.writer import ObjectWriter
from muster_runtimes.protocols import ReplicaId
from muster_service.logs import fields

log = logging.getLogger(__name__)

_SIDE_BY_SIDE = 16
_PAUSE_S = 1.0


class PodFinalizer:
    """Sees off pods in the background; what fails is tried again."""

    def __init__(self, *, runs: ReplicaStore, writer: ObjectWriter, logs: PodLogReader) -> None:
        self._runs = runs
        self._writer = writer
        self._logs = logs
        self._waiting: asyncio.Queue[ReplicaId] = asyncio.Queue()
        self._under_way: dict[ReplicaId, asyncio.Event] = {}

    async def run(self) -> None:
        """See off whoever is bid farewell, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_SIDE_BY_SIDE):
                tasks.create_task(self._work())

    def bid(self, replica: ReplicaId) -> None:
        """Let the pod of a run go; to be repeated at will."""
        pod = self._runs.pod(replica)
        if pod is not None and _is_held(pod) and replica not in self._under_way:
            self._under_way[replica] = asyncio.Event()
            self._waiting.put_nowait(replica)

    async def done(self, job_id: str) -> None:
        """Wait until those of a job that were bid farewell are free to go."""
        for replica, over in list(self._under_way.items()):
            if replica.job_id == job_id:
                await over.wait()

    async def _work(self) -> None:
        while True:
            replica = await self._waiting.get()
            try:
                await self._see_off(replica)
            except KubernetesApiError as error:
                log.warning("a pod is not let go yet: %s", error, extra=fields(job_id=replica.job_id))
                await asyncio.sleep(_PAUSE_S)
                self._waiting.put_nowait(replica)
                continue
            self._under_way.pop(replica).set()

    async def _see_off(self, replica: ReplicaId) -> None:
        pod = self._runs.pod(replica)
        if pod is None:
            return
        if is_terminated(pod):
            await self._logs.archive(replica, pod)
        elif self._runs.is_lost(replica):
            # Nobody else will say that it is over.
            await self._writer.delete_pod(pod.metadata, grace_s=0)
        else:
            # It came, or runs on, although its run has ended: it is asked to go, and bid farewell again when it has.
            return
        await self._writer.release(pod.metadata)


def _is_held(pod: Pod) -> bool:
    return FINALIZER in pod.metadata.finalizers
