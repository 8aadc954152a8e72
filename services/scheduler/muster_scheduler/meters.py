"""What the scheduler counts: decisions by kind, waits, and the pool in totals."""

from __future__ import annotations

import time

from muster_core.facts import CapacityChanged
from muster_core.models import JobRecord
from muster_core.queues import Evict, Instruction, Place, Resize, Wait
from muster_runtime.metrics import Metrics
from muster_scheduler.ports import Story, Totals

_US = 1_000_000
_WAITS_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 30, 60, 300, 1800, 7200, 86400)


class MeteredStory:
    """A ``Story`` that counts what it passes on."""

    def __init__(self, story: Story, metrics: Metrics) -> None:
        self._story = story
        self._placed = metrics.counter("muster_gangs_placed", "gangs placed", ("queue",))
        self._resized = metrics.counter("muster_gangs_resized", "growths and shrinkages decided", ("reason",))
        self._evicted = metrics.counter(
            "muster_gangs_evicted", "gangs taken down without fault of their own", ("reason",)
        )
        self._refused = metrics.counter(
            "muster_gangs_refused", "times that a gang was told to wait, by reason", ("reason",)
        )
        self._wait = metrics.histogram(
            "muster_queue_wait_seconds",
            "from arrival in the queue to the placement",
            ("queue",),
            buckets=_WAITS_S,
        )

    def tell(self, record: JobRecord, instruction: Instruction, began_ns: int) -> None:
        """See ``Story``."""
        self._story.tell(record, instruction, began_ns)
        queue = (record.job.queue if record.job else "") or "default"
        match instruction:
            case Place():
                self._placed.labels(queue).inc()
                self._wait.labels(queue).observe(max(began_ns / 1e9 - record.waiting_since / _US, 0))
            case Resize(reason=reason):
                self._resized.labels(reason.code).inc()
            case Evict(reason=reason):
                self._evicted.labels(reason.code).inc()
            case Wait(reason=reason):
                self._refused.labels(reason.code).inc()


class MeteredTotals:
    """``Totals`` that are gauges too."""

    def __init__(self, totals: Totals, metrics: Metrics) -> None:
        self._totals = totals
        self._waiting = metrics.gauge("muster_queue_jobs", "jobs that wait")
        self._oldest = metrics.gauge(
            "muster_queue_oldest_seconds", "how long the oldest of them had waited at the last change"
        )
        self._free = metrics.gauge("muster_pool_free", "room that is left, by resource", ("resource",))
        self._offered = metrics.gauge(
            "muster_pool_allocatable", "room that there is, by resource", ("resource",)
        )

    async def publish(self, capacity: CapacityChanged) -> None:
        """See ``Totals``."""
        self._waiting.set(capacity.waiting)
        oldest = capacity.oldest_wait_at
        self._oldest.set(max(time.time() - oldest / _US, 0) if oldest else 0)
        for name, amount in capacity.free.amounts().items():
            self._free.labels(name).set(amount)
        for name, amount in capacity.allocatable.amounts().items():
            self._offered.labels(name).set(amount)
        await self._totals.publish(capacity)
