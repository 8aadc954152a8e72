"""When there may be something to tell: this copy folds the events of its partitions itself, so it knows at once."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from muster_events.subjects import partition_of
from muster_status_tracker.shelf import Shelf


class News:
    """Wakes those who read a partition when a record of it has changed."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._readers: dict[int, set[asyncio.Event]] = {}

    @contextmanager
    def of(self, partition: int) -> Generator[asyncio.Event]:
        """An event that is set at each change of the partition; whoever reads clears it first."""
        event = asyncio.Event()
        readers = self._readers.setdefault(partition, set())
        readers.add(event)
        try:
            yield event
        finally:
            readers.discard(event)

    async def run(self) -> None:
        """Wake readers until cancelled."""
        async for job_id, _ in self._shelf.changes():
            for event in self._readers.get(partition_of(job_id), ()):
                event.set()
