"""Every receiver's tellers in this copy: one for each partition that is the copy's."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from muster_bus import Bus
from muster_service.metrics import Metrics
from muster_status_tracker.shelf import Shelf
from muster_status_tracker.webhooks.courier import Courier, CourierMeters
from muster_status_tracker.webhooks.desk import Desk
from muster_status_tracker.webhooks.news import News
from muster_status_tracker.webhooks.receivers import Receivers
from muster_status_tracker.webhooks.teller import Teller


class Tellers:
    """Tells ``receivers`` of the partitions that ``own`` names; ``on_ready`` is called when nothing that happens from then on is missed."""

    def __init__(
        self,
        *,
        bus: Bus,
        shelf: Shelf,
        receivers: Receivers,
        metrics: Metrics,
        on_ready: Callable[[], None],
    ) -> None:
        meters = CourierMeters(metrics)
        self._bus = bus
        self._source = receivers.source
        self._news = News(shelf)
        self._desks = [
            (receiver, Desk(bus=bus, courier=Courier(receiver, meters))) for receiver in receivers.receivers
        ]
        self._on_ready = on_ready
        self._tasks: dict[int, list[asyncio.Task[None]]] = {}
        self._owned: frozenset[int] = frozenset()
        self._changed = asyncio.Event()

    def own(self, partitions: frozenset[int]) -> None:
        """Take exactly these partitions."""
        self._owned = partitions
        self._changed.set()

    async def run(self) -> None:
        """Tell until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._news.run())
            for _, desk in self._desks:
                tasks.create_task(desk.replay())
            while True:
                await self._changed.wait()
                self._changed.clear()
                for partition in self._tasks.keys() - self._owned:
                    for task in self._tasks.pop(partition):
                        task.cancel()
                tellers = {partition: self._of(partition) for partition in self._owned - self._tasks.keys()}
                for partition, fresh in tellers.items():
                    self._tasks[partition] = [tasks.create_task(teller.run()) for teller in fresh]
                for teller in itertools.chain.from_iterable(tellers.values()):
                    await teller.began.wait()
                self._on_ready()

    def _of(self, partition: int) -> list[Teller]:
        return [
            Teller(
                bus=self._bus,
                receiver=receiver,
                partition=partition,
                source=self._source,
                desk=desk,
                news=self._news,
            )
            for receiver, desk in self._desks
        ]
