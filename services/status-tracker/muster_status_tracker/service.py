"""The only place that constructs status-tracker's adapters."""

from __future__ import annotations

import asyncio
import logging
import time

from muster_bus import Bus, BusError, Entry, Feed, Incoming, Membership, Records
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
)
from muster_events.codec import decode_record, job_message
from muster_events.subjects import (
    PARTITIONS,
    BadToken,
    job_events_of,
    partition_events,
    partition_of,
    partition_records,
    record_key,
)
from muster_events.view import stamp
from muster_rpc.internal.v1 import queries_pb2_grpc
from muster_service.app import Context
from muster_status_tracker.bucket import JobsBucket
from muster_status_tracker.handlers import PartitionHandler
from muster_status_tracker.meters import MeteredStory, show_phases
from muster_status_tracker.queries import RecordServicer
from muster_status_tracker.queues import QueuesInForce
from muster_status_tracker.settings import StatusTrackerSettings
from muster_status_tracker.shelf import Shelf
from muster_status_tracker.story import TraceStory
from muster_status_tracker.webhooks.receivers import read_receivers
from muster_status_tracker.webhooks.tellers import Tellers

log = logging.getLogger(__name__)

_LONGEST_SLEEP_S = 1.0
_TICK_S = 0.1
"""How long events gather when they are many, seconds."""

_SETTLE_S = 1.0
"""How long changed records gather when they are many, seconds. What becomes of a job meanwhile is one record instead of several, and
those of many jobs are one write. Answers are given from memory; a copy that answers for another's partition is so far behind."""


def runs_before(record: JobRecord, event: JobFinished | JobRestarting) -> int:
    """How often the replicas that a restart names were restarted before: no two restarts of the same replicas have the same."""
    named = (
        {(ref.role, ref.index) for ref in event.replicas}
        if isinstance(event, JobRestarting)
        else set[tuple[str, int]]()
    )
    return sum(member.restart for member in record.gang() if member.key in named)


class BusLife:
    """Decisions about a job's life, on the bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def publish(self, record: JobRecord, event: JobFinished | JobRestarting) -> None:
        """See ``LifeEvents``."""
        message = job_message(
            record.job_id,
            event,
            source=STATUS_TRACKER,
            traceparent=record.trace,
            after=runs_before(record, event),
        )
        await self._bus.publish_once(message)


class Tracker:
    """The partitions of this copy, each with its feed; and a mirror of the others' records, to answer from."""

    def __init__(self, *, bus: Bus, ctx: Context, shelf: Shelf, retention: Retention) -> None:
        self._bus = bus
        self._ctx = ctx
        self._shelf = shelf
        self._retention = retention
        self._records = Records(bus, JOBS_BUCKET, written_in_groups=True)
        self._feeds: dict[int, tuple[Feed, asyncio.Task[None]]] = {}
        self._invalid = ctx.metrics.counter(
            "muster_illegal_moves_total", "events that moved nothing though they should not have been"
        )
        self._owned: frozenset[int] = frozenset()
        self._changed = asyncio.Event()

    async def reached(self, sequence: int, wait_s: float) -> bool:
        """See ``Progress``."""
        try:
            await asyncio.gather(*(feed.wait_for(sequence, wait_s) for feed, _ in self._feeds.values()))
        except TimeoutError:
            return False
        return True

    async def last_of(self, job_id: str) -> int:
        """See ``Progress``."""
        try:
            events = job_events_of(job_id)
        except BadToken:
            return 0
        last = await self._bus.last(JOBS_STREAM, events)
        return last.stream_sequence if last else 0

    async def forgotten(self, job_id: str) -> bool:
        """See ``Progress``."""
        try:
            return await self._records.removal(record_key(job_id)) is not None
        except BadToken:
            return False

    def own(self, partitions: frozenset[int]) -> None:
        """Take exactly these partitions."""
        self._owned = partitions
        self._changed.set()

    async def run(self) -> None:
        """Keep a feed for each owned partition."""
        mirror: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._changed.wait()
                self._changed.clear()
                for partition in self._feeds.keys() - self._owned:
                    _, task = self._feeds.pop(partition)
                    task.cancel()
                for partition in self._owned - self._feeds.keys():
                    bucket = JobsBucket(self._records)
                    handler = self._handler(bucket)
                    feed = self._feed(partition, bucket, handler)
                    self._feeds[partition] = (feed, tasks.create_task(self._follow(feed, handler)))
                if len(self._owned) < PARTITIONS and mirror is None:
                    mirror = tasks.create_task(self._mirror())
                if len(self._owned) == PARTITIONS and mirror is not None:
                    mirror.cancel()
                    mirror = None
                await asyncio.gather(*(feed.caught_up.wait() for feed, _ in self._feeds.values()))
                self._ctx.set_ready("records", True)

    def _handler(self, bucket: JobsBucket) -> PartitionHandler:
        return PartitionHandler(
            shelf=self._shelf,
            bucket=bucket,
            life=BusLife(self._bus),
            story=MeteredStory(TraceStory(self._ctx.telemetry), self._ctx.metrics),
            retention=self._retention,
            clock=lambda: time.time_ns() // 1000,
            count_invalid=self._invalid.inc,
        )

    def _feed(self, partition: int, bucket: JobsBucket, handler: PartitionHandler) -> Feed:
        def load(entries: list[Entry]) -> None:
            handler.load(bucket.load(entries))

        async def handle(batch: list[Incoming], live: bool) -> None:
            await handler.handle([stamp(incoming) for incoming in batch], live=live)

        return Feed(
            self._bus,
            stream=JOBS_STREAM,
            durable=partition_reader(STATUS_TRACKER, partition),
            filters=partition_events(partition),
            records=self._records,
            record_filters=partition_records(partition),
            load=load,
            handle=handle,
            tick_s=_TICK_S,
            settle=handler.settle,
            settle_s=_SETTLE_S,
        )

    async def _follow(self, feed: Feed, handler: PartitionHandler) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(feed.run())
            tasks.create_task(self._watch_deadlines(feed, handler))

    async def _watch_deadlines(self, feed: Feed, handler: PartitionHandler) -> None:
        await feed.caught_up.wait()
        while True:
            now = time.time_ns() // 1000
            try:
                await handler.expire(now)
                await handler.thin_out()
            except BusError as error:
                # What is due stays due, and is decided when the broker is back, or has room.
                log.warning("a deadline cannot be acted on yet: %s", error)
            await handler.alarms.wait(now, at_most_s=_LONGEST_SLEEP_S)

    async def _mirror(self) -> None:
        async for change in self._records.watch(">"):
            job_id = change.key.rpartition(".")[2]
            if partition_of(job_id) in self._owned:
                continue
            if change.value is None:
                self._shelf.drop(job_id)
            else:
                self._shelf.put(decode_record(change.value))


async def build(settings: StatusTrackerSettings, ctx: Context) -> None:
    """Construct the service."""
    ctx.set_ready("records", False)
    bus = await connect_bus(settings, ctx)
    shelf = Shelf()
    show_phases(shelf, ctx.metrics)
    retention = Retention(ttl_s=settings.retention_seconds, most=settings.retained_jobs)
    tracker = Tracker(bus=bus, ctx=ctx, shelf=shelf, retention=retention)
    membership = Membership(
        bus, leases=Records(bus, LEASES_BUCKET), group=STATUS_TRACKER, instance=ctx.instance
    )
    queues = QueuesInForce(records=Records(bus, QUEUES_BUCKET), pool=settings.pool)
    ctx.add_part("queues", queues.run)
    takers = [tracker.own]
    ctx.add_part("partitions", tracker.run)
    if settings.webhooks is not None:
        receivers = read_receivers(settings.webhooks)
        ctx.set_ready("webhooks", False)
        tellers = Tellers(
            bus=bus,
            shelf=shelf,
            receivers=receivers,
            metrics=ctx.metrics,
            on_ready=lambda: ctx.set_ready("webhooks", True),
        )
        takers.append(tellers.own)
        ctx.add_part("webhooks", tellers.run)

    def own(partitions: frozenset[int]) -> None:
        for take in takers:
            take(partitions)

    ctx.add_part("membership", lambda: membership.run(own, PARTITIONS))
    ctx.add_grpc(
        queries_pb2_grpc.add_RecordServiceServicer_to_server,
        RecordServicer(
            shelf=shelf,
            progress=tracker,
            queue_of=queues.of,
            read_wait_s=settings.read_wait_seconds,
        ),
    )
