"""The only place that constructs the scheduler's adapters."""

from __future__ import annotations

import asyncio
import logging
import time

from muster_core.facts import NodeChanged
from muster_core.queues import PoolState
from muster_events.catalogue import (
    JOBS_BUCKET,
    JOBS_STREAM,
    LEASES_BUCKET,
    NODES_STREAM,
    RECORD_WRITERS,
    SCHEDULER,
    pool_reader,
)
from muster_events.codec import UnreadableEvent, read_pool_fact
from muster_events.subjects import JOB_FACTS, leader_subject, pool_nodes
from muster_events.view import restore, stamp
from muster_rpc.v1 import internal_service_pb2_grpc
from muster_runtime.app import Context
from muster_runtime.bus import Bus, Entry, Feed, Fence, Incoming, Leadership, Records
from muster_runtime.bus.watch import Watch
from muster_runtime.logs import fields
from muster_runtime.service_bus import connect_bus
from muster_scheduler.adapters import BusTotals, FencedDecisions, TraceStory
from muster_scheduler.handlers import Term
from muster_scheduler.meters import MeteredStory, MeteredTotals
from muster_scheduler.questions import PoolServicer
from muster_scheduler.settings import SchedulerSettings

log = logging.getLogger(__name__)

_OWN_FACTS_S = 30.0


class Scheduler:
    """A candidate for the leadership of a pool; every term starts from nothing but the bus."""

    def __init__(self, *, bus: Bus, ctx: Context, pool: str) -> None:
        self._bus = bus
        self._ctx = ctx
        self._pool = pool
        self._term: Term | None = None

    def term(self) -> Term | None:
        """The term of this leader; ``None`` while it does not lead."""
        return self._term

    async def lead(self, fence: Fence) -> None:
        """One term: rebuild, then decide until the lease or the epoch is lost."""
        began = time.monotonic()
        state = PoolState(pool=self._pool)

        def load(entries: list[Entry]) -> None:
            state.restore(restore(entries))

        async def handle(batch: list[Incoming], live: bool) -> None:
            term.observe([stamp(incoming) for incoming in batch])

        feed = Feed(
            self._bus,
            stream=JOBS_STREAM,
            durable=pool_reader(SCHEDULER, self._pool),
            filters=[JOB_FACTS],
            records=Records(self._bus, JOBS_BUCKET),
            floors=RECORD_WRITERS,
            load=load,
            handle=handle,
        )

        async def own_fact(sequence: int) -> None:
            if not await feed.reaches(sequence, _OWN_FACTS_S):
                raise TimeoutError(f"own fact {sequence} was not read within {_OWN_FACTS_S:g} s")

        term = Term(
            state=state,
            decisions=FencedDecisions(bus=self._bus, fence=fence, pool=self._pool),
            totals=MeteredTotals(BusTotals(self._bus), self._ctx.metrics),
            story=MeteredStory(TraceStory(self._ctx.telemetry), self._ctx.metrics),
            clock=lambda: time.time_ns() // 1000,
            seen=own_fact,
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(feed.run())
                tasks.create_task(self._follow_nodes(term))
                await feed.caught_up.wait()
                self._term = term
                log.info(
                    "leading",
                    extra=fields(
                        pool=self._pool,
                        epoch=fence.sequence,
                        jobs=len(state.records),
                        rebuilt_s=round(time.monotonic() - began, 3),
                    ),
                )
                await term.lead()
        finally:
            self._term = None

    async def _follow_nodes(self, term: Term) -> None:
        prefix = pool_nodes(self._pool).removesuffix("*")
        async for change in Watch(self._bus, stream=NODES_STREAM, prefix=prefix, filter_key="*").changes():
            if change.value is None:
                continue
            try:
                fact = read_pool_fact(change.value)
            except UnreadableEvent as error:
                log.error("node %s cannot be read: %s", change.key, error)
                continue
            if isinstance(fact, NodeChanged):
                term.observe_node(fact)


async def build(settings: SchedulerSettings, ctx: Context) -> None:
    """Construct the service."""
    bus = await connect_bus(settings, ctx)
    scheduler = Scheduler(bus=bus, ctx=ctx, pool=settings.pool)
    leadership = Leadership(
        bus,
        leases=Records(bus, LEASES_BUCKET),
        key=f"{SCHEDULER}.{settings.pool}",
        epoch_subject=leader_subject(settings.pool),
        stream=JOBS_STREAM,
        ttl_s=settings.lease_seconds,
        instance=ctx.instance,
    )
    ctx.add_part("leadership", lambda: leadership.run(scheduler.lead))
    ctx.add_grpc(
        internal_service_pb2_grpc.add_PoolServiceServicer_to_server,
        PoolServicer(pool=settings.pool, term=scheduler.term),
    )
