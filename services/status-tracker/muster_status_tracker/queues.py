"""The current queue tree, read-only: a job may name no queue, or an unknown one.

The leading scheduler writes the queues; an unreadable version is ignored.
"""

from __future__ import annotations

import logging

from muster_bus import KeyValueStore
from muster_core.models import JobRecord
from muster_core.scheduling import QueueTree, validate_queues
from muster_events.codec import UnreadableEvent
from muster_events.queues import decode_queues

log = logging.getLogger(__name__)


class QueueReader:
    """Watches the queues of ``pool`` in their bucket."""

    def __init__(self, *, records: KeyValueStore, pool: str) -> None:
        self._records = records
        self._pool = pool
        self._tree = QueueTree()

    def of(self, record: JobRecord) -> str:
        """Return the effective queue of a job; the one that it names if that is unknown, empty until it is validated."""
        if record.job is None:
            return ""
        return self._tree.queue_of(record.job) or record.job.queue

    async def run(self) -> None:
        """Follow the queues until cancelled."""
        async for change in self._records.watch(self._pool):
            if change.value is None:
                continue
            try:
                specs = decode_queues(change.value).queues
            except UnreadableEvent as error:
                log.warning("the queues of pool %s cannot be read: %s", self._pool, error)
                continue
            if not validate_queues(specs):
                self._tree = QueueTree(specs)
