"""Construction of the scaler: its adapters to the bus, its leadership and its readers."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing
from functools import partial

from muster_bus import (
    BrokerClock,
    Bus,
    BusUnavailable,
    Entry,
    Fence,
    Incoming,
    KeyValueStore,
    KeyWatch,
    Leadership,
    PartitionReader,
)
from muster_bus.service_bus import broker_clock, connect_bus, keep_catalogue, probe_writes
from muster_core.autoscaling import PROPOSAL_CODES, LazyPoolState, ProposalHistory
from muster_core.events import ScaleProposed
from muster_core.models import JobRecord
from muster_events import messaging, spans
from muster_events.catalogue import (
    JOBS_STREAM,
    LEASES_BUCKET,
    NODES_STREAM,
    QUEUES_BUCKET,
    RECORD_WRITERS,
    SCALER,
    pool_reader,
    probes_of,
    reader_of,
)
from muster_events.codec import (
    UnreadableEvent,
    job_message,
    message_id_of,
    read_node,
    read_pool_event,
)
from muster_events.history import ended_builds, records_of, successful_runs
from muster_events.queues import decode_queues
from muster_events.recent import recent_events
from muster_events.subjects import LIVE_RECORDS, UNSTORED, leader_subject
from muster_events.view import restore, stamp
from muster_scaler.handlers import PlanningLoop
from muster_scaler.settings import ScalerSettings
from muster_service.app import Context
from muster_service.logs import fields
from muster_service.metrics import Metrics
from muster_service.trace_context import extract
from muster_service.tracing import Telemetry

log = logging.getLogger(__name__)

_RETRY_S = 0.5
_UNSENT_SPANS_S = 15.0
"""For how long before a new leader leads the spans of its predecessor may be unsent."""
_TICK_S = 0.25
"""How long events gather under load: growth is not urgent, and starting jobs need the processor."""


class ProposalMetrics:
    """Counts proposals, of all terms of this instance."""

    def __init__(self, metrics: Metrics, *, pool: str, policy: str) -> None:
        self._pool = pool
        self._proposed = metrics.counter(
            "muster_proposals", "proposals to resize a job", ("pool", "policy", "reason")
        )
        for code in PROPOSAL_CODES:
            self._proposed.labels(pool, policy, code)

    def count(self, event: ScaleProposed) -> None:
        """Count a proposal."""
        self._proposed.labels(self._pool, event.policy, event.reason.code).inc()


class ProposalPublisher:
    """Publishes proposals, with a span and a metric for each."""

    def __init__(self, *, bus: Bus, telemetry: Telemetry, metrics: ProposalMetrics) -> None:
        self._bus = bus
        self._metrics = metrics
        self._telemetry = telemetry

    async def publish(self, record: JobRecord, event: ScaleProposed, began_ns: int) -> None:
        """Publish a proposal for the job of ``record``; its plan began at ``began_ns``."""
        await self._bus.publish_once(
            job_message(
                record.job_id, event, source=SCALER, traceparent=record.trace, after=record.applied_sequence
            )
        )
        self._metrics.count(event)
        self.record_span(record, event, began_ns, time.time_ns())

    def record_span(self, record: JobRecord, event: ScaleProposed, began_ns: int, ended_ns: int) -> None:
        """Record the span of a proposal, from the begin of its plan to its publication."""
        root = extract({"traceparent": record.trace})
        if root is not None and self._telemetry.is_exporting:
            self._telemetry.record(
                "propose",
                parent=root,
                key=spans.propose(record.job_id, event.attempt, event.generation, event.reason.message),
                start_ns=began_ns,
                end_ns=ended_ns,
                role="producer",
                attributes={
                    **messaging.published(
                        ScaleProposed, message_id_of(record.job_id, event, record.applied_sequence)
                    ),
                    "muster.job": record.name,
                    "muster.job_id": record.job_id,
                    "muster.policy": event.policy,
                    "muster.from": event.size,
                    "muster.to": event.target,
                    "muster.gain": event.gain,
                    "muster.beneficiary": event.beneficiary,
                    "muster.reason": event.reason.message,
                },
            )


class Scaler:
    """A candidate for the leadership of a pool's scaling; every term starts from the bus alone."""

    def __init__(self, *, bus: Bus, ctx: Context, clock: BrokerClock, settings: ScalerSettings) -> None:
        self._bus = bus
        self._clock = clock
        self._ctx = ctx
        self._settings = settings
        self._metrics = ProposalMetrics(ctx.metrics, pool=settings.pool, policy=settings.policy)

    async def lead(self, fence: Fence) -> None:
        """Lead for one term. Proposals need no fence: the scheduler rejects stale ones."""
        await self._clock.synchronised.wait()
        name = self._settings.pool
        pool = LazyPoolState(pool=name)
        queues = KeyValueStore(self._bus, QUEUES_BUCKET)
        publisher = ProposalPublisher(bus=self._bus, telemetry=self._ctx.telemetry, metrics=self._metrics)
        loop = PlanningLoop(
            pool=pool,
            publish=publisher.publish,
            settings=self._settings.elastic,
            history=ProposalHistory(self._settings.repeat_interval_seconds),
            clock=self._clock.now,
        )
        if entry := await _read_queues(queues, name):
            _apply_queues(loop, entry.value)

        records = records_of(self._bus)

        async def load(entries: list[Entry]) -> None:
            pool.restore(await restore(records, entries))

        async def handle(batch: list[Incoming], live: bool) -> None:
            loop.observe([stamp(incoming) for incoming in batch])

        reader = PartitionReader(
            self._bus,
            stream=JOBS_STREAM,
            consumer=pool_reader(SCALER, name),
            filters=reader_of(SCALER, JOBS_STREAM).filters,
            records=records,
            record_filters=[LIVE_RECORDS],
            record_writers=RECORD_WRITERS,
            load=load,
            handle=handle,
            tick_s=_TICK_S,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reader.run())
            for subject in reader_of(SCALER, NODES_STREAM).in_pool(name):
                tasks.create_task(self._watch(subject, loop))
            tasks.create_task(_watch_queues(queues, name, loop))
            await reader.caught_up.wait()
            for build in await ended_builds(records, pool.records):
                pool.observe_settled(build)
            tasks.create_task(_learn_runtimes(records, pool))
            tasks.create_task(self._record_unsent_spans(publisher, pool))
            log.info("leading", extra=fields(pool=name, epoch=fence.sequence, policy=self._settings.policy))
            await loop.run()

    async def _record_unsent_spans(self, publisher: ProposalPublisher, pool: LazyPoolState) -> None:
        if not self._ctx.telemetry.is_exporting:
            return
        for recent in await recent_events(self._bus, [ScaleProposed], seconds=_UNSENT_SPANS_S):
            record = pool.record(recent.job_id) or JobRecord(
                job_id=recent.job_id, applied_sequence=0, trace=recent.traceparent
            )
            if isinstance(recent.event, ScaleProposed):
                publisher.record_span(record, recent.event, recent.at * 1000, recent.at * 1000)

    async def _watch(self, subject: str, loop: PlanningLoop) -> None:
        prefix, _, last = subject.rpartition(".")
        watch = KeyWatch(self._bus, stream=NODES_STREAM, prefix=f"{prefix}.", filter_key=last)
        async for change in watch.changes():
            whole = f"{prefix}.{change.key}"
            is_node = last == "*"
            read = partial(read_node, pool=self._settings.pool, subject=whole) if is_node else read_pool_event
            if (event := await watch.read(change, read)) is not None:
                loop.observe_pool(event)


async def _read_queues(queues: KeyValueStore, pool: str) -> Entry | None:
    """Return the stored queues of ``pool``; waits until the bus answers."""
    while True:
        try:
            return await queues.get(pool)
        except BusUnavailable as error:
            log.warning("reading the queues of pool %s failed, trying again: %s", pool, error)
            await asyncio.sleep(_RETRY_S)


async def _watch_queues(queues: KeyValueStore, pool: str, loop: PlanningLoop) -> None:
    async for change in queues.watch(pool):
        if change.value is not None:
            _apply_queues(loop, change.value)


def _apply_queues(loop: PlanningLoop, value: bytes) -> None:
    try:
        loop.apply_queues(decode_queues(value).queues)
    except UnreadableEvent as error:
        log.error("the queues are unreadable, the previous ones stay in force: %s", error)


async def _learn_runtimes(records: KeyValueStore, pool: LazyPoolState) -> None:
    """Estimate run times from the jobs that have succeeded; new ones are observed as they end."""
    try:
        async with aclosing(successful_runs(records)) as chunks:
            async for runs in chunks:
                for run in runs:
                    pool.observe_settled(run)
    except BusUnavailable as error:
        log.warning("run times are estimated from a part of the history: %s", error)


async def build(settings: ScalerSettings, ctx: Context) -> None:
    """Construct the service and add its leadership to ``ctx``."""
    bus = await connect_bus(settings, ctx)
    probe_writes(bus, ctx, settings, subjects=probes_of(SCALER), hint=UNSTORED)
    keep_catalogue(
        bus, ctx, streams=[JOBS_STREAM, NODES_STREAM], buckets=[LEASES_BUCKET], restart_after=[JOBS_STREAM]
    )
    scaler = Scaler(bus=bus, ctx=ctx, clock=broker_clock(bus, ctx, JOBS_STREAM), settings=settings)
    leadership = Leadership(
        bus,
        leases=KeyValueStore(bus, LEASES_BUCKET),
        key=f"{SCALER}.{settings.pool}",
        epoch_subject=leader_subject(f"{settings.pool}-{SCALER}"),
        stream=JOBS_STREAM,
        ttl_s=settings.lease_seconds,
        instance=ctx.instance,
    )
    ctx.add_part("leadership", lambda: leadership.run(scaler.lead))
