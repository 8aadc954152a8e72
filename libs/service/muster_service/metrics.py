"""Prometheus metrics, in a registry of one's own, so that two services in one process never share a counter.

Names follow Prometheus' conventions: base units, one unit for each family, `_total` for counters. A counter whose labels are
known starts at 0, so that `rate()` sees the first increment.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from muster_service.http_server import Request, Response
from muster_service.readiness import Readiness

M = TypeVar("M", Counter, Gauge, Histogram)

# The time at which a series was created doubles the number of series; Prometheus' text format has no use for it.
disable_created_metrics()

LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The metrics of one service. The same name returns the same metric."""

    def __init__(self, *, process: bool = True) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._made: dict[str, Counter | Gauge | Histogram] = {}
        if process:
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)
            GCCollector(registry=self.registry)

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        """Return the counter `name`; `text` is its help. Raises ``TypeError`` if the name is of another kind of metric."""
        return self._metric(Counter, name, lambda: Counter(name, text, labels, registry=self.registry))

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        """Return the gauge `name`, as `counter` does."""
        return self._metric(Gauge, name, lambda: Gauge(name, text, labels, registry=self.registry))

    def histogram(
        self,
        name: str,
        text: str,
        labels: Sequence[str] = (),
        *,
        buckets: Sequence[float] = LATENCY_BUCKETS_S,
    ) -> Histogram:
        """Return the histogram `name`, as `counter` does; the default buckets suit latencies in seconds."""
        return self._metric(
            Histogram, name, lambda: Histogram(name, text, labels, registry=self.registry, buckets=buckets)
        )

    def _metric(self, kind: type[M], name: str, make: Callable[[], M]) -> M:
        if name not in self._made:
            self._made[name] = make()
        metric = self._made[name]
        if not isinstance(metric, kind):
            raise TypeError(f"metric {name} is a {type(metric).__name__}, not a {kind.__name__}")
        return metric

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' format."""
        return generate_latest(self.registry)


class Exposition:
    """The HTTP handler of `/metrics`, `/healthz` (the process answers) and `/readyz` (it can work)."""

    def __init__(self, metrics: Metrics, readiness: Readiness) -> None:
        self._metrics = metrics
        self._readiness = readiness

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        match request.path:
            case "/metrics":
                return Response(200, self._metrics.exposition(), CONTENT_TYPE_LATEST)
            case "/healthz":
                return Response(200, b"ok\n")
            case "/readyz":
                waiting = self._readiness.waiting_for
                body = "ready\n" if not waiting else "waiting for " + ", ".join(waiting) + "\n"
                return Response(503 if waiting else 200, body.encode())
            case _:
                return Response(404, b"not found\n")
