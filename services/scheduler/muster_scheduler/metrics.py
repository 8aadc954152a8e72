"""Metrics of the scheduler: decisions, rejected proposals, and the queues of the pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from muster_core.models import JobRecord
from muster_core.scheduling import Evict, Instruction, Place, Resize, Wait
from muster_scheduler.ports import DecisionObserver
from muster_scheduler.queue_queries import LeaderState
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
        self._waiting = metrics.counter(
            "muster_gangs_waiting_reports", "reported reasons of waiting jobs", ("reason",)
        )
        self._wait = metrics.histogram(
            "muster_queue_wait_seconds",
            "from the start of the wait to the placement",
            ("queue",),
            buckets=_WAITS_S,
        )

    def observe_decision(self, record: JobRecord, instruction: Instruction, started_ns: int) -> None:
        """See ``DecisionObserver``."""
        self._observer.observe_decision(record, instruction, started_ns)
        queue = self._queue_of(record)
        match instruction:
            case Place():
                self._placed.labels(queue).inc()
                self._wait.labels(queue).observe(max(started_ns / 1e9 - record.waiting_since / _US, 0))
            case Resize(reason=reason):
                self._resized.labels(reason.code).inc()
            case Evict(reason=reason):
                self._evicted.labels(reason.code).inc()
            case Wait(reason=reason):
                self._waiting.labels(reason.code).inc()


_MILLI = 1000


class LeaderMetrics(Collector):
    """Rejected proposals of the term, and gauges of every queue including its children, computed when they are read.

    A standby has none.
    """

    def __init__(self, leader_state: Callable[[], LeaderState | None], clock: Callable[[], int]) -> None:
        self._leader_state = leader_state
        self._clock = clock

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics without values."""
        yield from (_rejected(), *_gauges().values())

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        rejected, gauges, leader_state = _rejected(), _gauges(), self._leader_state()
        if leader_state is None:
            yield rejected
            return
        rejected.add_metric([], leader_state.term.state.rejected_proposals)
        for report in leader_state.term.queue_report():
            queue = report.spec.name
            oldest = max(self._clock() - report.oldest_wait_at, 0) / _US if report.oldest_wait_at else 0
            gauges["waiting"].add_metric([queue], report.waiting)
            gauges["running"].add_metric([queue], report.running)
            gauges["oldest"].add_metric([queue], oldest)
            gauges["share"].add_metric([queue], report.share / _MILLI)
            gauges["fair_share"].add_metric([queue], report.fair_share / _MILLI)
            for name, amount in report.allocated.amounts().items():
                gauges["allocated"].add_metric([queue, name], amount)
        yield from (rejected, *gauges.values())


def _rejected() -> CounterMetricFamily:
    return CounterMetricFamily(
        "muster_proposals_rejected",
        "rejected proposals to resize a job: stale, out of bounds, superseded, or without capacity",
    )


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
