"""How pods go: unwanted pods are deleted, and the finalizer of an ended pod is removed after its end is recorded and its log archived.

Until then the finalizer keeps a deleted pod, even if another client deletes it, so that no end goes unobserved.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from muster_runtimes.kubernetes.errors import KubernetesApiError
from muster_runtimes.kubernetes.informers import ReplicaStore
from muster_runtimes.kubernetes.labels import FINALIZER
from muster_runtimes.kubernetes.logs import PodLogReader
from muster_runtimes.kubernetes.objects import Pod
from muster_runtimes.kubernetes.pod_status import is_terminated
from muster_runtimes.kubernetes.writer import ObjectWriter
from muster_runtimes.protocols import ReplicaId
from muster_service.logs import fields

log = logging.getLogger(__name__)

MIN_GRACE_S = 1
"""With a grace period of 0 s the API server deletes the pod without its kubelet, while it still runs."""

_TICK_S = 1.0
_WORKERS = 16
_RETRY_S = 1.0


class PodCleaner:
    """Deletes pods and releases ended ones in the background; failures are retried."""

    def __init__(self, *, store: ReplicaStore, writer: ObjectWriter, logs: PodLogReader) -> None:
        self._store = store
        self._writer = writer
        self._logs = logs
        self._queue: asyncio.Queue[ReplicaId] = asyncio.Queue()
        self._releasing: dict[ReplicaId, asyncio.Event] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sweep())
            for _ in range(_WORKERS):
                tasks.create_task(self._work())

    def release(self, replica: ReplicaId) -> None:
        """Release the pod of a run whose end is recorded; repeated calls have no effect."""
        pod = self._store.pod(replica)
        if pod is not None and FINALIZER in pod.metadata.finalizers and replica not in self._releasing:
            self._releasing[replica] = asyncio.Event()
            self._queue.put_nowait(replica)

    async def wait_released(self, job_id: str) -> None:
        """Wait until the pods of a job that are to be released are released."""
        for replica, released in list(self._releasing.items()):
            if replica.job_id == job_id:
                await released.wait()

    async def _work(self) -> None:
        while True:
            replica = await self._queue.get()
            try:
                await self._release(replica)
            except KubernetesApiError as error:
                log.warning("cannot release a pod yet: %s", error, extra=fields(job_id=replica.job_id))
                await asyncio.sleep(_RETRY_S)
                self._queue.put_nowait(replica)
                continue
            self._releasing.pop(replica).set()

    async def _release(self, replica: ReplicaId) -> None:
        pod = self._store.pod(replica)
        if pod is None:
            return
        if is_terminated(pod):
            await self._logs.archive(replica, pod)
        elif self._store.is_lost(replica):
            # No kubelet will report its end.
            await self._writer.delete_pod(pod.metadata, grace_s=0)
        else:
            # A pod that outlives the end of its run is deleted by ``_sweep`` first, and released after that.
            return
        await self._writer.remove_finalizer(pod.metadata)

    async def _sweep(self) -> None:
        """Capture the logs of terminating pods, delete unwanted pods, and fail force-deleted pods that no kubelet reports.

        Unwanted are pods whose main container has ended, that appeared after the end of their run, that fail to start, or whose
        deletion was requested in vain.
        """
        while True:
            await asyncio.sleep(_TICK_S)
            self._store.recheck_due()
            for replica, pod in self._store.terminating():
                self._logs.start_capture(replica, pod)
            main_ended = self._store.main_ended()
            for replica, _ in main_ended:
                self._store.request_stop(replica)
            writer = self._writer
            await asyncio.gather(
                *(_try(pod, writer.delete_pod(pod.metadata, grace_s=MIN_GRACE_S)) for _, pod in main_ended),
                *(
                    _try(pod, writer.delete_pod(pod.metadata, grace_s=None))
                    for pod in self._store.to_delete()
                ),
                *(_try(pod, writer.mark_failed(pod.metadata)) for pod in self._store.force_deleted_overdue()),
            )


async def _try(pod: Pod, write: Awaitable[None]) -> None:
    try:
        await write
    except KubernetesApiError as error:
        log.warning("cannot delete a pod yet: %s", error, extra=fields(pod=pod.metadata.name))
