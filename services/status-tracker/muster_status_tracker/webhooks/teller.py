"""Telling one receiver of one partition: read on, deliver each job's events in their order, keep the place.

Jobs do not wait for one another: an event that is tried again holds up its own job only. How far reading runs ahead of delivering is
bounded.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress

from muster_bus import Bus, BusError, Incoming, Stretch, read_stretch
from muster_core.models import JobRecord
from muster_events.catalogue import JOBS_STREAM
from muster_events.codec import UnreadableEvent, read_job_event
from muster_events.subjects import partition_events
from muster_service.logs import fields
from muster_status_tracker.shelf import namespace_of
from muster_status_tracker.webhooks.changes import Changes, StreamPast
from muster_status_tracker.webhooks.desk import Desk, Parcel
from muster_status_tracker.webhooks.events import event_of
from muster_status_tracker.webhooks.news import News
from muster_status_tracker.webhooks.places import Place, Places
from muster_status_tracker.webhooks.receivers import Receiver
from muster_status_tracker.webhooks.window import Window

log = logging.getLogger(__name__)

_AHEAD = 1_000
_SAVE_EVERY_S = 0.25
_LOOK_ANYWAY_S = 5.0
_GATHER_S = 0.05
_PAUSE_S = 0.5
_WORTH_SAVING = 1_000


def concerns(receiver: Receiver, record: JobRecord) -> bool:
    """Whether a receiver asked for this phase of this job."""
    queue = record.job.queue if record.job else ""
    return (
        (not receiver.phases or record.phase in receiver.phases)
        and (not receiver.namespaces or namespace_of(record) in receiver.namespaces)
        and (not receiver.queues or queue in receiver.queues)
    )


class Teller:
    """See the module. ``source`` is what events call this Muster; ``began`` is set once the place is known and kept."""

    def __init__(
        self, *, bus: Bus, receiver: Receiver, partition: int, source: str, desk: Desk, news: News
    ) -> None:
        self._bus = bus
        self._receiver = receiver
        self._partition = partition
        self._source = source
        self._desk = desk
        self._news = news
        self._places = Places(bus, receiver=receiver.name, partition=partition)
        self.began = asyncio.Event()

    async def run(self) -> None:
        """Tell until cancelled; waits out a broker that is away, and begins again where another copy had the partition meanwhile."""
        while True:
            try:
                place = await self._places.load()
                self.began.set()
                await self._tell(place)
            except* BusError as errors:
                log.info(
                    "webhooks begin again: %s",
                    errors.exceptions[0],
                    extra=fields(receiver=self._receiver.name, partition=self._partition),
                )
            await asyncio.sleep(_PAUSE_S)

    async def _tell(self, place: Place) -> None:
        window = Window(place)
        try:
            with self._news.of(self._partition) as news:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._read(window, news, tasks))
                    tasks.create_task(self._keep_place(window, place))
        finally:
            self._desk.withdraw(len(window))

    async def _read(self, window: Window, news: asyncio.Event, tasks: asyncio.TaskGroup) -> None:
        changes = Changes(StreamPast(self._bus))
        queues: dict[str, asyncio.Task[None]] = {}
        while True:
            news.clear()
            stretch = Stretch(
                stream=JOBS_STREAM,
                filters=partition_events(self._partition),
                after=window.read_through,
                through=await self._bus.last_sequence(JOBS_STREAM),
            )
            async with aclosing(read_stretch(self._bus, stretch)) as chunks:
                async for chunk in chunks:
                    for incoming in chunk:
                        parcel = await self._parcel(changes, incoming)
                        if parcel is not None and window.begin(parcel.sequence):
                            self._desk.take()
                            behind = queues.get(parcel.job_id)
                            told = tasks.create_task(self._bring(parcel, behind, window))
                            queues[parcel.job_id] = told
                        window.read_through = incoming.stream_sequence
                    queues = {job_id: task for job_id, task in queues.items() if not task.done()}
                    await window.until_below(_AHEAD)
            window.read_through = max(window.read_through, stretch.through)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_ANYWAY_S):
                    await news.wait()
            await asyncio.sleep(_GATHER_S)

    async def _parcel(self, changes: Changes, incoming: Incoming) -> Parcel | None:
        try:
            stored = read_job_event(incoming)
        except UnreadableEvent:
            # Whoever folds it sets it aside, and says so.
            return None
        change = await changes.read(stored)
        if change is None or not concerns(self._receiver, change.after):
            return None
        return Parcel(
            job_id=change.after.job_id,
            sequence=change.sequence,
            subject=incoming.subject,
            at_ns=incoming.timestamp_ns,
            body=event_of(change, source=self._source),
        )

    async def _bring(self, parcel: Parcel, behind: asyncio.Task[None] | None, window: Window) -> None:
        if behind is not None:
            await asyncio.wait([behind])
        await self._desk.bring(parcel)
        window.finish(parcel.sequence)

    async def _keep_place(self, window: Window, kept: Place) -> None:
        try:
            while True:
                await asyncio.sleep(_SAVE_EVERY_S)
                kept = await self._save(window, kept)
        except asyncio.CancelledError:
            # What was told since would be told again.
            with suppress(BusError):
                await self._save(window, kept, however_little=True)
            raise

    async def _save(self, window: Window, kept: Place, *, however_little: bool = False) -> Place:
        place = window.place()
        told = window.take_news()
        if place == kept or not (told or however_little or place.through - kept.through >= _WORTH_SAVING):
            return kept
        await self._places.save(place)
        return place
