"""Construction of the scheduler, and its terms as leader."""

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
from muster_core.events import JobPlaced, JobResized
from muster_core.models import JobRecord
from muster_core.scheduling import PoolState
from muster_events.catalogue import (
    JOBS_STREAM,
    LEASES_BUCKET,
    NODES_STREAM,
    QUEUES_BUCKET,
    RECORD_WRITERS,
    SCHEDULER,
    pool_reader,
    probes_of,
    reader_of,
)
from muster_events.codec import read_node
from muster_events.history import ended_builds, records_of, successful_runs
from muster_events.queues import NO_QUEUES
from muster_events.recent import recent_events
from muster_events.subjects import LIVE_RECORDS, UNSTORED, leader_subject
from muster_events.view import restore, stamp
from muster_rpc.calls import LEADER_QUERIES
from muster_rpc.internal.v1 import queries_pb2_grpc
from muster_scheduler.adapters import BusTotalsPublisher, DecisionSpanRecorder, FencedDecisionLog
from muster_scheduler.metrics import DecisionMetrics, LeaderMetrics, SchedulingMetrics
from muster_scheduler.queries import PoolServicer
from muster_scheduler.queue_queries import LeaderState
from muster_scheduler.queues import QueueStore
from muster_scheduler.settings import SchedulerSettings
from muster_scheduler.term import LeaderTerm
from muster_service.app import Context
from muster_service.logs import fields

log = logging.getLogger(__name__)

_OWN_EVENTS_S = 30.0
_QUERY_WAIT_S = 1.0
_UNSENT_SPANS_S = 15.0
"""For this time before a term, spans of the previous leader may not have been sent."""


class Scheduler:
    """A candidate for the leadership of a pool; every term starts from the bus alone."""

    def __init__(
        self, *, bus: Bus, ctx: Context, clock: BrokerClock, pool: str, start_timeout_s: int
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._ctx = ctx
        self._pool = pool
        self._start_timeout_s = start_timeout_s
        self.metrics = SchedulingMetrics(ctx.metrics, pool)
        self._leader_state: LeaderState | None = None
        self._last_queues = NO_QUEUES

    def leader_state(self) -> LeaderState | None:
        """Return the state of this leader; ``None`` while it does not lead."""
        return self._leader_state

    async def lead(self, fence: Fence) -> None:
        """Lead for one term: rebuild the state, then schedule until the lease or the epoch is lost."""
        began = time.monotonic()
        await self._clock.synchronised.wait()
        state = PoolState(pool=self._pool, start_timeout_s=self._start_timeout_s)
        queues = QueueStore(
            records=KeyValueStore(self._bus, QUEUES_BUCKET),
            pool=self._pool,
            epoch=fence.sequence,
            initial=self._last_queues,
        )
        await queues.acquire()

        records = records_of(self._bus)

        async def load(entries: list[Entry]) -> None:
            state.restore(await restore(records, entries))

        async def handle(batch: list[Incoming], live: bool) -> None:
            await term.observe([stamp(incoming) for incoming in batch])

        reader = PartitionReader(
            self._bus,
            stream=JOBS_STREAM,
            consumer=pool_reader(SCHEDULER, self._pool),
            filters=reader_of(SCHEDULER, JOBS_STREAM).filters,
            records=records,
            record_filters=[LIVE_RECORDS],
            record_writers=RECORD_WRITERS,
            load=load,
            handle=handle,
        )

        async def wait_applied(sequence: int) -> None:
            if not await reader.reaches(sequence, _OWN_EVENTS_S):
                raise TimeoutError(f"own event {sequence} was not read within {_OWN_EVENTS_S:g} s")

        observer = DecisionSpanRecorder(self._ctx.telemetry, state.queue_of)
        term = LeaderTerm(
            state=state,
            decisions=FencedDecisionLog(bus=self._bus, fence=fence, pool=self._pool),
            totals=BusTotalsPublisher(self._bus),
            observer=DecisionMetrics(observer, self.metrics, state.queue_of),
            cycles=self.metrics,
            clock=self._clock.now,
            wait_applied=wait_applied,
        )

        async def apply_current_queues() -> None:
            await term.apply_queues(queues.current.queues)
            for report in term.queue_report():
                self.metrics.expect_queue(report.spec.name)

        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(reader.run())
                tasks.create_task(self._follow_nodes(term))
                await reader.caught_up.wait()
                await term.observe_settled(await ended_builds(records, state.records.values()))
                await apply_current_queues()
                tasks.create_task(queues.follow(apply_current_queues))
                tasks.create_task(self._record_unsent_spans(observer, state))
                tasks.create_task(_learn_runtimes(records, term))
                self._leader_state = LeaderState(term, queues, lambda: reader.wait_current(_QUERY_WAIT_S))
                self._ctx.set_serving(LEADER_QUERIES, True)
                log.info(
                    "leading",
                    extra=fields(
                        pool=self._pool,
                        epoch=fence.sequence,
                        jobs=len(state.records),
                        queues=queues.current.version,
                        rebuilt_s=round(time.monotonic() - began, 3),
                    ),
                )
                await term.lead()
        finally:
            self._ctx.set_serving(LEADER_QUERIES, False)
            self._leader_state = None
            self._last_queues = queues.current

    async def _record_unsent_spans(self, observer: DecisionSpanRecorder, state: PoolState) -> None:
        if not self._ctx.telemetry.is_exporting:
            return
        kinds = [JobPlaced, JobResized]
        for decided in await recent_events(self._bus, kinds, seconds=_UNSENT_SPANS_S):
            known = state.record(decided.job_id)
            record = known or JobRecord(job_id=decided.job_id, applied_sequence=0, trace=decided.traceparent)
            if isinstance(decided.event, JobPlaced | JobResized):
                observer.observe_earlier(record, decided.event, decided.at * 1000)

    async def _follow_nodes(self, term: LeaderTerm) -> None:
        [subject] = reader_of(SCHEDULER, NODES_STREAM).in_pool(self._pool)
        prefix = subject.removesuffix("*")
        watch = KeyWatch(self._bus, stream=NODES_STREAM, prefix=prefix, filter_key="*")
        async for change in watch.changes():
            subject = prefix + change.key
            read = partial(read_node, pool=self._pool, subject=subject)
            if (event := await watch.read(change, read)) is not None:
                await term.observe_node(event)


async def _learn_runtimes(records: KeyValueStore, term: LeaderTerm) -> None:
    """Estimate run times from the jobs that have succeeded; new ones are observed as they end."""
    try:
        async with aclosing(successful_runs(records)) as chunks:
            async for runs in chunks:
                await term.observe_settled(runs)
    except BusUnavailable as error:
        log.warning("run times are estimated from a part of the history: %s", error)


async def build(settings: SchedulerSettings, ctx: Context) -> None:
    """Construct the service."""
    # Callers go to the leader.
    ctx.set_serving(LEADER_QUERIES, False)
    bus = await connect_bus(settings, ctx)
    probe_writes(bus, ctx, settings, subjects=probes_of(SCHEDULER), hint=UNSTORED)
    keep_catalogue(
        bus,
        ctx,
        streams=[JOBS_STREAM, NODES_STREAM],
        buckets=[LEASES_BUCKET, QUEUES_BUCKET],
        restart_after=[JOBS_STREAM],
    )
    clock = broker_clock(bus, ctx, JOBS_STREAM)
    scheduler = Scheduler(
        bus=bus, clock=clock, ctx=ctx, pool=settings.pool, start_timeout_s=settings.start_timeout_seconds
    )
    leadership = Leadership(
        bus,
        leases=KeyValueStore(bus, LEASES_BUCKET),
        key=f"{SCHEDULER}.{settings.pool}",
        epoch_subject=leader_subject(settings.pool),
        stream=JOBS_STREAM,
        ttl_s=settings.lease_seconds,
        instance=ctx.instance,
    )

    def leader_state() -> LeaderState | None:
        # A leader that could not renew its lease in time may have a successor already.
        return scheduler.leader_state() if leadership.leading else None

    ctx.metrics.registry.register(LeaderMetrics(leader_state, clock.now, pool=settings.pool))
    ctx.add_part("leadership", lambda: leadership.run(scheduler.lead))
    ctx.add_grpc(
        queries_pb2_grpc.add_PoolServiceServicer_to_server,
        PoolServicer(pool=settings.pool, leader_state=leader_state, clock=clock.now),
    )
