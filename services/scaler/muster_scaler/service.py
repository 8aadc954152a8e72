"""The only place that constructs the scaler's adapters."""

from __future__ import annotations

import asyncio
import logging
import time

from muster_core.elasticity import DragonSettings, ScaleProposal, dragon, none
from muster_core.models import JobRecord
from muster_events import spans
from muster_events.catalogue import (
    JOBS_BUCKET,
    JOBS_STREAM,
    LEASES_BUCKET,
    NODES_STREAM,
    RECORD_WRITERS,
    SCALER,
    pool_reader,
)
from muster_events.codec import UnreadableEvent, job_message, read_pool_fact
from muster_events.subjects import JOB_FACTS, capacity_subject, leader_subject, pool_nodes
from muster_events.view import JobsView
from muster_runtime.app import Context
from muster_runtime.bus import Bus, Feed, Fence, Incoming, Leadership, Records
from muster_runtime.bus.watch import Watch
from muster_runtime.logs import fields
from muster_runtime.metrics import Metrics
from muster_runtime.service_bus import connect_bus
from muster_runtime.telemetry import Telemetry
from muster_runtime.trace_context import extract
from muster_scaler.handlers import NextCheck, Plan, Term
from muster_scaler.settings import ScalerSettings

log = logging.getLogger(__name__)


class BusProposals:
    """See ``Proposals``; each with its span."""

    def __init__(self, *, bus: Bus, telemetry: Telemetry, metrics: Metrics) -> None:
        self._bus = bus
        self._proposed = metrics.counter("muster_proposals", "growths proposed", ("policy",))
        self._telemetry = telemetry

    async def publish(self, record: JobRecord, proposal: ScaleProposal, began_ns: int) -> None:
        """See ``Proposals``."""
        fact = proposal.to_fact()
        await self._bus.publish_once(
            job_message(record.job_id, fact, source=SCALER, traceparent=record.trace, after=record.folded)
        )
        self._proposed.labels(fact.policy).inc()
        root = extract({"traceparent": record.trace})
        if root is not None:
            self._telemetry.record(
                "propose",
                parent=root,
                key=spans.propose(record.job_id, fact.attempt, fact.generation),
                start_ns=began_ns,
                end_ns=time.time_ns(),
                attributes={
                    "muster.job": record.name,
                    "muster.job_id": record.job_id,
                    "muster.policy": fact.policy,
                    "muster.from": fact.size,
                    "muster.to": fact.target,
                    "muster.reason": fact.reason.message,
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
        view = JobsView(keep=lambda record: not record.settled)
        plan, next_check = _policy(self._settings)

        async def handle(batch: list[Incoming], live: bool) -> None:
            for incoming in batch:
                view.apply(incoming)
            term.wake()

        feed = Feed(
            self._bus,
            stream=JOBS_STREAM,
            durable=pool_reader(SCALER, self._settings.pool),
            filters=[JOB_FACTS],
            records=Records(self._bus, JOBS_BUCKET),
            floors=RECORD_WRITERS,
            load=view.load,
            handle=handle,
        )
        term = Term(
            records=view.records,
            proposals=BusProposals(bus=self._bus, telemetry=self._ctx.telemetry, metrics=self._ctx.metrics),
            plan=plan,
            next_check=next_check,
            clock=lambda: time.time_ns() // 1000,
        )
        pool = self._settings.pool
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(feed.run())
            tasks.create_task(self._follow(pool_nodes(pool), term))
            tasks.create_task(self._follow(capacity_subject(pool), term))
            await feed.caught_up.wait()
            log.info("leading", extra=fields(pool=pool, epoch=fence.sequence, policy=self._settings.policy))
            await term.lead()

    async def _follow(self, subject: str, term: Term) -> None:
        prefix, _, last = subject.rpartition(".")
        watch = Watch(self._bus, stream=NODES_STREAM, prefix=f"{prefix}.", filter_key=last)
        async for change in watch.changes():
            if change.value is None:
                continue
            try:
                term.observe_pool(read_pool_fact(change.value))
            except UnreadableEvent as error:
                log.error("%s cannot be read: %s", change.key, error)


def _policy(settings: ScalerSettings) -> tuple[Plan, NextCheck]:
    if settings.policy == "none":
        return none.plan, none.next_check
    chosen = DragonSettings(quiet_s=round(settings.quiet_seconds))
    return (
        lambda view, now: dragon.plan(view, now, chosen),
        lambda view, now: dragon.next_check(view, now, chosen),
    )


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
