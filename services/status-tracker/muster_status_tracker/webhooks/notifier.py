"""Notification of receivers: read the events of owned partitions, deliver each job's changes in order, store the position.

A notification that is retried delays the later ones of its own job only. The number of pending notifications is bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import aclosing, contextmanager, suppress

from muster_bus import Bus, BusError, Incoming, PartitionOwner, StreamRange, read_range
from muster_core.models import JobRecord
from muster_events.catalogue import JOBS_STREAM, STATUS_TRACKER, reader_of
from muster_events.codec import UnreadableEvent, read_job_event
from muster_events.subjects import partition_of
from muster_service.logs import fields
from muster_service.metrics import Metrics
from muster_status_tracker.records import MissedChanges, RecordCache, RecordChanges, namespace_of
from muster_status_tracker.webhooks.cloud_events import event_of
from muster_status_tracker.webhooks.delivery import Deliveries, Notification, WebhookMetrics, WebhookSender
from muster_status_tracker.webhooks.phase_changes import PhaseChangeReader, StreamRecords
from muster_status_tracker.webhooks.position import PendingNotifications, Position, PositionStore
from muster_status_tracker.webhooks.receivers import Receiver, Receivers

log = logging.getLogger(__name__)

_MAX_PENDING = 1_000
_SAVE_EVERY_S = 0.25
_POLL_S = 5.0
_BATCH_S = 0.05
_PAUSE_S = 0.5
_SAVE_AFTER = 1_000


class PartitionWakeups:
    """Wakes the notifiers of a partition when one of its records has changed."""

    def __init__(self, cache: RecordCache) -> None:
        self._cache = cache
        self._readers: dict[int, set[asyncio.Event]] = {}

    @contextmanager
    def of(self, partition: int) -> Generator[asyncio.Event]:
        """Return an event that is set at each change of the partition; the reader clears it."""
        event = asyncio.Event()
        readers = self._readers.setdefault(partition, set())
        readers.add(event)
        try:
            yield event
        finally:
            readers.discard(event)

    async def run(self) -> None:
        """Wake notifiers until cancelled."""
        changes = RecordChanges(self._cache)
        while True:
            try:
                partitions = {partition_of(job_id) for job_id in await changes.take()}
            except MissedChanges:
                changes = RecordChanges(self._cache)
                partitions = set(self._readers)
            for partition in partitions:
                for event in self._readers.get(partition, ()):
                    event.set()


def matches(receiver: Receiver, record: JobRecord) -> bool:
    """Return whether a receiver subscribes to this phase of this job."""
    queue = record.job.queue if record.job else ""
    return (
        (not receiver.phases or record.phase in receiver.phases)
        and (not receiver.namespaces or namespace_of(record) in receiver.namespaces)
        and (not receiver.queues or queue in receiver.queues)
    )


class PartitionNotifier:
    """Notifies one receiver of one partition. ``source`` is the source of its CloudEvents; ``began`` is set when its position is stored."""

    def __init__(
        self,
        *,
        bus: Bus,
        receiver: Receiver,
        partition: int,
        source: str,
        deliveries: Deliveries,
        wakeups: PartitionWakeups,
    ) -> None:
        self._bus = bus
        self._receiver = receiver
        self._partition = partition
        self._source = source
        self._deliveries = deliveries
        self._wakeups = wakeups
        self._positions = PositionStore(bus, receiver=receiver.name, partition=partition)
        self.began = asyncio.Event()

    async def run(self) -> None:
        """Notify until cancelled; retries while the broker is unavailable, and restarts after another instance owned the partition."""
        while True:
            try:
                position = await self._positions.load()
                self.began.set()
                await self._notify(position)
            except* BusError as errors:
                log.info(
                    "webhooks restart: %s",
                    errors.exceptions[0],
                    extra=fields(receiver=self._receiver.name, partition=self._partition),
                )
            await asyncio.sleep(_PAUSE_S)

    async def _notify(self, position: Position) -> None:
        pending = PendingNotifications(position)
        try:
            with self._wakeups.of(self._partition) as wakeup:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._read(pending, wakeup, tasks))
                    tasks.create_task(self._store_position(pending, position))
        finally:
            self._deliveries.pending.dec(len(pending))

    async def _read(
        self, pending: PendingNotifications, wakeup: asyncio.Event, tasks: asyncio.TaskGroup
    ) -> None:
        changes = PhaseChangeReader(StreamRecords(self._bus))
        queues: dict[str, asyncio.Task[None]] = {}
        while True:
            wakeup.clear()
            events = StreamRange(
                stream=JOBS_STREAM,
                filters=reader_of(STATUS_TRACKER, JOBS_STREAM).in_partition(self._partition),
                after=pending.read_through,
                through=await self._bus.last_sequence(JOBS_STREAM),
            )
            async with aclosing(read_range(self._bus, events)) as chunks:
                async for chunk in chunks:
                    for incoming in chunk:
                        notification = await self._notification(changes, incoming)
                        if notification is not None and pending.begin(notification.sequence):
                            self._deliveries.pending.inc()
                            previous = queues.get(notification.job_id)
                            task = tasks.create_task(self._deliver(notification, previous, pending))
                            queues[notification.job_id] = task
                        pending.read_through = incoming.stream_sequence
                    queues = {job_id: task for job_id, task in queues.items() if not task.done()}
                    await pending.until_below(_MAX_PENDING)
            pending.read_through = max(pending.read_through, events.through)
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await wakeup.wait()
            await asyncio.sleep(_BATCH_S)

    async def _notification(self, changes: PhaseChangeReader, incoming: Incoming) -> Notification | None:
        try:
            stored = read_job_event(incoming)
        except UnreadableEvent:
            # The reader of the partition dead-letters it, with a log entry.
            return None
        change = await changes.read(stored)
        if change is None or not matches(self._receiver, change.after):
            return None
        return Notification(
            job_id=change.after.job_id,
            sequence=change.sequence,
            subject=incoming.subject,
            at_ns=incoming.timestamp_ns,
            body=event_of(change, source=self._source),
        )

    async def _deliver(
        self, notification: Notification, previous: asyncio.Task[None] | None, pending: PendingNotifications
    ) -> None:
        if previous is not None:
            await asyncio.wait([previous])
        await self._deliveries.deliver(notification)
        pending.finish(notification.sequence)

    async def _store_position(self, pending: PendingNotifications, stored: Position) -> None:
        try:
            while True:
                await asyncio.sleep(_SAVE_EVERY_S)
                stored = await self._save(pending, stored)
        except asyncio.CancelledError:
            # Otherwise deliveries since the last save would be repeated.
            with suppress(BusError):
                await self._save(pending, stored, force=True)
            raise

    async def _save(
        self, pending: PendingNotifications, stored: Position, *, force: bool = False
    ) -> Position:
        position = pending.position()
        progressed = pending.take_progress()
        if position == stored or not (
            progressed or force or position.through - stored.through >= _SAVE_AFTER
        ):
            return stored
        await self._positions.save(position)
        return position


class Notifier:
    """Notifies ``receivers`` of the partitions given to ``own``; ``on_ready`` is called when no later event can be missed."""

    def __init__(
        self,
        *,
        bus: Bus,
        cache: RecordCache,
        receivers: Receivers,
        metrics: Metrics,
        on_ready: Callable[[], None],
    ) -> None:
        webhook_metrics = WebhookMetrics(metrics)
        self._bus = bus
        self._source = receivers.source
        self._wakeups = PartitionWakeups(cache)
        self._deliveries = [
            (receiver, Deliveries(bus=bus, sender=WebhookSender(receiver, webhook_metrics)))
            for receiver in receivers.receivers
        ]
        self._partitions = PartitionOwner(self._notify, on_complete=lambda _: on_ready())
        self.own = self._partitions.own
        """Sets the owned partitions."""

    async def run(self) -> None:
        """Notify until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._wakeups.run())
            for _, deliveries in self._deliveries:
                tasks.create_task(deliveries.replay())
            tasks.create_task(self._partitions.run())

    async def _notify(self, partition: int, began: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            notifiers = [
                PartitionNotifier(
                    bus=self._bus,
                    receiver=receiver,
                    partition=partition,
                    source=self._source,
                    deliveries=deliveries,
                    wakeups=self._wakeups,
                )
                for receiver, deliveries in self._deliveries
            ]
            for notifier in notifiers:
                tasks.create_task(notifier.run())
            for notifier in notifiers:
                await notifier.began.wait()
            began.set()
