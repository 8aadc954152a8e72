"""What the scheduler counts: decisions by kind, proposals that it refused, waits, and the pool in totals."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from muster_core.events import CapacityChanged
from muster_core.models import JobRecord
from muster_core.scheduling import Evict, Instruction, Place, Resize, Wait
from muster_scheduler.handlers import Term
from muster_scheduler.ports import Story, Totals
from muster_service.metrics import Metrics

_US = 1_000_000
_WAITS_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 30, 60, 300, 1800, 7200, 86400)


class MeteredStory:
    """A ``Story`` that counts what it passes on; ``queue_of`` tells the queue that a job is in, whatever it names."""

    def __init__(self, story: Story, metrics: Metrics, queue_of: Callable[[JobRecord], str]) -> None:
        self._story = story
        self._queue_of = queue_of
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
        queue = self._queue_of(record)
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
        self._waiting = metrics.gauge("muster_pool_jobs_waiting", "jobs that wait, in any queue or in none")
        self._free = metrics.gauge("muster_pool_free", "room that is left, by resource", ("resource",))
        self._offered = metrics.gauge(
            "muster_pool_allocatable", "room that there is, by resource", ("resource",)
        )

    async def publish(self, capacity: CapacityChanged) -> None:
        """See ``Totals``."""
        self._waiting.set(capacity.waiting)
        for name, amount in capacity.free.amounts().items():
            self._free.labels(name).set(amount)
        for name, amount in capacity.allocatable.amounts().items():
            self._offered.labels(name).set(amount)
        await self._totals.publish(capacity)


class RefusedProposals(Collector):
    """The scaler's proposals that the leader has dropped in this term; a standby counts none."""

    def __init__(self, term: Callable[[], Term | None]) -> None:
        self._term = term

    def describe(self) -> Iterator[CounterMetricFamily]:
        """The counter, without its number."""
        yield _refused()

    def collect(self) -> Iterator[CounterMetricFamily]:
        """The counter as it stands."""
        counter, term = _refused(), self._term()
        if term is not None:
            counter.add_metric([], term.state.rejected_proposals)
        yield counter


def _refused() -> CounterMetricFamily:
    return CounterMetricFamily(
        "muster_proposals_refused",
        "proposals to grow or shrink that were dropped: stale, out of bounds, superseded, or without room",
    )
