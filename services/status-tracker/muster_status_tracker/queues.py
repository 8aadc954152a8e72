"""Which queue each job is in, for those who ask: a job may name none, or one that does not count.

The leading scheduler writes the queues; here they are only read, and what cannot be read changes nothing.
"""

from __future__ import annotations

import logging

from muster_bus import Records
from muster_core.models import JobRecord
from muster_core.scheduling import QueueTree, validate_queues
from muster_events.codec import UnreadableEvent
from muster_events.queues import decode_queues

log = logging.getLogger(__name__)


class QueuesInForce:
    """The queues of ``pool`` as ``records``, their bucket, has them."""

    def __init__(self, *, records: Records, pool: str) -> None:
        self._records = records
        self._pool = pool
        self._tree = QueueTree()

    def of(self, record: JobRecord) -> str:
        """The queue that a job is in; the one that it names where that is not there, empty until it is validated."""
        if record.job is None:
            return ""
        return self._tree.queue_of(record.job) or record.job.queue

    async def run(self) -> None:
        """Keep up with the queues until cancelled."""
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
