"""The queues as gauges, computed when they are read: a queue that is gone leaves no number behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from muster_scheduler.queue_queries import Leading

_US = 1_000_000
_MILLI = 1000


class QueueGauges(Collector):
    """Every queue as the leader sees it, with all that is below it; a standby has none."""

    def __init__(self, leading: Callable[[], Leading | None]) -> None:
        self._leading = leading

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The gauges, without numbers."""
        yield from _gauges().values()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauges as they stand."""
        leading = self._leading()
        if leading is None:
            return
        gauges = _gauges()
        for report in leading.term.queue_report():
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
        "waiting": gauge("jobs", "jobs that wait in the queue, and below it"),
        "running": gauge("jobs_running", "jobs of the queue that hold something"),
        "oldest": gauge("oldest_seconds", "how long the oldest of those that wait has waited"),
        "share": gauge(
            "share_ratio", "the largest part that the queue holds of any one resource of the pool"
        ),
        "fair_share": gauge(
            "fair_share_ratio", "what the queue is due by weight among those that want something"
        ),
        "allocated": gauge("allocated", "what its jobs hold, by resource", "resource"),
    }
