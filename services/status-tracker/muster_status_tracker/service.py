"""The only place that constructs status-tracker's adapters."""

from __future__ import annotations

import asyncio
import logging
import time

from muster_core.facts import JobFinished, JobRestarting
from muster_core.models import JobRecord
from muster_events.catalogue import JOBS_BUCKET, JOBS_STREAM, LEASES_BUCKET, STATUS_TRACKER, shard_durable
from muster_events.codec import decode_record, job_message
from muster_events.subjects import SHARDS, BadToken, job_facts_of, record_filter, record_key, shard_facts
from muster_events.view import stamp
from muster_rpc.v1 import internal_service_pb2_grpc
from muster_runtime.app import Context
from muster_runtime.bus import Bus, BusUnavailable, Entry, Feed, Incoming, Membership, Records
from muster_runtime.service_bus import connect_bus
from muster_status_tracker.bucket import JobsBucket
from muster_status_tracker.handlers import ShardHandler
from muster_status_tracker.meters import MeteredStory, show_phases
from muster_status_tracker.questions import RecordServicer
from muster_status_tracker.settings import StatusTrackerSettings
from muster_status_tracker.shelf import Shelf
from muster_status_tracker.story import TraceStory

log = logging.getLogger(__name__)

_LONGEST_SLEEP_S = 1.0


class BusLife:
    """Decisions about a job's life, on the bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def publish(self, record: JobRecord, fact: JobFinished | JobRestarting) -> None:
        """See ``LifeFacts``."""
        message = job_message(
            record.job_id, fact, source=STATUS_TRACKER, traceparent=record.trace, after=record.failures
        )
        await self._bus.publish_once(message)


class Tracker:
    """The shards of this copy, each with its feed; and a mirror of the others' records, to answer from."""

    def __init__(self, *, bus: Bus, ctx: Context, shelf: Shelf) -> None:
        self._bus = bus
        self._ctx = ctx
        self._shelf = shelf
        self._records = Records(bus, JOBS_BUCKET)
        self._feeds: dict[int, tuple[Feed, asyncio.Task[None]]] = {}
        self._illegal = ctx.metrics.counter(
            "muster_illegal_moves_total", "facts that moved nothing though they should not have been"
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
            facts = job_facts_of(job_id)
        except BadToken:
            return 0
        last = await self._bus.last(JOBS_STREAM, facts)
        return last.stream_sequence if last else 0

    async def forgotten(self, job_id: str) -> bool:
        """See ``Progress``."""
        try:
            return await self._records.removal(record_key(job_id)) is not None
        except BadToken:
            return False

    def own(self, shards: frozenset[int]) -> None:
        """Take exactly these shards."""
        self._owned = shards
        self._changed.set()

    async def run(self) -> None:
        """Keep a feed for each owned shard."""
        mirror: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._changed.wait()
                self._changed.clear()
                for shard in self._feeds.keys() - self._owned:
                    _, task = self._feeds.pop(shard)
                    task.cancel()
                for shard in self._owned - self._feeds.keys():
                    bucket = JobsBucket(self._records)
                    handler = self._handler(bucket)
                    feed = self._feed(shard, bucket, handler)
                    self._feeds[shard] = (feed, tasks.create_task(self._follow(feed, handler)))
                if len(self._owned) < SHARDS and mirror is None:
                    mirror = tasks.create_task(self._mirror())
                if len(self._owned) == SHARDS and mirror is not None:
                    mirror.cancel()
                    mirror = None
                await asyncio.gather(*(feed.caught_up.wait() for feed, _ in self._feeds.values()))
                self._ctx.set_ready("records", True)

    def _handler(self, bucket: JobsBucket) -> ShardHandler:
        return ShardHandler(
            shelf=self._shelf,
            bucket=bucket,
            life=BusLife(self._bus),
            story=MeteredStory(TraceStory(self._ctx.telemetry), self._ctx.metrics),
            clock=lambda: time.time_ns() // 1000,
            count_illegal=self._illegal.inc,
        )

    def _feed(self, shard: int, bucket: JobsBucket, handler: ShardHandler) -> Feed:
        def load(entries: list[Entry]) -> None:
            handler.load(bucket.load(entries))

        async def handle(batch: list[Incoming], live: bool) -> None:
            await handler.handle([stamp(incoming) for incoming in batch], live=live)

        return Feed(
            self._bus,
            stream=JOBS_STREAM,
            durable=shard_durable(STATUS_TRACKER, shard),
            filters=[shard_facts(shard)],
            records=self._records,
            record_filter=record_filter(shard),
            load=load,
            handle=handle,
        )

    async def _follow(self, feed: Feed, handler: ShardHandler) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(feed.run())
            tasks.create_task(self._watch_deadlines(feed, handler))

    async def _watch_deadlines(self, feed: Feed, handler: ShardHandler) -> None:
        await feed.caught_up.wait()
        while True:
            now = time.time_ns() // 1000
            if handler.expire(now):
                try:
                    await handler.decide_due()
                except BusUnavailable as error:
                    # What is due stays due, and is decided when the broker is back.
                    log.warning("a deadline cannot be acted on yet: %s", error)
            deadline = handler.next_deadline()
            wait_s = _LONGEST_SLEEP_S if deadline is None else (deadline - now) / 1e6
            await asyncio.sleep(min(max(wait_s, 0.01), _LONGEST_SLEEP_S))

    async def _mirror(self) -> None:
        async for change in self._records.watch(">"):
            shard, _, job_id = change.key.partition(".")
            if int(shard) in self._owned:
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
    tracker = Tracker(bus=bus, ctx=ctx, shelf=shelf)
    membership = Membership(
        bus, leases=Records(bus, LEASES_BUCKET), group=STATUS_TRACKER, instance=ctx.instance
    )
    ctx.add_part("shards", tracker.run)
    ctx.add_part("membership", lambda: membership.run(tracker.own, SHARDS))
    ctx.add_grpc(
        internal_service_pb2_grpc.add_RecordServiceServicer_to_server,
        RecordServicer(shelf=shelf, progress=tracker, read_wait_s=settings.read_wait_seconds),
    )
