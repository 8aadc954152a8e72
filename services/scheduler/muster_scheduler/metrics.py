"""Metrics of the scheduler: placements, waits, rejected proposals, the totals of the pool, and its queues."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from muster_core.events import CapacityChanged
from muster_core.models import JobRecord
from muster_core.scheduling import Evict, Instruction, Place, Resize, Wait
from muster_scheduler.ports import DecisionObserver, TotalsPublisher
from muster_scheduler.queue_queries import LeaderState
from muster_scheduler.term import LeaderTerm
from muster_service.metrics import Metrics

_US = 1_000_000
_WAITS_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 30, 60, 300, 1800, 7200, 86400)


class DecisionMetrics:
    """Counts decisions and passes them to another observer; ``queue_of`` returns the effective queue of a job."""

    def __init__(
        self, observer: DecisionObserver, metrics: Metrics, queue_of: Callable[[JobRecord], str]
    ) -> None:
        self._observer = observer
        self._queue_of = queue_of
        self._placed = metrics.counter("muster_gangs_placed", "gangs placed", ("queue",))
        self._resized = metrics.counter("muster_gangs_resized", "resizes, by reason", ("reason",))
        self._evicted = metrics.counter("muster_gangs_evicted", "evicted gangs, by reason", ("reason",))
        self._rejected = metrics.counter(
            "muster_gangs_waiting_reports", "reported reasons of waiting jobs", ("reason",)
        )
        self._wait = metrics.histogram(
            "muster_queue_wait_seconds",
            "from the begin of the wait to the placement",
            ("queue",),
            buckets=_WAITS_S,
        )

    def observe_decision(self, record: JobRecord, instruction: Instruction, began_ns: int) -> None:
        """See ``DecisionObserver``."""
        self._observer.observe_decision(record, instruction, began_ns)
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
                self._rejected.labels(reason.code).inc()


class TotalsMetrics:
    """Publishes the totals as gauges and passes them on."""

    def __init__(self, totals: TotalsPublisher, metrics: Metrics) -> None:
        self._totals = totals
        self._waiting = metrics.gauge("muster_pool_jobs_waiting", "waiting jobs of the pool")
        self._free = metrics.gauge("muster_pool_free", "free capacity, by resource", ("resource",))
        self._offered = metrics.gauge(
            "muster_pool_allocatable", "allocatable capacity, by resource", ("resource",)
        )

    async def publish(self, capacity: CapacityChanged) -> None:
        """See ``TotalsPublisher``."""
        self._waiting.set(capacity.waiting)
        for name, amount in capacity.free.amounts().items():
            self._free.labels(name).set(amount)
        for name, amount in capacity.allocatable.amounts().items():
            self._offered.labels(name).set(amount)
        await self._totals.publish(capacity)


class RejectedProposals(Collector):
    """Counts the rejected proposals of this term; a standby has none."""

    def __init__(self, term: Callable[[], LeaderTerm | None]) -> None:
        self._term = term

    def describe(self) -> Iterator[CounterMetricFamily]:
        """Yield the counter without a value."""
        yield _rejected()

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the current counter."""
        counter, term = _rejected(), self._term()
        if term is not None:
            counter.add_metric([], term.state.rejected_proposals)
        yield counter


def _rejected() -> CounterMetricFamily:
    return CounterMetricFamily(
        "muster_proposals_rejected",
        "rejected proposals to resize a job: stale, out of bounds, superseded, or without capacity",
    )


_MILLI = 1000


class QueueGauges(Collector):
    """Gauges of every queue including its children, computed when they are read; a standby has none."""

    def __init__(self, leader_state: Callable[[], LeaderState | None]) -> None:
        self._leader_state = leader_state

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges without values."""
        yield from _gauges().values()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the current gauges."""
        leader_state = self._leader_state()
        if leader_state is None:
            return
        gauges = _gauges()
        for report in leader_state.term.queue_report():
            queue = report.spec.name
            oldest = max(time.time() - report.oldest_wait_at / _US, 0) if report.oldest_wait_at else 0
            gauges["waiting"].add_metric([queue], report.waiting)
            gauges["running"].add_metric([queue], report.running)
            gauges["oldest"].add_metric([queue], oldest)
            gauges["share"].add_metric([queue], report.share / _MILLI)
            gauges["fair_share"].add_metric([queue], report.fair_share / _MILLI)
            for name, amount in report.allocated.amounts().items():
                gauges["allocated"].add_metric([queue, name], amount)
        yield from gauges.values()


def _gauges() -> dict[str, GaugeMetricFamily]:
    def gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"muster_queue_{name}", text, labels=("queue", *labels))

    return {
        "waiting": gauge("jobs", "waiting jobs of the queue and its children"),
        "running": gauge("jobs_running", "jobs of the queue with allocations"),
        "oldest": gauge("oldest_seconds", "wait (s) of the longest-waiting job"),
        "share": gauge("share_ratio", "dominant share of the queue"),
        "fair_share": gauge("fair_share_ratio", "fair share of the queue by weight"),
        "allocated": gauge("allocated", "allocations of its jobs, by resource", "resource"),
    }
