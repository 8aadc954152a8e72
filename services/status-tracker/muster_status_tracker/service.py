"""Construction of the status-tracker, and its partitions."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing

from muster_bus import (
    BrokerClock,
    Bus,
    BusError,
    BusUnavailable,
    Entry,
    Incoming,
    KeyValueStore,
    Membership,
    PartitionOwner,
    PartitionReader,
)
from muster_bus.catalogue_reconciler import CatalogueReconciler
from muster_bus.partition_reader import acknowledged, low_water_mark
from muster_bus.pause_detector import PauseDetector
from muster_bus.service_bus import broker_clock, connect_bus, keep_catalogue, probe_writes
from muster_core.events import JobFinished, JobRestarting
from muster_core.lifecycle import Retention
from muster_core.models import JobRecord
from muster_events.catalogue import (
    DEAD_STREAM,
    JOBS_BUCKET,
    JOBS_STREAM,
    LEASES_BUCKET,
    QUEUES_BUCKET,
    STATUS_TRACKER,
    WEBHOOKS_BUCKET,
    consumers_of,
    partition_reader,
    probes_of,
    reader_of,
)
from muster_events.codec import encode_record, job_message
from muster_events.history import any_record, ended_record, records_of, summary_in
from muster_events.subjects import (
    ENDED_RECORDS,
    LIVE_RECORDS,
    PARTITIONS,
    UNSTORED,
    BadToken,
    ended_record_key,
    job_events_of,
    job_id_in_key,
    live_record_key,
    partition_of,
    partition_records,
)
from muster_events.view import stamp
from muster_rpc.internal.v1 import queries_pb2_grpc
from muster_service.app import Context
from muster_status_tracker.ended_jobs import EndedJobs
from muster_status_tracker.handlers import PartitionHandler
from muster_status_tracker.mirror import RecordMirror
from muster_status_tracker.observers import JobSpanRecorder, TransitionMetrics, register_phase_gauge
from muster_status_tracker.queries import RecordServicer
from muster_status_tracker.queues import QueueReader
from muster_status_tracker.records import RecordCache, RecordStore
from muster_status_tracker.settings import StatusTrackerSettings
from muster_status_tracker.webhooks.receivers import read_receivers

log = logging.getLogger(__name__)

_MAX_SLEEP_S = 1.0
_READINESS_S = 0.5
_POLL_S = 0.02
_CATCH_UP_S = 5.0
_TICK_S = 0.1
"""How long (s) events are batched under load."""

_FLUSH_S = 1.0
"""How long (s) changed records are batched under load: several changes of a job are one record, and many records one
write. Queries are answered from memory; records of other instances' partitions are late by this time, for which a query with a
revision waits.
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

    def __init__(
        self,
        *,
        bus: Bus,
        ctx: Context,
        clock: BrokerClock,
        cache: RecordCache,
        retention: Retention,
        membership: Membership,
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._ctx = ctx
        self._cache = cache
        self._retention = retention
        self._membership = membership
        self._records = records_of(bus, written_in_groups=True)
        self._readers: dict[int, PartitionReader] = {}
        self._handlers: dict[int, PartitionHandler] = {}
        self._pauses = PauseDetector(self._catch_up)
        self._partitions = PartitionOwner(self._track, on_complete=lambda _: self._set_ready())
        self._history = self._records.watch_headers(ENDED_RECORDS)
        self._mirror = RecordMirror(
            watch=lambda: self._records.watch_keys(LIVE_RECORDS),
            catch_up=self._history.catch_up,
            was_deleted=self._is_deleted,
            cache=cache,
            on_listed=self._set_ready,
        )
        self._mirroring = asyncio.Lock()
        self._mirrored = 0
        self._observer = TransitionMetrics(ctx.metrics)
        ctx.check_ready("records", self.is_complete)
        self._invalid = ctx.metrics.counter(
            "muster_invalid_transitions", "events that are invalid in the job's phase"
        )

    def is_complete(self) -> bool:
        """Return whether the records are those of now: every owned partition is read, the others are mirrored, what was stored during
        a pause is read, and no other instance can have taken a partition unnoticed.
        """
        return (
            self._membership.is_current
            and self._pauses.has_caught_up
            and self._partitions.is_complete
            and self._history.listed.is_set()
            and self._mirror.is_listed
        )

    def is_own(self, job_id: str) -> bool:
        """Return whether this instance reads the events of the job."""
        return partition_of(job_id) in self._partitions.owned

    async def reached(self, sequence: int, wait_s: float) -> bool:
        """Wait until the records of all partitions include the events up to the sequence."""
        try:
            async with asyncio.timeout(wait_s):
                while not await self._includes(sequence, wait_s):  # noqa: ASYNC110 - as in `wait_complete`
                    await asyncio.sleep(_POLL_S)
        except (TimeoutError, BusUnavailable):
            return False
        return True

    async def _includes(self, sequence: int, wait_s: float) -> bool:
        """Wait until the partitions are applied up to the sequence; return whether they are the same partitions as before."""
        owned = self._partitions.owned
        await asyncio.gather(*(reader.wait_for(sequence, wait_s) for reader in self._readers.values()))
        await self._mirror_up_to(sequence)
        # A partition that was taken over meanwhile is not read yet.
        return owned == self._partitions.owned and self.is_complete()

    async def _mirror_up_to(self, sequence: int) -> None:
        """Wait until the records of other instances' partitions include the events up to the sequence."""
        while not self._is_mirrored(sequence):
            # Many queries wait for about the same sequence.
            async with self._mirroring:
                if not self._is_mirrored(sequence):
                    await self._advance_mirror()
            if not self._is_mirrored(sequence):
                await asyncio.sleep(_TICK_S)

    def _is_mirrored(self, sequence: int) -> bool:
        return sequence <= self._mirrored or len(self._partitions.owned) == PARTITIONS

    async def _advance_mirror(self) -> None:
        """Read the records that the others have stored; what they have acknowledged is in these."""
        owned = self._partitions.owned
        others = [partition_reader(STATUS_TRACKER, each) for each in range(PARTITIONS) if each not in owned]
        up_to = await low_water_mark(self._bus, JOBS_STREAM, others)
        if up_to > self._mirrored:
            await self._mirror.catch_up()
            await self._history.catch_up()
            if owned <= self._partitions.owned:
                self._mirrored = up_to

    async def last_of(self, job_id: str) -> int:
        """Return the sequence of the job's last event in the stream."""
        try:
            events = job_events_of(job_id)
        except BadToken:
            return 0
        last = await self._bus.last(JOBS_STREAM, events)
        return last.stream_sequence if last else 0

    async def handled(self, job_id: str, sequence: int) -> bool:
        """Return whether the job's events up to the sequence are handled."""
        partition = partition_of(job_id)
        if self.is_own(job_id):
            reader = self._readers.get(partition)
            return reader is not None and reader.caught_up.is_set() and reader.position >= sequence
        consumer = partition_reader(STATUS_TRACKER, partition)
        if await acknowledged(self._bus, JOBS_STREAM, consumer) < sequence:
            return False
        # What is acknowledged is in the stored record. The mirror may not have read it yet.
        record = await any_record(self._records, job_id)
        if record is not None and not record.settled:
            self._cache.put(record)
        return True

    async def deleted(self, job_id: str) -> bool:
        """Return whether the record of the job was deleted."""
        try:
            if await self._records.removal(ended_record_key(job_id)) is not None:
                return True
        except BadToken:
            return False
        # The marker has expired if all events of the job are included in the records, and none is of this job.
        last = await self.last_of(job_id)
        reader = partition_reader(STATUS_TRACKER, partition_of(job_id))
        if not last or await acknowledged(self._bus, JOBS_STREAM, reader) < last:
            return False
        return await any_record(self._records, job_id) is None

    async def _is_deleted(self, job_id: str) -> bool:
        """Return whether the job was deleted; waits for an unavailable broker."""
        while True:
            try:
                return await self.deleted(job_id)
            except BusUnavailable as error:
                log.info("whether %s was deleted is not known yet: %s", job_id, error)
            await asyncio.sleep(_READINESS_S)

    async def ended_record(self, job_id: str) -> JobRecord | None:
        """Return the record of a settled job, or None if it was deleted."""
        return await ended_record(self._records, job_id)

    async def rebuild_records(self, catalogue: CatalogueReconciler) -> None:
        """Store the live records again in a bucket that has lost all, and have every event read again, from which the others follow.

        The instance reads no events any more: it would acknowledge them to the new consumers.
        """
        owned = self._partitions.owned
        # What is known now: the mirror finds nothing in the new bucket.
        records = [self._cache.get(job_id) for job_id in self._cache.job_ids()]
        self._partitions.own(frozenset())
        self._set_ready()
        while self._readers:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(_POLL_S)
        for consumer in consumers_of(STATUS_TRACKER):
            if any(consumer.consumer == partition_reader(STATUS_TRACKER, partition) for partition in owned):
                await catalogue.restart_consumer(consumer)
        # Some may be older than the events in the stream.
        stored = await asyncio.gather(*(self._store(each) for each in records if each is not None))
        log.warning("%d of %d live records were stored again", sum(stored), len(records))

    async def _store(self, record: JobRecord) -> bool:
        try:
            await self._records.put(live_record_key(record.job_id), encode_record(record), expected=0)
        except BusError as error:
            log.info("record %s is not stored again: %s", record.job_id, error)
            return False
        return True

    def own(self, partitions: frozenset[int]) -> None:
        """Set the owned partitions."""
        if self._partitions.owned - partitions:
            # What this instance has not stored of them is in the records of their next owner only.
            self._mirrored = 0
        self._partitions.own(partitions)
        self._mirror.own(partitions)
        self._set_ready()

    async def run(self) -> None:
        """Read each owned partition, and mirror the records of the others, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._partitions.run())
            tasks.create_task(self._follow_history())
            tasks.create_task(self._await_history())
            tasks.create_task(self._refresh_readiness())
            tasks.create_task(self._mirror.run())
            tasks.create_task(self._pauses.run())

    async def wait_complete(self, within_s: float) -> bool:
        """See ``ReadProgress``."""
        try:
            async with asyncio.timeout(within_s):
                while not self.is_complete():  # noqa: ASYNC110 - many conditions, which nothing announces together
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            return False
        return True

    async def _catch_up(self) -> None:
        """Return when everything is read that is stored now, and others can read the records; waits for an unavailable broker."""
        while True:
            # A reader may end meanwhile: its partition is lost, and is read again from the start if it comes back.
            readers = list(self._readers.values())
            try:
                are_current = await asyncio.gather(*(reader.wait_current(_CATCH_UP_S) for reader in readers))
                await self._history.catch_up()
                await self._mirror.catch_up()
                await asyncio.gather(*(handler.flush() for handler in self._handlers.values()))
            except BusError as error:
                log.info("what was stored during a pause cannot be read yet: %s", error)
                await asyncio.sleep(_POLL_S)
            else:
                if all(are_current):
                    return

    def _set_ready(self) -> None:
        self._ctx.set_ready("records", self.is_complete())

    async def _refresh_readiness(self) -> None:
        """Follow the membership, which lapses without an event."""
        while True:
            await asyncio.sleep(_READINESS_S)
            self._set_ready()

    def _reader(self, partition: int) -> tuple[PartitionReader, PartitionHandler]:
        recorder = JobSpanRecorder(self._ctx.telemetry)
        store = RecordStore(self._records, on_superseded=recorder.superseded)
        handler = PartitionHandler(
            cache=self._cache,
            store=store,
            publisher=LifecyclePublisher(self._bus),
            observer=self._observer,
            recorder=recorder,
            retention=self._retention,
            clock=self._clock.now,
            count_invalid=self._invalid.inc,
            partition=partition,
        )

        async def load(entries: list[Entry]) -> None:
            handler.load(await store.load(entries))

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
        await self._clock.synchronised.wait()
        reader, handler = self._reader(partition)
        self._readers[partition], self._handlers[partition] = reader, handler
        try:
            # The index distinguishes events of ended jobs from those of unknown ones.
            await self._history.catch_up()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(reader.run())
                await reader.caught_up.wait()
                await self._history.catch_up()
                self._cache.drop_missing(handler.job_ids(), lambda job_id: partition_of(job_id) == partition)
                complete.set()
                await self._watch_deadlines(handler)
        finally:
            del self._readers[partition], self._handlers[partition]

    async def _watch_deadlines(self, handler: PartitionHandler) -> None:
        while True:
            now = self._clock.now()
            try:
                # Records that may be those of the past, because another instance has the partition, decide nothing.
                if self._membership.is_current:
                    await handler.expire(now)
                    await handler.enforce_retention()
            except BusError as error:
                # The jobs stay due, and are decided about when the broker is available or has space.
                log.warning("deadlines cannot be handled yet: %s", error)
            await handler.deadlines.wait(now, at_most_s=_MAX_SLEEP_S)

    async def _follow_history(self) -> None:
        """Keep the index of ended jobs, also of those that other instances write."""
        async with aclosing(self._history.changes()) as batches:
            async for batch in batches:
                for change in batch:
                    summary = summary_in(change.headers)
                    if change.removed:
                        self._cache.drop(job_id_in_key(change.key), change.revision, is_confirmed=True)
                    elif summary is None:
                        log.error("record %s at revision %d has no summary", change.key, change.revision)
                    else:
                        is_news = self._history.listed.is_set()
                        self._cache.archive(summary, change.revision, is_news=is_news)
                # A long listing must not delay everything else.
                await asyncio.sleep(0)

    async def _await_history(self) -> None:
        await self._history.listed.wait()
        self._set_ready()


async def build(settings: StatusTrackerSettings, ctx: Context) -> None:
    """Construct the service."""
    ctx.set_ready("records", False)
    bus = await connect_bus(settings, ctx)
    probe_writes(bus, ctx, settings, subjects=probes_of(STATUS_TRACKER), hint=UNSTORED)
    retention = Retention(ttl_s=settings.retention_seconds, most=settings.retained_jobs)
    cache = RecordCache(ended=EndedJobs(retention))
    register_phase_gauge(cache, ctx.metrics)
    membership = Membership(
        bus,
        leases=KeyValueStore(bus, LEASES_BUCKET),
        group=STATUS_TRACKER,
        instance=ctx.instance,
        ttl_s=settings.lease_seconds,
    )
    tracker = PartitionTracker(
        bus=bus,
        ctx=ctx,
        clock=broker_clock(bus, ctx, JOBS_STREAM),
        cache=cache,
        retention=retention,
        membership=membership,
    )
    catalogue = keep_catalogue(
        bus,
        ctx,
        streams=[JOBS_STREAM, DEAD_STREAM],
        buckets=[LEASES_BUCKET, JOBS_BUCKET, WEBHOOKS_BUCKET],
        consumers=consumers_of(STATUS_TRACKER),
        restore={JOBS_BUCKET: lambda: tracker.rebuild_records(catalogue)},
        restart_after=[JOBS_STREAM, JOBS_BUCKET],
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
            cache=cache,
            stored=tracker.ended_record,
            progress=tracker,
            queue_of=queues.of,
            read_wait_s=settings.read_wait_seconds,
        ),
    )
