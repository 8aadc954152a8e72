"""Construction of the status-tracker, and its partitions."""

from __future__ import annotations

import asyncio
import logging
import time

from muster_bus import (
    Bus,
    BusError,
    Entry,
    Incoming,
    KeyValueStore,
    Membership,
    PartitionOwner,
    PartitionReader,
)
from muster_bus.service_bus import connect_bus
from muster_core.events import JobFinished, JobRestarting
from muster_core.lifecycle import Retention
from muster_core.models import JobRecord
from muster_events.catalogue import (
    JOBS_BUCKET,
    JOBS_STREAM,
    LEASES_BUCKET,
    QUEUES_BUCKET,
    STATUS_TRACKER,
    partition_reader,
    reader_of,
)
from muster_events.codec import decode_record, job_message
from muster_events.subjects import (
    PARTITIONS,
    BadToken,
    job_events_of,
    partition_of,
    partition_records,
    record_key,
)
from muster_events.view import stamp
from muster_rpc.internal.v1 import queries_pb2_grpc
from muster_service.app import Context
from muster_status_tracker.handlers import PartitionHandler
from muster_status_tracker.observers import JobSpanRecorder, TransitionMetrics, register_phase_gauge
from muster_status_tracker.queries import RecordServicer
from muster_status_tracker.queues import QueueReader
from muster_status_tracker.records import RecordCache, RecordStore
from muster_status_tracker.settings import StatusTrackerSettings
from muster_status_tracker.webhooks.receivers import read_receivers

log = logging.getLogger(__name__)

_MAX_SLEEP_S = 1.0
_TICK_S = 0.1
"""How long (s) events are batched under load."""

_FLUSH_S = 1.0
"""How long (s) changed records are batched under load: several changes of a job are one record, and many records one
write. Queries are answered from memory; records of other instances' partitions are late by this time.
"""


class LifecyclePublisher:
    """Publishes life cycle events on the bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def publish(self, record: JobRecord, event: JobFinished | JobRestarting) -> None:
        """Publish the event once."""
        refs = event.replicas if isinstance(event, JobRestarting) else ()
        named = {(ref.role, ref.index) for ref in refs}
        # The sum of their restarts is unique for each restart of the same replicas.
        after = sum(replica.restart for replica in record.gang() if replica.key in named)
        await self._bus.publish_once(
            job_message(record.job_id, event, source=STATUS_TRACKER, traceparent=record.trace, after=after)
        )


class PartitionTracker:
    """The partitions of this instance, each with its reader, and a mirror of all other records for queries."""

    def __init__(self, *, bus: Bus, ctx: Context, cache: RecordCache, retention: Retention) -> None:
        self._bus = bus
        self._ctx = ctx
        self._cache = cache
        self._retention = retention
        self._records = KeyValueStore(bus, JOBS_BUCKET, written_in_groups=True)
        self._readers: dict[int, PartitionReader] = {}
        self._partitions = PartitionOwner(
            self._track, on_complete=lambda _: self._ctx.set_ready("records", True)
        )
        self._invalid = ctx.metrics.counter(
            "muster_invalid_transitions", "events that are invalid in the job's phase"
        )
        self._changed = asyncio.Event()

    async def reached(self, sequence: int, wait_s: float) -> bool:
        """Wait until all owned partitions are applied up to the sequence."""
        try:
            await asyncio.gather(*(reader.wait_for(sequence, wait_s) for reader in self._readers.values()))
        except TimeoutError:
            return False
        return True

    async def last_of(self, job_id: str) -> int:
        """Return the sequence of the job's last event in the stream."""
        try:
            events = job_events_of(job_id)
        except BadToken:
            return 0
        last = await self._bus.last(JOBS_STREAM, events)
        return last.stream_sequence if last else 0

    async def deleted(self, job_id: str) -> bool:
        """Return whether the record of the job was deleted."""
        try:
            return await self._records.removal(record_key(job_id)) is not None
        except BadToken:
            return False

    def own(self, partitions: frozenset[int]) -> None:
        """Set the owned partitions."""
        self._partitions.own(partitions)
        self._changed.set()

    async def run(self) -> None:
        """Read each owned partition, and mirror the records of the others, until cancelled."""
        mirror: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._partitions.run())
            while True:
                await self._changed.wait()
                self._changed.clear()
                others = len(self._partitions.owned) < PARTITIONS
                if others and mirror is None:
                    mirror = tasks.create_task(self._mirror_records())
                elif mirror is not None and not others:
                    mirror.cancel()
                    mirror = None

    def _reader(self, partition: int) -> tuple[PartitionReader, PartitionHandler]:
        store = RecordStore(self._records)
        handler = PartitionHandler(
            cache=self._cache,
            store=store,
            publisher=LifecyclePublisher(self._bus),
            observer=TransitionMetrics(JobSpanRecorder(self._ctx.telemetry), self._ctx.metrics),
            retention=self._retention,
            clock=lambda: time.time_ns() // 1000,
            count_invalid=self._invalid.inc,
        )

        def load(entries: list[Entry]) -> None:
            handler.load(store.load(entries))

        async def handle(batch: list[Incoming], live: bool) -> None:
            await handler.handle([stamp(incoming) for incoming in batch], live=live)

        reader = PartitionReader(
            self._bus,
            stream=JOBS_STREAM,
            consumer=partition_reader(STATUS_TRACKER, partition),
            filters=reader_of(STATUS_TRACKER, JOBS_STREAM).in_partition(partition),
            records=self._records,
            record_filters=partition_records(partition),
            load=load,
            handle=handle,
            tick_s=_TICK_S,
            flush=handler.flush,
            flush_interval_s=_FLUSH_S,
        )
        return reader, handler

    async def _track(self, partition: int, complete: asyncio.Event) -> None:
        reader, handler = self._reader(partition)
        self._readers[partition] = reader
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(reader.run())
                await reader.caught_up.wait()
                complete.set()
                await self._watch_deadlines(handler)
        finally:
            del self._readers[partition]

    async def _watch_deadlines(self, handler: PartitionHandler) -> None:
        while True:
            now = time.time_ns() // 1000
            try:
                await handler.expire(now)
                await handler.enforce_retention()
            except BusError as error:
                # The jobs stay due, and are decided about when the broker is available or has space.
                log.warning("deadlines cannot be handled yet: %s", error)
            await handler.deadlines.wait(now, at_most_s=_MAX_SLEEP_S)

    async def _mirror_records(self) -> None:
        async for change in self._records.watch(">"):
            job_id = change.key.rpartition(".")[2]
            if partition_of(job_id) in self._partitions.owned:
                continue
            if change.value is None:
                self._cache.drop(job_id)
            else:
                self._cache.put(decode_record(change.value))


async def build(settings: StatusTrackerSettings, ctx: Context) -> None:
    """Construct the service."""
    ctx.set_ready("records", False)
    bus = await connect_bus(settings, ctx)
    cache = RecordCache()
    register_phase_gauge(cache, ctx.metrics)
    retention = Retention(ttl_s=settings.retention_seconds, most=settings.retained_jobs)
    tracker = PartitionTracker(bus=bus, ctx=ctx, cache=cache, retention=retention)
    membership = Membership(
        bus, leases=KeyValueStore(bus, LEASES_BUCKET), group=STATUS_TRACKER, instance=ctx.instance
    )
    queues = QueueReader(records=KeyValueStore(bus, QUEUES_BUCKET), pool=settings.pool)
    ctx.add_part("queues", queues.run)
    owners = [tracker.own]
    ctx.add_part("partitions", tracker.run)
    if settings.webhooks is not None:
        # aiohttp costs memory that a service without webhooks need not have.
        from muster_status_tracker.webhooks.notifier import Notifier  # noqa: PLC0415

        receivers = read_receivers(settings.webhooks)
        ctx.set_ready("webhooks", False)
        notifier = Notifier(
            bus=bus,
            cache=cache,
            receivers=receivers,
            metrics=ctx.metrics,
            on_ready=lambda: ctx.set_ready("webhooks", True),
        )
        owners.append(notifier.own)
        ctx.add_part("webhooks", notifier.run)

    def own(partitions: frozenset[int]) -> None:
        for set_owned in owners:
            set_owned(partitions)

    ctx.add_part("membership", lambda: membership.run(own, PARTITIONS))
    ctx.add_grpc(
        queries_pb2_grpc.add_RecordServiceServicer_to_server,
        RecordServicer(
            cache=cache, progress=tracker, queue_of=queues.of, read_wait_s=settings.read_wait_seconds
        ),
    )
