"""The only place that constructs pod-launcher's adapters."""

from __future__ import annotations

import asyncio
import logging
import os
import time

from muster_core.facts import NodeChanged, ReplicasChanged
from muster_core.models import JobRecord, Node
from muster_events.catalogue import (
    JOBS_BUCKET,
    JOBS_STREAM,
    LEASES_BUCKET,
    NODES_STREAM,
    POD_LAUNCHER,
    STATUS_TRACKER,
    lane_reader,
)
from muster_events.codec import UnreadableEvent, job_message, pool_message, read_pool_fact
from muster_events.subjects import LANES, lane_facts, lane_of, lane_records, pool_nodes
from muster_events.view import JobsView
from muster_pod_launcher.handlers import Hands, due_in
from muster_pod_launcher.meters import MeteredStory, show_replicas
from muster_pod_launcher.ports import Runtime
from muster_pod_launcher.process import ProcessRuntime
from muster_pod_launcher.process.nodes import NodeSpecError, parse_nodes
from muster_pod_launcher.questions import LogServicer
from muster_pod_launcher.settings import PodLauncherSettings
from muster_pod_launcher.story import TraceStory
from muster_pod_launcher.turns import Turns
from muster_rpc.v1 import internal_service_pb2_grpc
from muster_runtime.app import Context
from muster_runtime.bus import Bus, BusUnavailable, Feed, Incoming, Membership, NotFound, Records
from muster_runtime.bus.reader import read_last_values
from muster_runtime.logs import fields
from muster_runtime.service_bus import connect_bus

log = logging.getLogger(__name__)

_PAUSE_S = 1.0


def _now() -> int:
    return time.time_ns() // 1000


class BusFacts:
    """What the runtime saw, on the bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def publish(self, record: JobRecord, fact: ReplicasChanged) -> None:
        """See ``ReplicaFacts``."""
        await self._bus.publish_once(
            job_message(record.job_id, fact, source=POD_LAUNCHER, traceparent=record.trace)
        )


class Launcher:
    """The lanes of this copy: their records, folded from the facts, and the hands that follow them."""

    def __init__(self, *, bus: Bus, ctx: Context, runtime: Runtime) -> None:
        self._bus = bus
        self._ctx = ctx
        self._runtime = runtime
        self._records = Records(bus, JOBS_BUCKET)
        self._story = TraceStory(ctx.telemetry)
        self.view = JobsView()
        self._hands = Hands(
            records=self.view.records,
            runtime=runtime,
            facts=BusFacts(bus),
            story=MeteredStory(self._story, ctx.metrics),
            clock=_now,
            forget=lambda job_id: self.view.records.pop(job_id, None) and None,
        )
        self._turns = Turns(self._work)
        self._feeds: dict[int, tuple[Feed, asyncio.Task[None]]] = {}
        self._owned: frozenset[int] = frozenset()
        self._changed = asyncio.Event()

    def own(self, lanes: frozenset[int]) -> None:
        """Take exactly these lanes."""
        self._owned = lanes
        self._changed.set()

    async def run(self) -> None:
        """Keep a feed for each owned lane."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow_runtime())
                while True:
                    await self._changed.wait()
                    self._changed.clear()
                    for lane in self._feeds.keys() - self._owned:
                        await self._give_up(lane)
                    for lane in self._owned - self._feeds.keys():
                        feed = self._feed(lane)
                        self._feeds[lane] = (feed, tasks.create_task(self._follow(lane, feed)))
                    await asyncio.gather(*(feed.caught_up.wait() for feed, _ in self._feeds.values()))
                    self._ctx.set_ready("records", True)
        finally:
            await self._turns.close()

    async def _work(self, job_id: str) -> None:
        feed = self._feeds.get(lane_of(job_id))
        if feed is None or not feed[0].caught_up.is_set():
            return
        at = await self._hands.work(job_id)
        if at is not None:
            self._turns.touch_in(job_id, due_in(at, _now()))

    def _feed(self, lane: int) -> Feed:
        async def handle(batch: list[Incoming], live: bool) -> None:
            for incoming in batch:
                change = self.view.apply(incoming)
                if live and change.after is not None:
                    self._story.moved(change.before, change.after)
                if live:
                    self._turns.touch(change.stamped.job_id)

        return Feed(
            self._bus,
            stream=JOBS_STREAM,
            durable=lane_reader(POD_LAUNCHER, lane),
            filters=lane_facts(lane),
            records=self._records,
            record_filters=lane_records(lane),
            floors=[lane_reader(STATUS_TRACKER, lane)],
            load=self.view.load,
            handle=handle,
        )

    async def _follow(self, lane: int, feed: Feed) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(feed.run())
            await feed.caught_up.wait()
            # What happened while nobody looked: every job that is known to either side is compared once.
            known = {*self._runtime.jobs(), *self.view.records}
            for job_id in known:
                if lane_of(job_id) == lane:
                    self._turns.touch(job_id)

    async def _give_up(self, lane: int) -> None:
        _, task = self._feeds.pop(lane)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for job_id in [j for j in self.view.records if lane_of(j) == lane]:
            del self.view.records[job_id]

    async def _follow_runtime(self) -> None:
        async for job_id in self._runtime.changes():
            if lane_of(job_id) in self._owned:
                self._turns.touch(job_id)


async def report_nodes(bus: Bus, runtime: Runtime, pool: str) -> None:
    """Say what each node offers where the last word on it differs, and which ones have left."""
    told = {m.subject: m.data for m in await read_last_values(bus, NODES_STREAM, pool_nodes(pool))}
    for node in runtime.nodes():
        message = pool_message(NodeChanged(pool=pool, node=node), source=POD_LAUNCHER)
        if told.pop(message.subject, None) != message.data:
            await bus.publish_once(message)
            log.info("node reported", extra=fields(node=node.name, **node.allocatable.amounts()))
    for subject, data in told.items():
        try:
            fact = read_pool_fact(data)
        except UnreadableEvent as error:
            log.error("%s: %s", subject, error)
            continue
        if isinstance(fact, NodeChanged) and not fact.gone:
            await bus.publish_once(
                pool_message(NodeChanged(pool=pool, node=fact.node, gone=True), source=POD_LAUNCHER)
            )
            log.info("node gone", extra=fields(node=fact.node.name))


def _nodes(described: str) -> tuple[Node, ...]:
    try:
        return parse_nodes([text for part in described.split(";") if (text := part.strip())])
    except NodeSpecError as error:
        log.error("MUSTER_NODES cannot be used: %s", error)
        raise SystemExit(2) from error


async def build(settings: PodLauncherSettings, ctx: Context) -> None:
    """Construct the service."""
    ctx.set_ready("records", False)
    ctx.set_ready("nodes", False)
    runtime = ProcessRuntime(
        root=settings.process_root,
        nodes=_nodes(settings.nodes),
        workdir=settings.workdir,
        environ=os.environ,
        clock=_now,
    )
    show_replicas(runtime, ctx.metrics)
    bus = await connect_bus(settings, ctx)
    launcher = Launcher(bus=bus, ctx=ctx, runtime=runtime)
    membership = Membership(
        bus, leases=Records(bus, LEASES_BUCKET), group=POD_LAUNCHER, instance=ctx.instance
    )

    async def keep_nodes_told() -> None:
        while True:
            try:
                await report_nodes(bus, runtime, settings.pool)
                break
            except (BusUnavailable, NotFound) as error:
                log.warning("nodes cannot be reported yet: %s", error)
                await asyncio.sleep(_PAUSE_S)
        ctx.set_ready("nodes", True)

    ctx.add_part("runtime", runtime.run)
    ctx.add_part("lanes", launcher.run)
    ctx.add_part("membership", lambda: membership.run(launcher.own, LANES))
    ctx.add_part("nodes", keep_nodes_told)
    ctx.add_grpc(
        internal_service_pb2_grpc.add_LogServiceServicer_to_server,
        LogServicer(runtime=runtime, records=launcher.view.records),
    )
