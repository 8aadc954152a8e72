"""Construction of the pod-launcher, and its partitions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from muster_bus import (
    BrokerClock,
    Bus,
    BusUnavailable,
    GroupCommit,
    Incoming,
    KeyValueStore,
    Membership,
    PartitionOwner,
    PartitionReader,
    WrongSequence,
)
from muster_bus.service_bus import broker_clock, connect_bus, keep_catalogue, probe_writes
from muster_core.events import JobAdopted, ReplicasChanged
from muster_core.models import ENDED_STATES, JobRecord
from muster_events.catalogue import (
    JOBS_STREAM,
    LEASES_BUCKET,
    NODES_STREAM,
    POD_LAUNCHER,
    STATUS_TRACKER,
    partition_reader,
    probes_of,
    reader_of,
)
from muster_events.codec import INSTANCE, job_message
from muster_events.history import Absence, absence_of, ended_record, records_of
from muster_events.subjects import (
    ENDED_RECORDS,
    PARTITIONS,
    UNSTORED,
    ended_partition_records,
    job_id_in_key,
    job_subject,
    partition_of,
    partition_records,
)
from muster_events.view import JobsView
from muster_pod_launcher.adoption import AdoptionReview
from muster_pod_launcher.node_reports import NodeReports
from muster_pod_launcher.observers import ReplicaMetrics, ReplicaSpanRecorder, register_replica_gauge
from muster_pod_launcher.orphan_queries import HeldJobServicer
from muster_pod_launcher.progress import ProgressReports
from muster_pod_launcher.reconciler import JobReconciler
from muster_pod_launcher.replica_access import ReplicaServicer
from muster_pod_launcher.runtime_queries import RuntimeServicer
from muster_pod_launcher.runtimes import make_runtime
from muster_pod_launcher.settings import PodLauncherSettings
from muster_pod_launcher.work_queue import JobWorkQueue
from muster_rpc.internal.v1 import queries_pb2_grpc
from muster_runtimes import ProgressReader, Runtime
from muster_service.app import Context

log = logging.getLogger(__name__)

T = TypeVar("T")

_US = 1_000_000
_REPORTING_PARTITION = 0
"""The owner of this partition reports the nodes."""


_LOOKUPS = 32
_RETRY_S = 0.5
_LAPSED_POLL_S = 0.25
_UNARCHIVED_S = 1.0
_READINESS_S = 0.5
_READ_S = 5.0


class BusEvents:
    """Publishes observations on the bus."""

    def __init__(self, bus: Bus, instance: str) -> None:
        self._bus = bus
        self._instance = instance
        self._commits = GroupCommit(bus)

    async def publish(self, record: JobRecord, event: ReplicasChanged) -> bool:
        """Publish the event once; returns whether this instance was the first."""
        message = job_message(
            record.job_id, event, source=POD_LAUNCHER, traceparent=record.trace, instance=self._instance
        )
        published = await self._commits.publish(message, lambda: self._bus.publish_once(message))
        if not published.duplicate:
            return True
        # A retry after a lost answer finds this instance's own event.
        stored = await self._bus.message(JOBS_STREAM, published.sequence)
        return stored is not None and stored.headers.get(INSTANCE) == self._instance


class BusJobStore:
    """Implements ``JobStore`` for the jobs of owned partitions, and adopts orphans of any."""

    def __init__(self, bus: Bus, *, records: KeyValueStore, view: JobsView) -> None:
        self._bus = bus
        self._records = records
        self._view = view
        self.readers: dict[int, PartitionReader] = {}

    async def read_to_end(self, job_id: str) -> None:
        """See ``JobStore``."""
        reader = self.readers.get(partition_of(job_id))
        if reader is None or not await reader.wait_current(_READ_S):
            raise BusUnavailable("the events of the job cannot be read to the end")

    async def absence(self, job_id: str) -> Absence | None:
        """See ``JobStore``."""
        await self.read_to_end(job_id)
        if job_id in self._view.records:
            return None
        return await absence_of(self._bus, self._records, job_id)

    async def adopt(self, job_id: str, event: JobAdopted, *, trace: str) -> None:
        """See ``JobStore``."""
        message = job_message(job_id, event, source=POD_LAUNCHER, traceparent=trace)
        published = await self._bus.publish_once(message)
        try:
            await self.readers[partition_of(job_id)].wait_for(published.sequence, _READ_S)
        except (KeyError, TimeoutError) as error:
            raise BusUnavailable("the adoption cannot be read back") from error

    async def adopt_orphan(self, job_id: str, event: JobAdopted, *, trace: str) -> int:
        """Publish the adoption of an orphan, once; returns its sequence."""
        message = job_message(job_id, event, source=POD_LAUNCHER, traceparent=trace, expected_last=0)
        try:
            return (await self._bus.publish_once(message, deadline_s=_READ_S)).sequence
        except WrongSequence:
            return await self.adopted_at(job_id) or 0

    async def adopted_at(self, job_id: str) -> int | None:
        """Return the sequence of the last adoption of a job; None if it was never adopted."""
        last = await self._bus.last(JOBS_STREAM, job_subject(job_id, JobAdopted.__name__))
        return None if last is None else last.stream_sequence


class Launcher:
    """The partitions of this instance: a view of their records, and the reconciler that follows it."""

    def __init__(
        self,
        *,
        bus: Bus,
        ctx: Context,
        runtime: Runtime,
        membership: Membership,
        clock: BrokerClock,
        pool: str,
        progress_s: float,
        batch_s: float,
        orphan_grace_us: int,
    ) -> None:
        self._bus = bus
        self._membership = membership
        self._clock = clock
        self._ctx = ctx
        self._runtime = runtime
        self._pool = pool
        self._progress_s = progress_s
        self._records = records_of(bus)
        self._history = self._records.watch_headers(ENDED_RECORDS)
        self._ended: set[str] = set()
        self._deleted: set[str] = set()
        self._lookups = asyncio.Semaphore(_LOOKUPS)
        self.view = JobsView()
        self.store = BusJobStore(bus, records=self._records, view=self.view)
        self._adoption = AdoptionReview(
            records=self.view.records,
            runtime=runtime,
            store=self.store,
            clock=clock.now,
            grace_us=orphan_grace_us,
            metrics=ctx.metrics,
            pool=pool,
        )
        self._reconciler = JobReconciler(
            records=self.view.records,
            runtime=runtime,
            events=BusEvents(bus, ctx.instance),
            observer=ReplicaMetrics(ReplicaSpanRecorder(ctx.telemetry), ctx.metrics, pool=pool),
            clock=clock.now,
            forget=self._forget,
            batch_us=int(batch_s * _US),
        )
        self._work_queue = JobWorkQueue(self._process)
        self._has_begun = False
        self._partitions = PartitionOwner(self._follow, on_complete=self._set_ready)
        self.own = self._partitions.own
        """Sets the owned partitions."""
        self.ended = asyncio.Event()
        """Set when no work is in flight any more."""

    async def run(self) -> None:
        """Read each owned partition until cancelled."""
        self._ctx.check_ready("records", self._can_work)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow_runtime())
                tasks.create_task(self._follow_history())
                if isinstance(self._runtime, ProgressReader):
                    reports = ProgressReports(
                        bus=self._bus,
                        reader=self._runtime,
                        records=self.view.records,
                        every_s=self._progress_s,
                    )
                    tasks.create_task(reports.run(self._partitions))
                tasks.create_task(self._partitions.run())
                tasks.create_task(self._refresh_readiness())
        finally:
            await self._work_queue.close()
            self.ended.set()

    def _set_ready(self, owned: frozenset[int]) -> None:
        self._has_begun = True
        self._ctx.set_ready("records", True)
        if _REPORTING_PARTITION not in owned:
            self._ctx.set_ready("nodes", True)

    async def _refresh_readiness(self) -> None:
        """Follow the membership, which lapses without an event, and the partitions that are lost and taken."""
        while True:
            await asyncio.sleep(_READINESS_S)
            if self._has_begun:
                self._ctx.set_ready("records", self._can_work())

    def _can_work(self) -> bool:
        return self._membership.is_current and self._partitions.is_complete

    async def _process(self, job_id: str) -> None:
        if partition_of(job_id) not in self._partitions:
            return
        if not self._membership.is_current:
            # Another instance may have taken the partition: acting on records of the past could start what was stopped.
            self._work_queue.add_after(job_id, _LAPSED_POLL_S)
            return
        await self._recall(job_id)
        if (until := await self._review(job_id)) is not None:
            self._work_queue.add_after(job_id, (until - self._clock.now()) / _US)
            return
        at = await self._reconciler.process(job_id)
        if self._is_over(job_id):
            if await self._runtime.archive_job(job_id):
                self._drop(job_id)
            else:
                self._work_queue.add_after(job_id, _UNARCHIVED_S)
        elif at is not None:
            self._work_queue.add_after(job_id, (at - self._clock.now()) / _US)

    async def _review(self, job_id: str) -> int | None:
        """Return until when (µs) the job must not be reconciled; a job that was deleted is reconciled at once."""
        if job_id in self._deleted and job_id not in self.view.records:
            return None
        return await self._adoption.review(job_id)

    def _forget(self, job_id: str) -> None:
        """Drop what is known of a job that is removed from the runtime."""
        self.view.records.pop(job_id, None)
        self._ended.discard(job_id)
        self._deleted.discard(job_id)
        self._adoption.release(job_id)

    async def record(self, job_id: str) -> JobRecord | None:
        """Return the record of a job that is live, or has ended, in one of this instance's partitions, or None."""
        record = self.view.records.get(job_id)
        if record is not None or not self._runtime.job_observations(job_id):
            return record
        return await ended_record(self._records, job_id)

    async def _recall(self, job_id: str) -> None:
        """Take the record of an ended job back for as long as its replicas are reconciled: without one they would be removed."""
        known = self.view.records.get(job_id)
        if known is not None:
            if known.settled and job_id in self._deleted:
                self._drop(job_id)
            return
        if job_id in self._deleted:
            return
        async with self._lookups:
            record = await ended_record(self._records, job_id)
        if record is not None and job_id not in self.view.records:
            self.view.records[job_id] = record
            self._ended.add(job_id)

    def _is_over(self, job_id: str) -> bool:
        """Return whether the stored record of an ended job suffices from now on."""
        record = self.view.records.get(job_id)
        if record is None or not record.settled or job_id not in self._ended:
            return False
        return all(seen.state in ENDED_STATES for seen in self._runtime.job_observations(job_id))

    def _drop(self, job_id: str) -> None:
        self._forget(job_id)
        self._reconciler.release(job_id)

    def _reader(self, partition: int) -> PartitionReader:
        async def handle(batch: list[Incoming], live: bool) -> None:
            for incoming in batch:
                change = self.view.apply(incoming)
                if live:
                    self._work_queue.add(change.stored.job_id)

        return PartitionReader(
            self._bus,
            stream=JOBS_STREAM,
            consumer=partition_reader(POD_LAUNCHER, partition),
            filters=reader_of(POD_LAUNCHER, JOBS_STREAM).in_partition(partition),
            records=self._records,
            record_filters=partition_records(partition),
            record_writers=[partition_reader(STATUS_TRACKER, partition)],
            load=partial(self.view.load, self._records),
            handle=handle,
        )

    async def _follow(self, partition: int, complete: asyncio.Event) -> None:
        reader = self.store.readers[partition] = self._reader(partition)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(reader.run())
                if partition == _REPORTING_PARTITION:
                    tasks.create_task(self._report_nodes())
                # Without both, the reconciler would take running replicas for lost.
                await reader.caught_up.wait()
                await self._runtime.acquire_partition(partition)
                await self._clock.synchronised.wait()
                await self._history.listed.wait()
                await self._note_ended(partition)
                archived = await self._retry(partial(self._archived, partition))
                await self._refresh_restored(archived)
                # What the previous owner has reported meanwhile must not be reported again.
                await reader.wait_current(_READ_S)
                complete.set()
                # Changes may have been missed: reconcile every job of the records and the runtime once.
                for job_id in {*self._runtime.job_ids(), *self.view.records}:
                    if partition_of(job_id) == partition:
                        self._work_queue.add(job_id)
                for job_id in await self._retry(partial(self._unrecorded, partition, archived)):
                    self._work_queue.add(job_id)
        finally:
            await self._release(partition)

    async def _report_nodes(self) -> None:
        reports = NodeReports(bus=self._bus, runtime=self._runtime, pool=self._pool)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reports.run())
            await reports.up_to_date.wait()
            self._ctx.set_ready("nodes", True)

    async def _release(self, partition: int) -> None:
        # Work in flight would store state after the release, which would be outdated when the partition comes back.
        await self._work_queue.stop(lambda job_id: partition_of(job_id) == partition)
        await self._runtime.release_partition(partition)
        self.store.readers.pop(partition, None)
        self._deleted = {job_id for job_id in self._deleted if partition_of(job_id) != partition}
        for job_id in [j for j in self.view.records if partition_of(j) == partition]:
            self._drop(job_id)

    async def _follow_runtime(self) -> None:
        async for job_id in self._runtime.job_changes():
            if partition_of(job_id) in self._partitions.owned:
                self._work_queue.add(job_id)

    async def _follow_history(self) -> None:
        """Drop the records of ended jobs as soon as they are stored, and remove what the runtime has of deleted jobs."""
        async with aclosing(self._history.changes(existing=False)) as batches:
            async for batch in batches:
                for change in batch:
                    job_id = job_id_in_key(change.key)
                    if partition_of(job_id) not in self._partitions.owned:
                        continue
                    # The view may not have read the end yet.
                    if change.removed:
                        self._deleted.add(job_id)
                    elif job_id in self.view.records:
                        self._ended.add(job_id)
                    else:
                        continue
                    self._work_queue.add(job_id)

    async def _note_ended(self, partition: int) -> None:
        """Look up which jobs were stored as ended before this instance followed the history."""
        settled = [r.job_id for r in self.view.records.values() if r.settled]
        for job_id in [job_id for job_id in settled if partition_of(job_id) == partition]:
            if await self._retry(lambda job_id=job_id: ended_record(self._records, job_id)) is not None:
                self._ended.add(job_id)

    async def _archived(self, partition: int) -> frozenset[str]:
        """Return the archived jobs of a partition."""
        return frozenset(j for j in await self._runtime.archived_job_ids() if partition_of(j) == partition)

    async def _refresh_restored(self, archived: Collection[str]) -> None:
        """Observe the runs of archived jobs that have not ended by their records, as after an older store was restored."""
        for job_id in archived:
            record = self.view.records.get(job_id)
            if record is not None and not record.settled:
                await self._runtime.refresh_job(job_id)

    async def _unrecorded(self, partition: int, archived: Collection[str]) -> set[str]:
        """Return the ``archived`` jobs of a partition that have no record of an ended job, for example because they were deleted."""
        unrecorded = set(archived)
        for filter_key in ended_partition_records(partition) if archived else ():
            async with aclosing(self._records.headers(filter_key)) as batches:
                async for batch in batches:
                    unrecorded.difference_update(
                        job_id_in_key(each.key) for each in batch if not each.removed
                    )
        return unrecorded

    async def _retry(self, read: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await read()
            except BusUnavailable as error:
                log.warning("ended jobs cannot be read, trying again: %s", error)
                await asyncio.sleep(_RETRY_S)


async def build(settings: PodLauncherSettings, ctx: Context) -> None:
    """Construct the service."""
    ctx.set_ready("records", False)
    ctx.set_ready("nodes", False)
    bus = await connect_bus(settings, ctx)
    clock = broker_clock(bus, ctx, JOBS_STREAM)
    runtime = await make_runtime(settings, ctx, clock=clock.now)
    register_replica_gauge(runtime, ctx.metrics, pool=settings.pool)
    probe_writes(bus, ctx, settings, subjects=probes_of(POD_LAUNCHER), hint=UNSTORED)
    keep_catalogue(
        bus,
        ctx,
        streams=[JOBS_STREAM, NODES_STREAM],
        buckets=[LEASES_BUCKET],
        # All nodes are reported, and all jobs reconciled, at the start.
        restart_after=[JOBS_STREAM, NODES_STREAM],
    )
    membership = Membership(
        bus,
        leases=KeyValueStore(bus, LEASES_BUCKET),
        group=POD_LAUNCHER,
        instance=ctx.instance,
        ttl_s=settings.lease_seconds,
    )
    orphan_grace_us = round(settings.orphan_grace_seconds * _US)
    launcher = Launcher(
        bus=bus,
        ctx=ctx,
        runtime=runtime,
        membership=membership,
        clock=clock,
        pool=settings.pool,
        progress_s=(
            settings.kube_progress_seconds if settings.runtime == "kubernetes" else settings.progress_seconds
        ),
        # Processes start when they are launched; pods start one by one.
        batch_s=settings.kube_report_seconds if settings.runtime == "kubernetes" else 0.0,
        orphan_grace_us=orphan_grace_us,
    )
    ctx.add_part("runtime", runtime.run)
    ctx.add_part("partitions", launcher.run)
    # A successor that begins before the last report is answered would report the same again.
    ctx.add_part("membership", lambda: membership.run(launcher.own, PARTITIONS, ended=launcher.ended.wait))
    ctx.add_grpc(
        queries_pb2_grpc.add_ReplicaServiceServicer_to_server,
        ReplicaServicer(runtime=runtime, record_of=launcher.record),
    )
    ctx.add_grpc(
        queries_pb2_grpc.add_HeldJobServiceServicer_to_server,
        HeldJobServicer(runtime=runtime, adopter=launcher.store, grace_us=orphan_grace_us),
    )
    ctx.add_grpc(queries_pb2_grpc.add_RuntimeServiceServicer_to_server, RuntimeServicer(runtime=runtime))
