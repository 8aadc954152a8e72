"""The only place that constructs the scaler's adapters."""

from __future__ import annotations

import asyncio
import logging
import time

from muster_bus import (
    Bus,
    BusUnavailable,
    Entry,
    Feed,
    Fence,
    Incoming,
    Leadership,
    NotFound,
    Records,
)
from muster_bus.service_bus import connect_bus
from muster_bus.watch import Watch
from muster_core.autoscaling import Asked, FollowedPool, ScaleProposal
from muster_core.events import ScaleProposed
from muster_core.models import JobRecord
from muster_events import spans
from muster_events.catalogue import (
    JOBS_BUCKET,
    JOBS_STREAM,
    LEASES_BUCKET,
    NODES_STREAM,
    QUEUES_BUCKET,
    RECORD_WRITERS,
    SCALER,
    pool_reader,
)
from muster_events.codec import UnreadableEvent, job_message, read_pool_event
from muster_events.queues import decode_queues
from muster_events.recent import recent_events
from muster_events.subjects import JOB_EVENTS, capacity_subject, leader_subject, pool_nodes
from muster_events.view import restore, stamp
from muster_scaler.handlers import Term
from muster_scaler.settings import ScalerSettings
from muster_service.app import Context
from muster_service.logs import fields
from muster_service.metrics import Metrics
from muster_service.telemetry import Telemetry
from muster_service.trace_context import extract

log = logging.getLogger(__name__)

_PAUSE_S = 0.5
_UNSENT_S = 15.0
"""How long before its successor leads a leader may have died with spans that it had not sent."""
_TICK_S = 0.25
"""How long events gather when they are many: nobody is in a hurry to grow, and jobs that start want the machine."""


class BusProposals:
    """See ``Proposals``; each with its span."""

    def __init__(self, *, bus: Bus, telemetry: Telemetry, metrics: Metrics) -> None:
        self._bus = bus
        self._proposed = metrics.counter("muster_proposals", "changes of size proposed", ("policy", "reason"))
        self._telemetry = telemetry

    async def publish(self, record: JobRecord, proposal: ScaleProposal, began_ns: int) -> None:
        """See ``Proposals``."""
        event = proposal.to_event()
        await self._bus.publish_once(
            job_message(
                record.job_id, event, source=SCALER, traceparent=record.trace, after=record.applied_sequence
            )
        )
        self._proposed.labels(event.policy, event.reason.code).inc()
        self.tell(record, event, began_ns, time.time_ns())

    def tell(self, record: JobRecord, event: ScaleProposed, began_ns: int, ended_ns: int) -> None:
        """Record the span of a proposal."""
        root = extract({"traceparent": record.trace})
        if root is not None:
            self._telemetry.record(
                "propose",
                parent=root,
                key=spans.propose(record.job_id, event.attempt, event.generation, event.reason.message),
                start_ns=began_ns,
                end_ns=ended_ns,
                attributes={
                    "muster.job": record.name,
                    "muster.job_id": record.job_id,
                    "muster.policy": event.policy,
                    "muster.from": event.size,
                    "muster.to": event.target,
                    "muster.gain": event.gain,
                    "muster.for_job": event.beneficiary,
                    "muster.reason": event.reason.message,
                },
            )


class Scaler:
    """A candidate for the leadership of a pool's scaling; every term starts from nothing but the bus."""

    def __init__(self, *, bus: Bus, ctx: Context, settings: ScalerSettings) -> None:
        self._bus = bus
        self._ctx = ctx
        self._settings = settings

    async def lead(self, fence: Fence) -> None:
        """One term. Proposals need no fence: the scheduler refuses what is stale."""
        pool = self._settings.pool
        followed = FollowedPool(pool=pool)
        queues = Records(self._bus, QUEUES_BUCKET)
        proposals = BusProposals(bus=self._bus, telemetry=self._ctx.telemetry, metrics=self._ctx.metrics)
        term = Term(
            pool=followed,
            proposals=proposals,
            settings=self._settings.elastic,
            asked=Asked(self._settings.ask_again_seconds),
            clock=lambda: time.time_ns() // 1000,
        )
        if entry := await _read(queues, pool):
            _take_queues(term, entry.value)

        def load(entries: list[Entry]) -> None:
            followed.restore(restore(entries))

        async def handle(batch: list[Incoming], live: bool) -> None:
            term.observe([stamp(incoming) for incoming in batch])

        feed = Feed(
            self._bus,
            stream=JOBS_STREAM,
            durable=pool_reader(SCALER, pool),
            filters=[JOB_EVENTS],
            records=Records(self._bus, JOBS_BUCKET),
            floors=RECORD_WRITERS,
            load=load,
            handle=handle,
            tick_s=_TICK_S,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(feed.run())
            tasks.create_task(self._follow(pool_nodes(pool), term))
            tasks.create_task(self._follow(capacity_subject(pool), term))
            tasks.create_task(_follow_queues(queues, pool, term))
            await feed.caught_up.wait()
            tasks.create_task(self._retell(proposals, followed))
            log.info("leading", extra=fields(pool=pool, epoch=fence.sequence, policy=self._settings.policy))
            await term.lead()

    async def _retell(self, proposals: BusProposals, pool: FollowedPool) -> None:
        for said in await recent_events(self._bus, [ScaleProposed], seconds=_UNSENT_S):
            known = pool.record(said.job_id)
            record = known or JobRecord(job_id=said.job_id, applied_sequence=0, trace=said.traceparent)
            if isinstance(said.event, ScaleProposed):
                proposals.tell(record, said.event, said.at * 1000, said.at * 1000)

    async def _follow(self, subject: str, term: Term) -> None:
        prefix, _, last = subject.rpartition(".")
        watch = Watch(self._bus, stream=NODES_STREAM, prefix=f"{prefix}.", filter_key=last)
        async for change in watch.changes():
            if change.value is None:
                continue
            try:
                term.observe_pool(read_pool_event(change.value))
            except UnreadableEvent as error:
                log.error("%s cannot be read: %s", change.key, error)


async def _read(queues: Records, pool: str) -> Entry | None:
    """What is stored of the queues; waits until the bus answers."""
    while True:
        try:
            return await queues.get(pool)
        except (BusUnavailable, NotFound) as error:
            log.warning("the queues of pool %s cannot be read yet: %s", pool, error)
            await asyncio.sleep(_PAUSE_S)


async def _follow_queues(queues: Records, pool: str, term: Term) -> None:
    async for change in queues.watch(pool):
        if change.value is not None:
            _take_queues(term, change.value)


def _take_queues(term: Term, value: bytes) -> None:
    try:
        term.apply_queues(decode_queues(value).queues)
    except UnreadableEvent as error:
        log.error("the queues cannot be read, those before stay in force: %s", error)


async def build(settings: ScalerSettings, ctx: Context) -> None:
    """Construct the service."""
    bus = await connect_bus(settings, ctx)
    scaler = Scaler(bus=bus, ctx=ctx, settings=settings)
    leadership = Leadership(
        bus,
        leases=Records(bus, LEASES_BUCKET),
        key=f"{SCALER}.{settings.pool}",
        epoch_subject=leader_subject(f"{settings.pool}-{SCALER}"),
        stream=JOBS_STREAM,
        ttl_s=settings.lease_seconds,
        instance=ctx.instance,
    )
    ctx.add_part("leadership", lambda: leadership.run(scaler.lead))
