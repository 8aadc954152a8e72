"""The only place that constructs the scheduler's adapters."""

from __future__ import annotations

import asyncio
import logging
import time

from muster_bus import Bus, Entry, Feed, Fence, Incoming, Leadership, Records
from muster_bus.service_bus import connect_bus
from muster_bus.watch import Watch
from muster_core.events import JobResized, NodeChanged
from muster_core.models import JobRecord
from muster_core.scheduling import PoolState
from muster_events.catalogue import (
    JOBS_BUCKET,
    JOBS_STREAM,
    LEASES_BUCKET,
    NODES_STREAM,
    QUEUES_BUCKET,
    RECORD_WRITERS,
    SCHEDULER,
    pool_reader,
)
from muster_events.codec import UnreadableEvent, read_pool_event
from muster_events.queues import NO_QUEUES
from muster_events.recent import recent_events
from muster_events.subjects import JOB_EVENTS, leader_subject, pool_nodes
from muster_events.view import restore, stamp
from muster_rpc.internal.v1 import queries_pb2_grpc
from muster_scheduler.adapters import BusTotals, FencedDecisions, TraceStory
from muster_scheduler.handlers import Term
from muster_scheduler.meters import MeteredStory, MeteredTotals, RefusedProposals
from muster_scheduler.queries import PoolServicer
from muster_scheduler.queue_meters import QueueGauges
from muster_scheduler.queue_queries import Leading, QueueQueries
from muster_scheduler.queues import QueueKeeper
from muster_scheduler.settings import SchedulerSettings
from muster_service.app import Context
from muster_service.logs import fields

log = logging.getLogger(__name__)

_OWN_EVENTS_S = 30.0
_UNSENT_S = 15.0
"""How long before its successor leads a leader may have died with spans that it had not sent."""


class Scheduler:
    """A candidate for the leadership of a pool; every term starts from nothing but the bus."""

    def __init__(self, *, bus: Bus, ctx: Context, pool: str, start_timeout_s: int) -> None:
        self._bus = bus
        self._ctx = ctx
        self._pool = pool
        self._start_timeout_s = start_timeout_s
        self._leading: Leading | None = None
        self._last_queues = NO_QUEUES

    def leading(self) -> Leading | None:
        """What this leader has in hand; ``None`` while it does not lead."""
        return self._leading

    def term(self) -> Term | None:
        """The term of this leader; ``None`` while it does not lead."""
        return self._leading.term if self._leading else None

    async def lead(self, fence: Fence) -> None:
        """One term: rebuild, then decide until the lease or the epoch is lost."""
        began = time.monotonic()
        state = PoolState(pool=self._pool, start_timeout_s=self._start_timeout_s)
        queues = QueueKeeper(
            records=Records(self._bus, QUEUES_BUCKET),
            pool=self._pool,
            epoch=fence.sequence,
            last_good=self._last_queues,
        )
        await queues.claim()

        def load(entries: list[Entry]) -> None:
            state.restore(restore(entries))

        async def handle(batch: list[Incoming], live: bool) -> None:
            await term.observe([stamp(incoming) for incoming in batch])

        feed = Feed(
            self._bus,
            stream=JOBS_STREAM,
            durable=pool_reader(SCHEDULER, self._pool),
            filters=[JOB_EVENTS],
            records=Records(self._bus, JOBS_BUCKET),
            floors=RECORD_WRITERS,
            load=load,
            handle=handle,
        )

        async def own_event(sequence: int) -> None:
            if not await feed.reaches(sequence, _OWN_EVENTS_S):
                raise TimeoutError(f"own event {sequence} was not read within {_OWN_EVENTS_S:g} s")

        story = TraceStory(self._ctx.telemetry, state.queue_of)
        term = Term(
            state=state,
            decisions=FencedDecisions(bus=self._bus, fence=fence, pool=self._pool),
            totals=MeteredTotals(BusTotals(self._bus), self._ctx.metrics),
            story=MeteredStory(story, self._ctx.metrics, state.queue_of),
            clock=_now,
            seen=own_event,
        )

        async def take_queues() -> None:
            await term.apply_queues(queues.in_force.queues)

        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(feed.run())
                tasks.create_task(self._follow_nodes(term))
                await feed.caught_up.wait()
                await take_queues()
                tasks.create_task(queues.follow(take_queues))
                tasks.create_task(self._retell(story, state))
                self._leading = Leading(term, queues)
                log.info(
                    "leading",
                    extra=fields(
                        pool=self._pool,
                        epoch=fence.sequence,
                        jobs=len(state.records),
                        queues=queues.in_force.version,
                        rebuilt_s=round(time.monotonic() - began, 3),
                    ),
                )
                await term.lead()
        finally:
            self._leading = None
            self._last_queues = queues.in_force

    async def _retell(self, story: TraceStory, state: PoolState) -> None:
        for said in await recent_events(self._bus, [JobResized], seconds=_UNSENT_S):
            known = state.record(said.job_id)
            record = known or JobRecord(job_id=said.job_id, applied_sequence=0, trace=said.traceparent)
            if isinstance(said.event, JobResized):
                story.retell(record, said.event, said.at * 1000)

    async def _follow_nodes(self, term: Term) -> None:
        prefix = pool_nodes(self._pool).removesuffix("*")
        async for change in Watch(self._bus, stream=NODES_STREAM, prefix=prefix, filter_key="*").changes():
            if change.value is None:
                continue
            try:
                event = read_pool_event(change.value)
            except UnreadableEvent as error:
                log.error("node %s cannot be read: %s", change.key, error)
                continue
            if isinstance(event, NodeChanged):
                await term.observe_node(event)


async def build(settings: SchedulerSettings, ctx: Context) -> None:
    """Construct the service."""
    bus = await connect_bus(settings, ctx)
    scheduler = Scheduler(
        bus=bus, ctx=ctx, pool=settings.pool, start_timeout_s=settings.start_timeout_seconds
    )
    leadership = Leadership(
        bus,
        leases=Records(bus, LEASES_BUCKET),
        key=f"{SCHEDULER}.{settings.pool}",
        epoch_subject=leader_subject(settings.pool),
        stream=JOBS_STREAM,
        ttl_s=settings.lease_seconds,
        instance=ctx.instance,
    )
    ctx.metrics.registry.register(QueueGauges(scheduler.leading))
    ctx.metrics.registry.register(RefusedProposals(scheduler.term))
    ctx.add_part("leadership", lambda: leadership.run(scheduler.lead))
    ctx.add_grpc(
        queries_pb2_grpc.add_PoolServiceServicer_to_server,
        PoolServicer(
            pool=settings.pool,
            term=scheduler.term,
            queues=QueueQueries(leading=scheduler.leading, clock=_now),
        ),
    )


def _now() -> int:
    return time.time_ns() // 1000
