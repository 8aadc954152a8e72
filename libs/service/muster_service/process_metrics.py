"""Metrics of a service process: version, readiness, event loop, and spans that it could not export."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from muster_service.metrics import Metrics
from muster_service.readiness import Readiness

_PACKAGE = "muster-service"
_EVERY_S = 0.5
_LAGS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


def register_process_metrics(metrics: Metrics, readiness: Readiness) -> None:
    """Register the version, the readiness and the tasks of this process; call it in the event loop."""
    loop = asyncio.get_running_loop()
    info = metrics.gauge("muster_build_info", "1, labelled with the version of this process", ("version",))
    info.labels(installed_version()).set(1)
    tasks = metrics.gauge("muster_tasks", "tasks of the event loop; steady growth is a leak")
    tasks.set_function(lambda: len(asyncio.all_tasks(loop)))
    metrics.registry.register(_ReadinessCollector(readiness))


def count_dropped_spans(metrics: Metrics) -> Callable[[str, int], None]:
    """Return a function that counts spans that were dropped, by reason."""
    dropped = metrics.counter("muster_spans_dropped", "spans that were not exported, by reason", ("reason",))
    for reason in ("queue_full", "export_failed"):
        dropped.labels(reason)
    return lambda reason, spans: dropped.labels(reason).inc(spans)


def installed_version() -> str:
    """Return the version of this process; ``unknown`` if its packages are not installed."""
    try:
        return version(_PACKAGE)
    except PackageNotFoundError:
        return "unknown"


class _ReadinessCollector(Collector):
    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("muster_ready", "1 while the service can do its work", self._readiness.ready)
        conditions = GaugeMetricFamily(
            "muster_ready_condition", "1 while a condition of readiness holds", labels=("condition",)
        )
        for name, holds in self._readiness.conditions.items():
            conditions.add_metric([name], holds)
        yield conditions


class EventLoopLag:
    """Measures how late the event loop runs what is due: everything in the process waits that long."""

    def __init__(self, metrics: Metrics) -> None:
        self._lag = metrics.histogram(
            "muster_event_loop_lag_seconds", "how late the event loop ran a timer", buckets=_LAGS_S
        )

    async def run(self) -> None:
        """Measure twice a second until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _EVERY_S
            await asyncio.sleep(_EVERY_S)
            self._lag.observe(max(loop.time() - due, 0.0))
