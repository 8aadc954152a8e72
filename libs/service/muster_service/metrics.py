"""Prometheus metrics, in a registry of one's own, so that two services in one process never share a counter."""

from collections.abc import Sequence
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from muster_service.http_server import Request, Response
from muster_service.readiness import Readiness

M = TypeVar("M")

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
        """Return the counter `name`; `text` is its help.

        Raises:
            TypeError: the name belongs to a metric of another kind.
        """
        if name not in self._made:
            self._made[name] = Counter(name, text, labels, registry=self.registry)
        return _expect(self._made[name], Counter, name)

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        """Return the gauge `name`; `text` is its help.

        Raises:
            TypeError: the name belongs to a metric of another kind.
        """
        if name not in self._made:
            self._made[name] = Gauge(name, text, labels, registry=self.registry)
        return _expect(self._made[name], Gauge, name)

    def histogram(
        self,
        name: str,
        text: str,
        labels: Sequence[str] = (),
        *,
        buckets: Sequence[float] = LATENCY_BUCKETS_S,
    ) -> Histogram:
        """Return the histogram `name`; the default buckets suit latencies in seconds.

        Raises:
            TypeError: the name belongs to a metric of another kind.
        """
        if name not in self._made:
            self._made[name] = Histogram(name, text, labels, registry=self.registry, buckets=buckets)
        return _expect(self._made[name], Histogram, name)

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


def _expect(metric: object, kind: type[M], name: str) -> M:
    if not isinstance(metric, kind):
        raise TypeError(f"metric {name} is a {type(metric).__name__}, not a {kind.__name__}")
    return metric
